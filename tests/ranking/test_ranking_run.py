"""What goes wrong with one model stays with that model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hubscout.ranking import Ranking, rank
from hubscout.ranking import jobs as jobs_module
from hubscout.tasks import Task

ODD = """
import sys
from torch import nn


class Odd(nn.Module):
    def __init__(self, facts):
        super().__init__()
        self.num_features = 20
        self.pretrained_cfg = {"input_size": (20,), **facts}
        self.layer = nn.Identity()

    def forward(self, inputs):
        return self.layer(inputs)


def text():
    return Odd({"source_accuracy": "81 %", "license": "mit"})


def listed():
    return Odd({"source_accuracy": 0.5, "license": ["mit", "apache-2.0"]})


def nan():
    return Odd({"source_accuracy": float("nan"), "license": {"name": 3}})


def fine():
    return Odd({"source_accuracy": 0.8, "license": "mit"})
"""


@pytest.fixture
def odd(tmp_path: Path) -> str:
    (tmp_path / "odd.py").write_text(ODD)
    return f"python:{tmp_path / 'odd.py'}"


def test_odd_metadata_ends_no_ranking(array_task: Task, odd: str, tmp_path: Path) -> None:
    wanted = [f"{odd}:{name}" for name in ("fine", "text", "listed", "nan")]
    ranking = rank(array_task, wanted, cache=False, out=tmp_path / "run")
    assert "not_saved" not in ranking.environment
    assert not ranking.failures
    assert Ranking.load(tmp_path / "run") == ranking
    assert ranking[f"{odd}:text"].card["source_accuracy"] is None
    assert any("source_accuracy" in note for note in ranking[f"{odd}:text"].notes)
    assert ranking[f"{odd}:listed"].card["licence"] == "mit, apache-2.0"


def test_a_row_that_cannot_be_written_is_a_failure_of_its_model_alone(
    array_task: Task, odd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A metric or a backbone of somebody else's may give what JSON has no words for."""
    from dataclasses import replace

    honest = jobs_module.assess

    def assess(candidate, *rest):  # type: ignore[no-untyped-def]
        found = honest(candidate, *rest)
        if candidate.identifier.endswith("nan"):
            return replace(found, gain=float("nan"))
        if candidate.identifier.endswith("text"):
            return replace(found, card={"licence": object()})
        return found

    monkeypatch.setattr(jobs_module, "assess", assess)
    wanted = [f"{odd}:{name}" for name in ("nan", "text", "fine")]
    ranking = rank(array_task, wanted, cache=False, out=tmp_path / "run")
    assert ranking.identifiers == (f"{odd}:fine",)
    reasons = {failure.identifier: failure.reason for failure in ranking.failures}
    assert "gain must be" in reasons[f"{odd}:nan"]
    assert "object has no place" in reasons[f"{odd}:text"]
    assert Ranking.load(tmp_path / "run") == ranking
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert events[-1]["event"] == "finished"
