"""The lines of a small race of three arms."""

from __future__ import annotations

from typing import Any

from hubscout.runs.race_record import Arm, RaceRecord

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
    look(C, 0, None, "At step 3 the loss became NaN."),
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
