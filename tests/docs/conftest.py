"""Small real data to run the pages on, as a user would have it: a folder of images and a few tables."""

from __future__ import annotations

import csv
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "docs" / "tools"))
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def common(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all test processes share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "documentation"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def data(common: Path) -> Path:
    """See `write_data`."""
    return write_data(common)


def write_data(common: Path) -> Path:
    """`digits/`, `words.csv`, `sentiment.csv` and `pairs.csv`: digits of MNIST and words that people rated."""
    from filelock import FileLock

    from hubscout.cli.demo_data import write_digits, write_words

    folder = common / "data"
    with FileLock(common / "data.lock"):
        if not (folder / "pairs.csv").is_file():
            write_digits(folder / "digits", 100)
            words = write_words(folder / "words.csv", 120)
            with open(words, newline="", encoding="utf-8") as file:
                rated = [(row["text"], float(row["valence"])) for row in csv.DictReader(file)]
            sentiment = [(word, "pleasant" if rating > 0 else "unpleasant") for word, rating in rated]
            _write(folder / "sentiment.csv", ("text", "label"), sentiment)
            others = np.random.default_rng(0).permutation(len(rated))
            pairs = [
                (one, rated[other][0], "same" if (rating > 0) == (rated[other][1] > 0) else "different")
                for (one, rating), other in zip(rated, others, strict=True)
            ]
            _write(folder / "pairs.csv", ("first", "second", "feeling"), pairs)
    return folder


def _write(path: Path, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(rows)


@pytest.fixture
def workplace(data: Path, common: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a copy of the data to run a page in; features are cached across pages."""
    folder = tmp_path / "work"
    shutil.copytree(data, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HUBSCOUT_CACHE", str(common / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "path", [*sys.path])
    return folder
