"""`hubscout demo` with the two quickest of its models; the whole of it is for `make demo`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
QUICK = ("efficientnet-lite0", "alexnet-features")


@pytest.fixture
def quick_demo(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make the demo rank only the quickest of its models, at a low resolution; gives those that are installed."""
    if not all(find_spec(package) for package in ("mlxtend", "timm", "accelerate")):
        pytest.skip("needs hubscout[demo]")
    from hubscout.cli import demo
    from hubscout.hubs import list_models

    here = {entry.identifier for entry in list_models("pypi/*") if entry.on_this_machine}
    chosen = [name for name in QUICK if f"pypi/{name}" in here]
    if not chosen:
        pytest.skip("the packages of the demo's models are not installed")
    monkeypatch.setattr(demo, "VISION", tuple(chosen))
    monkeypatch.setattr(demo, "INPUT_SIZE", 64)
    monkeypatch.setitem(demo.SETTINGS, "epochs", 2)
    return chosen


def test_it_ranks_tunes_and_reports(hubscout: Run, tmp_path: Path, quick_demo: list[str]) -> None:
    out = tmp_path / "demo"
    result = hubscout("demo", "--samples", "120", "--out", out, "--no-text", "--json")
    assert result.exit_code == 0, result.stderr
    record = json.loads(result.stdout)
    rows = record["digits"]["rows"]
    assert len(rows) == len(quick_demo)
    assert min(row["gain"] for row in rows) > 0.1

    tuned = record["tuning"]["b-tuning" if len(quick_demo) > 1 else "fine-tune"]
    assert tuned["model"] == min(rows, key=lambda row: row["params"])["identifier"]
    assert tuned["model"] not in tuned["teachers"]
    # Ten classes: 0.1 is guessing, and 24 test digits are few.
    assert tuned["metrics"]["test"]["accuracy"]["value"] > 0.3
    page = Path(record["report"]).read_text(encoding="utf-8")
    assert "b-tuning" in page or len(quick_demo) == 1

    commands = [shlex.split(line)[1:] for line in result.stderr.splitlines() if line.startswith("  hubscout ")]
    assert [words[0] for words in commands] == ["predict", "report", "select", "rank", "tune"]
    predicted = hubscout(*commands[0], "--json")
    assert predicted.exit_code == 0, predicted.stderr
    assert len(json.loads(predicted.stdout)) == 2
    assert hubscout(*commands[1]).exit_code == 0
    assert hubscout(*commands[2]).exit_code == (0 if len(quick_demo) > 1 else 2)


def test_without_tuning_it_still_reports(hubscout: Run, tmp_path: Path, quick_demo: list[str]) -> None:
    out = tmp_path / "demo"
    result = hubscout("demo", "--samples", "60", "--out", out, "--no-text", "--no-tune")
    assert result.exit_code == 0, result.stderr
    assert "digits: classification, 10 classes, 42 training samples" in result.stdout
    assert (out / "report.html").is_file()
    assert not (out / "model").exists()
    assert "hubscout predict" not in result.stderr
