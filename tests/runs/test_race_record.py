"""The lines of a race: where each arm stands while it goes on, and what is made of lines that are none."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from hubscout.errors import RunError
from hubscout.runs.display import display
from hubscout.runs.events import Raced
from hubscout.runs.race_record import (
    Arm,
    Look,
    RaceRecord,
    last_comparison,
    race_line,
    race_status,
    race_table,
    read_race,
    write_race,
)

A, B, C = (Arm(f"timm/{name}", 0.01) for name in "abc")


def plain(arm: Arm) -> dict[str, Any]:
    return {"model": arm.model, "learning_rate": arm.learning_rate}


def look(arm: Arm, rung: int, metric: float | None, failure: str = "") -> dict[str, Any]:
    return {
        "event": "look",
        "arm": plain(arm),
        "rung": rung,
        "steps": (15, 45)[rung],
        "metric": metric,
        "seconds": 1.0,
        "log_likelihoods": [-0.1],
        "seconds_per_step": 0.1,
        "failure": failure,
        "elapsed": 3.0,
    }


START = {
    "event": "race",
    "task": "pets",
    "metric": "accuracy",
    "steps": 300,
    "rungs": [15, 45],
    "elapsed": 1.0,
    "arms": [plain(A), plain(B), plain(C)],
}
LINES: list[dict[str, Any]] = [
    START,
    look(A, 0, 0.5),
    look(B, 0, 0.7),
    look(C, 0, None, "DivergedError: NaN"),
    {"event": "rung", "rung": 0, "steps": 15, "going_on": [plain(B)], "arms": [plain(A), plain(B), plain(C)]},
    look(B, 1, 0.8),
    {"event": "winner", "arm": plain(B)},
    {"event": "finished"},
]


def after(count: int) -> RaceRecord:
    record = RaceRecord()
    for line in LINES[:count]:
        record.take(line)
    return record


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


def test_where_the_race_stands_in_a_sentence() -> None:
    said = [race_status(after(count)) for count in (0, 3, 5, 7, 8)]
    assert said == [
        "The evidence of the models is being found.",
        "Rung 1 of 2, 15 steps: 2 of 3 arms seen.",
        "Rung 2 of 2, 45 steps: 0 of 1 arms seen.",
        "b at 0.01 leads and is tuned to its end.",
        "The race is over: b at 0.01.",
    ]


def test_a_race_that_passes_over_its_first_rung_names_the_one_that_is_run() -> None:
    record = RaceRecord()
    record.take({**START, "field": {"widths": [0, 2, 1]}})
    assert race_status(record) == "Rung 2 of 2, 45 steps: 0 of 2 arms seen."
    record.take(look(A, 1, 0.5))
    assert race_status(record) == "Rung 2 of 2, 45 steps: 1 of 2 arms seen."


def test_an_arm_that_was_never_trained_is_not_beaten() -> None:
    record = RaceRecord()
    for line in (START, look(A, 0, 0.5), look(B, 0, 0.7), {"event": "winner", "arm": plain(B)}):
        record.take(line)
    assert states(record) == ["beaten", "finishing", "not trained"]


def test_lines_for_a_log() -> None:
    record, said = RaceRecord(), []
    for line in LINES:
        record.take(line)
        said.append(race_line(line, record))
    assert said[1] == "timm/a at 0.01: 0.5000 after 15 steps"
    assert said[3] == "timm/c at 0.01: DivergedError: NaN after 15 steps"
    assert said[4] == "after 15 steps 1 of 3 arms go on, timm/b at 0.01 first"


def test_a_table_of_arms_by_rung_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with display(3, title="race", stream=stream) as observer:
        for line in LINES:
            observer(Raced("", line))
    text = stream.getvalue()
    assert "15 steps" in text
    assert "out after 15 steps" in text
    assert "0.8000" in text
    assert len(race_table(after(8), most=1).rows) == 2  # the rest is counted


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
