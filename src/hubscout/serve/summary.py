"""One line about a run, read from its files without opening all of them."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from hubscout.errors import RunError
from hubscout.runs.files import parse_json, parse_lines
from hubscout.runs.ranking_storage import check_record
from hubscout.runs.record_types import is_number
from hubscout.runs.run_folder import CURVES, EVENTS, GROWING, RACE_EVIDENCE, RACE_LINES, RANKING, TRIALS, TUNING
from hubscout.runs.run_folder import NOTE as HOLDER
from hubscout.runs.texts import short_names
from hubscout.runs.tuning_record import TuningRecord, plain_metrics, tuning_run
from hubscout.serve.race_summary import race_facts
from hubscout.serve.run_processes import NOTE, Started, read_note, was_running_at
from hubscout.serve.served_folder import MOST_BYTES, read_real, real_files

State = Literal["running", "finished", "interrupted", "failed"]
MARKS = frozenset({RANKING, TUNING, *GROWING, NOTE})
"""A folder that holds one of these is a run."""
QUIET_SECONDS = 120
"""A run whose process cannot be looked at counts as running while it wrote something so many seconds ago."""
TAIL_BYTES = 1 << 16
_LATEST = 1e11
"""Seconds since 1970 in the year 5138; calendars end soon after."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What the list says of a run. `models` were ranked, `failed` could not be; `modified` is seconds since 1970.

    `stoppable` runs were started from the page and are running.
    """

    name: str
    kind: Literal["ranking", "race", "tuning"]
    state: State
    task: str = ""
    best: str = ""
    score: float | None = None
    metric: str = ""
    models: int = 0
    failed: int = 0
    seconds: float | None = None
    started: str = ""
    modified: float = 0.0
    stoppable: bool = False
    problem: str = ""
    """What is wrong with the files of the run."""

    @property
    def nothing_yet(self) -> bool:
        """Whether the run ended before it had anything to show."""
        return self.state in {"failed", "interrupted"} and self.models == 0 and not self.problem

    @property
    def search(self) -> str:
        """The text that a search looks at, in small letters."""
        words = (self.name, self.kind, self.state, self.task, self.best, self.metric, self.started)
        return " ".join(words).lower()

    @property
    def moment(self) -> str:
        """When the run was started, or else last written, in ISO form."""
        return self.started or _moment(self.modified)

    @property
    def day(self) -> str:
        """The same to the minute, for people."""
        return self.moment[:16].replace("T", " ")

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def is_run(folder: Path) -> bool:
    """Whether a folder holds a file of a run itself."""
    if any((folder / mark).is_file() and not (folder / mark).is_symlink() for mark in MARKS):
        return True
    return is_race(folder)


def is_race(folder: Path) -> bool:
    """Whether a folder is that of a race; one that is still finding the evidence has only its ranking, and a holder."""
    if (folder / RACE_LINES).is_file():
        return True
    evidence = folder / RACE_EVIDENCE
    return (folder / HOLDER).is_file() and evidence.is_dir() and not evidence.is_symlink()


def summarise(name: str, folder: Path) -> Summary:
    """Read a run folder; where files cannot be read, `problem` says why and the rest is as if they were not there."""
    note = read_note(folder)
    running = note is not None and note.running
    asked = str(note.request.get("command") or "rank") if note is not None else ""
    if is_race(folder) or asked == "race":
        return _race(name, folder, note, running)
    if asked != "tune" and any((folder / mark).is_file() for mark in (RANKING, EVENTS, NOTE)):
        return _ranking(name, folder, note, running)
    return _tuning(name, folder, note, running)


def _race(name: str, folder: Path, note: Started | None, running: bool) -> Summary:
    found = Summary(name=name, kind="race", **race_facts(folder))
    if note is None:
        return found
    state: State = "running" if running else found.state
    if state == "interrupted" and not is_race(folder):
        state = "failed"  # before it had anything to show
    started = found.started or _moment(note.created)
    return replace(found, state=state, stoppable=running, task=found.task or _asked(note), started=started)


def _asked(note: Started | None) -> str:
    """The data that was asked for."""
    return str(note.request.get("data") or "") if note is not None else ""


def _ranking(name: str, folder: Path, note: Started | None, running: bool) -> Summary:
    record, problem = _json(folder / RANKING)
    if record and not problem:
        try:
            check_record(record, origin=RANKING)
        except RunError as error:
            problem = " ".join(str(error).split())
    rows = [row for row in _list(record.get("rows")) if isinstance(row, dict)]
    events = json_lines(folder / EVENTS)
    began = next((event for event in events if event.get("event") == "started"), {})
    state: State = "running" if running else _ranking_state(folder, record, events, note)
    best = rows[0] if rows else {}
    metrics = _list(record.get("metrics"))
    environment = record.get("environment") if isinstance(record.get("environment"), dict) else {}
    started = str((environment or {}).get("started") or "") or _moment(
        began.get("time") or (note.created if note is not None else None)
    )
    return Summary(
        name=name,
        kind="ranking",
        state=state,
        task=str(_dict(record.get("task")).get("name") or began.get("task") or _asked(note)),
        best=short_names([str(best["identifier"])])[0] if best.get("identifier") else "",
        score=_number(best.get("score")),
        metric=str(metrics[0]) if metrics else "",
        models=len(rows),
        failed=len(_list(record.get("failures"))),
        seconds=_number(record.get("seconds")),
        started=started,
        modified=_modified(folder),
        stoppable=running,
        problem=problem or _tuning_problem(folder),
    )


def _ranking_state(
    folder: Path, record: Mapping[str, Any], events: list[dict[str, Any]], note: Started | None
) -> State:
    last = events[-1].get("event") if events else None
    if last == "finished" or (last is None and record.get("complete")):
        return "finished"
    if last == "interrupted":
        return "interrupted"
    if note is not None and note.host == platform.node():  # and it is not running any more
        return "interrupted" if record else "failed"
    began = next((event for event in events if event.get("event") == "started"), None)
    if began is not None and began.get("host") == platform.node() and isinstance(began.get("pid"), int):
        return "running" if was_running_at(began["pid"], _number(began.get("time")) or 0.0) else "interrupted"
    return "running" if time.time() - _modified(folder) < QUIET_SECONDS else "interrupted"


def _tuning(name: str, folder: Path, note: Started | None, running: bool) -> Summary:
    places = [path.parent for path in real_files(folder) if path.name in (TUNING, CURVES)]
    places = list(dict.fromkeys(places))
    records = [_tuning_record(place / TUNING)[0] for place in places]
    ends = [json_lines(place / CURVES, last_bytes=TAIL_BYTES) for place in places]
    trials = json_lines(folder / TRIALS)
    fresh = _is_tuning(folder, places, note, running)
    over = bool(places) and all(
        record or any(line.get("event") == "result" for line in lines)
        for record, lines in zip(records, ends, strict=True)
    )
    over = over or bool(trials and not fresh)
    state: State = "finished" if over else "running" if fresh else "interrupted"
    if state == "interrupted" and note is not None and not places:
        state = "failed"
    known = next((record for record in records if record is not None), TuningRecord())
    told = _dict(trials[-1].get("run")) if trials else {}
    model = known.model or str(told.get("model") or "")
    metric, score = _result(known, [line for lines in ends for line in lines])
    methods = list(dict.fromkeys(record.method for record in records if record is not None and record.method))
    return Summary(
        name=name,
        kind="tuning",
        state="running" if running else state,
        task=known.task or _asked(note),
        best=" · ".join(part for part in (short_names([model])[0] if model else "", ", ".join(methods)) if part),
        score=score,
        metric=metric,
        models=max(len(places), len(trials)),
        seconds=known.seconds,
        started=str(known.environment.get("started") or "") or _moment(note.created if note is not None else None),
        modified=_modified(folder),
        stoppable=running,
        problem=_tuning_problem(folder),
    )


def _is_tuning(folder: Path, places: list[Path], note: Started | None, running: bool) -> bool:
    """Whether a process is at work on a tuning: the one that was started here, or one that the curves name."""
    if note is not None and note.host == platform.node():
        return running
    lines = [line for place in places for line in json_lines(place / CURVES) if line.get("event") == "started"]
    here = [line for line in lines if line.get("host") == platform.node() and isinstance(line.get("pid"), int)]
    if any(was_running_at(line["pid"], _number(line.get("time")) or 0.0) for line in here):
        return True
    # One method of a comparison may be over and the next not have begun: then only the time tells.
    return not (here and len(places) == 1) and time.time() - _modified(folder) < QUIET_SECONDS


def _tuning_problem(folder: Path) -> str:
    """What is wrong with the first record of a tuning that cannot be read."""
    for path in real_files(folder):
        if path.name != TUNING:
            continue
        _, problem = _tuning_record(path)
        if problem:
            return f"{path.parent.relative_to(folder)}: {problem}" if path.parent != folder else problem
    return ""


def _tuning_record(path: Path) -> tuple[TuningRecord | None, str]:
    """The record of a tuning, if it can be read, and what is wrong with it."""
    record, problem = _json(path)
    if not record:
        return None, problem
    try:
        found = TuningRecord.from_json(record, origin=TUNING)
        tuning_run("", found, (), origin=TUNING)
    except RunError as error:
        return None, " ".join(str(error).split())
    return found, ""


def _result(record: TuningRecord, lines: list[dict[str, Any]]) -> tuple[str, float | None]:
    """Name and value of the first metric: on test where it is known, else of the last validation."""
    found = plain_metrics(record.saved_metrics)
    found = found or next((_dict(line.get("metrics")) for line in lines if line.get("event") == "result"), {})
    for split in ("test", "validation"):
        for metric, measure in _dict(found.get(split)).items():
            value = _number(_dict(measure).get("value"))
            if value is not None:
                return f"{metric}, {split}", value
    for line in reversed(lines):
        for metric, value in _dict(line.get("metrics")).items() if line.get("event") == "validation" else ():
            if is_number(value):
                return f"{metric}, validation", float(value)
    return "", None


def json_lines(path: Path, *, last_bytes: int = MOST_BYTES) -> list[dict[str, Any]]:
    """The JSON objects of a file, one per line, or those of its last bytes; broken lines are passed over."""
    return parse_lines(read_real(path, last_bytes=last_bytes))


def _json(path: Path) -> tuple[dict[str, Any], str]:
    """What a record holds, and what is wrong with it. A file that is not there holds nothing, and that is fine."""
    if not os.path.lexists(path):
        return {}, ""
    try:
        if path.lstat().st_size > MOST_BYTES:
            return {}, f"{path.name} is too large to be shown here: {path.lstat().st_size:,} bytes."
        record = parse_json(read_real(path), origin=path.name)
    except RunError as error:
        return {}, " ".join(str(error).split())
    return _dict(record), "" if isinstance(record, dict) else f"{path.name} is not the record of a run."


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    return value if is_number(value) else None


def _moment(value: Any) -> str:
    if not is_number(value) or not 0 < value < _LATEST:
        return ""
    return datetime.fromtimestamp(value, UTC).isoformat(timespec="seconds")


def _modified(folder: Path) -> float:
    return max((path.stat().st_mtime for path in real_files(folder)), default=folder.stat().st_mtime)
