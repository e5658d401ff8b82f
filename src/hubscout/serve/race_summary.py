"""One line about a race, read from its files."""

from __future__ import annotations

import platform
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from hubscout.errors import RunError
from hubscout.runs.files import parse_json, parse_lines
from hubscout.runs.race_record import RaceRecord
from hubscout.runs.record_types import is_number
from hubscout.runs.run_folder import NOTE as HOLDER
from hubscout.runs.run_folder import RACE, RACE_EVIDENCE, RACE_LINES, RANKING
from hubscout.runs.texts import short_names
from hubscout.serve.run_processes import was_running_at
from hubscout.serve.served_folder import read_real, real_files

QUIET_SECONDS = 120
"""A race whose process cannot be looked at counts as running while it wrote something so many seconds ago."""


def read_lines_of_race(folder: Path) -> tuple[RaceRecord, str]:
    """The race as far as its lines can be read, and what is wrong with the first that cannot."""
    race, problem = RaceRecord(), ""
    for line in parse_lines(read_real(folder / RACE_LINES)):
        try:
            race.take(line)
        except RunError as error:
            problem = problem or " ".join(str(error).split())
    return race, problem


def race_facts(folder: Path) -> dict[str, Any]:
    """The fields of a summary that a race has."""
    race, problem = read_lines_of_race(folder)
    leader = race.final or next(iter(race.standing()), None)
    seen = race.seen(leader) if leader is not None else {}
    score = seen[max(seen)].metric if seen else None
    modified = max((path.stat().st_mtime for path in real_files(folder)), default=folder.stat().st_mtime)
    seconds = _record(folder / RACE).get("seconds") if race.complete else None
    spent = [value for value in seconds.values() if is_number(value)] if isinstance(seconds, dict) else []
    task = _record(folder / RACE_EVIDENCE / RANKING).get("task")
    named = task.get("name") if isinstance(task, dict) else ""
    return {
        "state": "finished" if race.complete else "running" if _is_held(folder, modified) else "interrupted",
        "task": race.task or (named if isinstance(named, str) else ""),
        "best": short_names([leader.model])[0] if leader is not None and seen else "",
        "score": score,
        "metric": f"held-out {race.metric}" if race.metric else "",
        "models": len(race.arms),
        "failed": 0,
        "seconds": float(sum(spent)) if spent else None,
        "modified": modified,
        "problem": problem,
    }


def _record(path: Path) -> dict[str, Any]:
    try:
        found = parse_json(read_real(path), origin=path.name)
    except RunError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_held(folder: Path, modified: float) -> bool:
    """Whether the process that took the folder is at work, as far as can be told from here."""
    holder = _record(folder / HOLDER)
    pid, since = holder.get("pid"), holder.get("since")
    if not isinstance(pid, int) or not isinstance(since, str):
        return False
    if holder.get("host") != platform.node():
        return time.time() - modified < QUIET_SECONDS
    try:
        return was_running_at(pid, datetime.fromisoformat(since).timestamp())
    except (ValueError, OverflowError):
        return False
