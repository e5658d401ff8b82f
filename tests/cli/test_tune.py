"""`hubscout tune`: what is said before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]


def test_a_run_has_one_length(hubscout: Run, images: Path, tmp_path: Path) -> None:
    length = ("--budget", "60s", "--epochs", "4")
    result = hubscout("tune", images, "--model", "pypi/alexnet-features", *length, "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "Error: --budget and --epochs both say how long the run is: give one of them."
    ]
