"""What the options of several commands share."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from hubscout.cli.app import COMMANDS


def app_command(name: str) -> Any:
    return typer.main.get_command(importlib.import_module(f"hubscout.cli.{name}").app)


def test_an_option_means_the_same_in_every_command() -> None:
    """`--label` is a column of labels, `--model` the one that is tuned; the model is `-m` like all models."""
    found: dict[str, dict[str, str]] = {}
    for name in COMMANDS:
        command = app_command(name)
        found[name] = {option: one.name for one in command.params for option in one.opts if option.startswith("-")}
    for options in found.values():
        assert "--target" not in options
    for name in ("rank", "race", "tune", "predict", "reference"):
        assert found[name]["--label"] == "label"
    assert found["tune"]["--model"] == found["tune"]["-m"] == "model"
    for name in ("rank", "race", "reference"):
        assert found[name]["--models"] == found[name]["-m"] == "models"


def _complete(words: str) -> list[str]:
    """Ask as bash does."""
    parts = words.split(" ")
    environment = {
        **os.environ,
        "_HUBSCOUT_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(parts) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", "from hubscout.cli.app import app; app(prog_name='hubscout')"],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("hubscout ra", ["rank", "race"]),
        ("hubscout rank data --metrics log", ["logme", "logme-capacity"]),
        ("hubscout rank data --metrics knn,log", ["knn,logme", "knn,logme-capacity"]),
        ("hubscout rank data --models tim", ["timm/"]),
        ("hubscout rank data --models fil", ["file:"]),
    ],
)
def test_shell_completion(words: str, expected: list[str]) -> None:
    assert _complete(words) == expected


def test_completion_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hubscout.cli.shared_options import complete_runs

    (tmp_path / "pets").mkdir()
    (tmp_path / "pets" / "ranking.json").write_text("{}")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    assert complete_runs("") == ["pets"]
    assert complete_runs("x") == []
