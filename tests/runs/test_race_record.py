"""The lines of a race: where each arm stands while it goes on, and what is made of lines that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hubscout.errors import RunError
from hubscout.runs.race_record import (
    Arm,
    Look,
    RaceRecord,
    last_comparison,
    read_race,
    write_race,
)
from race_lines import LINES, START, A, B, C, after, look, plain


def states(record: RaceRecord) -> list[str]:
    return [record.state(arm) for arm in (A, B, C)]


def test_where_arms_stand() -> None:
    assert states(after(2)) == ["racing", "waiting", "waiting"]
    assert states(after(4)) == ["racing", "racing", "failed"]
    assert states(after(5)) == ["out after 15 steps", "racing", "failed"]
    assert states(after(7)) == ["out after 15 steps", "finishing", "failed"]
    assert states(after(8)) == ["out after 15 steps", "winner", "failed"]
    assert after(6).leaderboard() == [B, A, C]
    assert after(6).out_after(A) == 0
    assert after(6).out_after(B) is None


def test_an_arm_that_was_never_trained_is_not_beaten() -> None:
    record = RaceRecord()
    for line in (START, look(A, 0, 0.5), look(B, 0, 0.7), {"event": "winner", "arm": plain(B)}):
        record.take(line)
    assert states(record) == ["beaten", "finishing", "not trained"]


def test_a_record_comes_back_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "race.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    told = {
        "model": "timm/b",
        "rank": 1,
        "evidence_rank": 2,
        "learning_rate": 0.01,
        "steps": 45,
        "metric": 0.8,
        "p_best": 0.9,
        "failure": "",
    }
    write_race(tmp_path, {"order": [told], "seconds": {"evidence": 1.0}, "notes": ["n"], "answer": "b won."})
    found = read_race(tmp_path)
    assert found.complete
    assert found.order[0].model == "timm/b"
    assert (found.answer, found.notes, found.seconds) == ("b won.", ("n",), {"evidence": 1.0})
    write_race(tmp_path, {"order": [{**told, "rank": "first"}], "seconds": {}, "notes": [], "answer": ""})
    with pytest.raises(RunError, match="rank must be int"):
        read_race(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"arm": None},
        {"arm": {"model": 3, "learning_rate": 0.1}},
        {"rung": -1},
        {"rung": 10**9},
        {"rung": "0"},
        {"metric": "high"},
        {"log_likelihoods": None},
        {"log_likelihoods": ["a"]},
        {"steps": None},
    ],
)
def test_a_line_that_is_no_look_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RunError):
        RaceRecord().take({**look(A, 0, 0.5), **change})


@pytest.mark.parametrize(
    "change",
    [
        {"rungs": [-1]},
        {"rungs": 3},
        {"field": {"widths": 3}},
        {"field": None},
        {"arms": [None]},
        {"steps": "many"},
        {"task": None},
    ],
)
def test_a_line_that_is_no_start_is_refused(change: dict[str, Any]) -> None:
    broken = {**START, **change}
    if change == {"task": None}:
        del broken["task"]
    with pytest.raises(RunError):
        RaceRecord().take(broken)


def test_p_best_is_of_the_last_rung_on_which_several_models_were_compared() -> None:
    def look(model: str, rung: int, rate: float = 0.1) -> Look:
        arm = Arm(model, rate)
        return Look(
            arm=arm, rung=rung, steps=10 * rung, metric=0.5, log_likelihoods=(), seconds=1.0, seconds_per_step=0.1
        )

    seen = [look("a", 1), look("b", 1), look("a", 2), look("a", 2, 0.4)]
    found = last_comparison(seen)
    assert found is not None
    assert found.steps == 10
    assert last_comparison(seen[2:]) is None


def test_the_lines_tell_what_a_race_goes_on_from() -> None:
    record = after(6)
    lesson = {**look(A, 1, 0.6), "event": "lesson"}
    for line in (
        {**look(B, 1, 0.7), "event": "fold", "fold": 2},
        {"event": "note", "text": "slow"},
        {"event": "deploy", "model": A.model, "teachers": [B.model]},
        lesson,
        {"event": "stage", "stage": "deploy", "model": A.model, "elapsed": 9.0},
    ):
        record.take(line)
    assert [one.metric for one in record.folds[2]] == [0.7]
    assert [one.metric for one in record.lessons[A.model]] == [0.6]
    assert (record.notes, record.stages, record.taught) == (("slow",), {"deploy": A.model}, {A.model: (B.model,)})
    assert record.seconds == {"evidence": 1.0, "rungs": 2.0, "deploy": 6.0}
    record.take({"event": "deploy", "model": A.model, "teachers": [C.model]})
    assert record.lessons[A.model] == ()  # others teach it now


def test_after_its_end_a_race_may_go_on() -> None:
    record = after(len(LINES))
    assert record.over
    record.take({"event": "deploy", "model": A.model, "teachers": [B.model]})
    assert record.complete
    assert not record.over
