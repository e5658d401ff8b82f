"""A race in the list of runs and on its page, while it goes on and afterwards."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import race_lines
from hubscout.runs.tuning_record import TuningRecord, write_tuning
from hubscout.serve.progress import Progress
from hubscout.serve.run_facts import results, run_facts
from hubscout.serve.run_index import RunIndex
from hubscout.serve.served_folder import NotHereError
from hubscout.serve.streams import RunFollower

ARMS = [{"model": f"timm/{name}", "learning_rate": 0.01} for name in ("a", "<b>")]
START = {**race_lines.START, "arms": ARMS}


def look(place: int, rung: int, metric: float) -> dict[str, Any]:
    return {
        "event": "look",
        "arm": ARMS[place],
        "rung": rung,
        "steps": START["rungs"][rung],  # type: ignore[index]
        "metric": metric,
        "log_likelihoods": [-0.1],
        "seconds": 1.0,
        "seconds_per_step": 0.1,
    }


LINES = [
    START,
    look(0, 0, 0.5),
    look(1, 0, 0.7),
    {"event": "rung", "rung": 0, "steps": 15, "going_on": [ARMS[1]], "arms": ARMS},
    {"event": "winner", "arm": ARMS[1]},
    {"event": "finished"},
]


def write(folder: Path, count: int, *, pid: int | None = None) -> Path:
    (folder / "evidence").mkdir(parents=True, exist_ok=True)
    if count:
        (folder / "race.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES[:count]))
    if pid is not None:
        note = {"pid": pid, "host": platform.node(), "since": datetime.now(UTC).isoformat("T", "seconds")}
        (folder / ".holder.json").write_text(json.dumps(note))
    return folder


def panel(folder: Path) -> Progress:
    progress, follower = Progress(), RunFollower(folder)
    while lines := follower.look()[1]:
        for file, line in lines:
            progress.take(file, line)
    return progress


def test_a_race_is_one_run_and_says_who_leads(tmp_path: Path) -> None:
    write(tmp_path / "race", 3, pid=os.getpid())
    (tmp_path / "race" / "evidence" / "events.jsonl").write_text('{"event": "started", "models": ["timm/a"]}\n')
    (tmp_path / "race" / "winner").mkdir()
    (tmp_path / "race" / "winner" / "tuning.json").write_text("{}")
    library = RunIndex(tmp_path)
    assert library.names() == ["race"]
    found = library.summary("race")
    assert (found.kind, found.state, found.task, found.best) == ("race", "running", "pets", "<b>")
    assert (found.score, found.metric, found.models) == (0.7, "held-out accuracy", 2)


def test_a_finished_race_is_worth_what_it_has_given(tmp_path: Path) -> None:
    """Which may be the linear probe, and better than any arm was on its way."""
    folder = write(tmp_path / "race", 6)
    assert RunIndex(tmp_path).summary("race").score == 0.7
    (folder / "winner").mkdir()
    record = {"format": "hubscout-tuning", "version": 2, "kind": "classification", "model": "timm/<b>"}
    record |= {"metrics": {"test": {"accuracy": {"value": 0.9, "low": 0.8, "high": 1.0}}}}
    (folder / "winner" / "tuning.json").write_text(json.dumps(record))
    found = RunIndex(tmp_path).summary("race")
    assert (found.score, found.metric, found.best) == (0.9, "accuracy, test", "<b>")


def test_a_tuning_that_did_not_come_up_to_its_linear_probe_is_one(tmp_path: Path) -> None:
    (tmp_path / "short").mkdir()
    write_tuning(tmp_path / "short", TuningRecord(model="timm/a", method="b-tuning", best_step=0, steps=0), [])
    (tmp_path / "worse").mkdir()
    write_tuning(tmp_path / "worse", TuningRecord(model="timm/a", method="b-tuning", best_step=0, steps=9), [])
    (tmp_path / "old").mkdir()
    write_tuning(tmp_path / "old", TuningRecord(model="timm/a", method="b-tuning", steps=9), [])
    (tmp_path / "long").mkdir()
    write_tuning(tmp_path / "long", TuningRecord(model="timm/a", method="b-tuning", best_step=8, steps=9), [])
    index = RunIndex(tmp_path)
    assert {name: index.summary(name).best for name in index.names()} == {
        "long": "a · b-tuning",
        "old": "a · b-tuning",
        "short": "a · linear probe",
        "worse": "a · linear probe",
    }
    (line,) = results("short", index.open("short"))
    assert line.method == "linear probe"
    assert run_facts(index.open("short"))["Methods"] == "linear probe"


@pytest.mark.parametrize(
    ("count", "pid", "state"), [(3, None, "interrupted"), (6, None, "finished"), (3, 2**22 + 1, "interrupted")]
)
def test_whether_it_goes_on(tmp_path: Path, count: int, pid: int | None, state: str) -> None:
    write(tmp_path / "race", count, pid=pid)
    assert RunIndex(tmp_path).summary("race").state == state


def test_one_that_still_finds_the_evidence_is_a_race_already(tmp_path: Path) -> None:
    folder = write(tmp_path / "race", 0, pid=os.getpid())
    (folder / "evidence" / "events.jsonl").write_text('{"event": "started", "models": ["timm/a"]}\n')
    assert RunIndex(tmp_path).names() == ["race"]
    assert "0 of 1 models done" in panel(folder).status


def test_arms_by_rung_as_they_come(tmp_path: Path) -> None:
    for count, state in ((2, "racing"), (4, "out after 15 steps"), (6, "winner")):
        folder = write(tmp_path / f"race-{count}", count)
        (folder / "arms" / "000").mkdir(parents=True)
        (folder / "arms" / "000" / "metrics.jsonl").write_text('{"event": "step", "step": 1, "parts": {"task": 1.0}}\n')
        markup = str(panel(folder).markup())
        assert state in markup
        assert "15 steps" in markup
        assert "<b>" not in markup


def test_lines_that_are_none_are_passed_over(tmp_path: Path) -> None:
    folder = write(tmp_path / "race", 3)
    with (folder / "race.jsonl").open("a") as file:
        file.write('{"event": "look", "arm": 3}\n{"event": "rung"}\n')
    assert "no part of a race" in RunIndex(tmp_path).summary("race").problem
    assert "70.0%" in str(panel(folder).markup())


def test_a_link_to_evidence_elsewhere_is_no_race(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "runs" / "race").mkdir(parents=True)
    (tmp_path / "runs" / "race" / "evidence").symlink_to(tmp_path / "other")
    (tmp_path / "runs" / "race" / ".holder.json").write_text("{}")
    with pytest.raises(NotHereError):
        RunIndex(tmp_path / "runs").find("race")


def test_a_ranking_that_ended_by_an_error_failed_and_says_why(tmp_path: Path) -> None:
    why = "The image a/x.jpg cannot be decoded."
    lines = [{"event": "started", "models": ["timm/a"], "task": "pets"}, {"event": "failed", "error": why}]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (found,) = RunIndex(tmp_path).summaries()
    assert (found.state, found.problem, found.nothing_yet) == ("failed", why, False)


def test_a_race_that_its_first_model_won_without_training_names_it(tmp_path: Path) -> None:
    folder = write(tmp_path / "race", 0)
    (folder / "race.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (LINES[0], *LINES[-2:])))
    assert RunIndex(tmp_path).summary("race").best == "<b>"


def test_of_a_ranking_that_cannot_be_read_nothing_is_told_but_what_is_wrong(tmp_path: Path) -> None:
    rows = [{"identifier": "timm/a", "score": 0.5}]
    record = {"format": "hubscout-ranking", "version": 99, "metrics": ["logme"], "rows": rows, "task": {"name": "pets"}}
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "ranking.json").write_text(json.dumps(record))
    (tmp_path / "run" / "events.jsonl").write_text('{"event": "started", "task": "pets"}\n{"event": "finished"}\n')
    found = RunIndex(tmp_path).summary("run")
    assert "version 99" in found.problem
    assert (found.state, found.task) == ("finished", "pets")  # as the events tell
    assert (found.best, found.score, found.metric, found.models) == ("", None, "", 0)
