"""One line about a run, read from its files without opening all of them."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from hubscout.errors import RunError, one_line
from hubscout.metric_texts import metric_text
from hubscout.runs.evaluation_record import achieved
from hubscout.runs.paired_comparison import TOO_FEW_TO_EXPLAIN, any_explains, nothing_explained
from hubscout.runs.race_record import RaceRecord
from hubscout.runs.ranking_storage import check_record
from hubscout.runs.record_types import is_number
from hubscout.runs.row import Row, TaskSummary, count_causes
from hubscout.runs.run_folder import (
    CURVES,
    EVENTS,
    RACE,
    RACE_EVIDENCE,
    RACE_LINES,
    RACE_WINNER,
    RANKING,
    TRIALS,
    TUNING,
)
from hubscout.runs.run_folder import NOTE as HOLDER
from hubscout.runs.texts import short_name
from hubscout.runs.tuning_record import TuningRecord, TuningRun, tuning_run
from hubscout.serve.run_processes import Started, read_note, was_running_at
from hubscout.serve.served_folder import (
    NOTE,
    as_dict,
    as_number,
    is_race,
    json_lines,
    json_record,
    last_written,
    real_files,
)

State = Literal["running", "finished", "interrupted", "failed"]
QUIET_SECONDS = 120
"""A run whose process cannot be looked at counts as running while it wrote something so many seconds ago."""
TAIL_BYTES = 1 << 16
_LATEST = 1e11
"""Seconds since 1970 in the year 5138; calendars end soon after."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What the list says of a run. `models` were ranked, `unranked` says how many were not; `modified` is in seconds.

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
    unranked: str = ""
    seconds: float | None = None
    started: str = ""
    modified: float = 0.0
    stoppable: bool = False
    problem: str = ""
    """What is wrong with the files of the run, or what it failed for."""

    @property
    def score_text(self) -> str:
        """The score as it is shown; empty where there is none."""
        return "" if self.score is None else metric_text(self.metric, self.score)

    @property
    def nothing_yet(self) -> bool:
        """Whether the run ended before it had anything to show."""
        return self.state in {"failed", "interrupted"} and self.models == 0 and not self.problem

    @property
    def search(self) -> str:
        """The text that a search looks at, in small letters."""
        return " ".join((self.name, self.kind, self.state, self.task, self.best, self.metric, self.started)).lower()

    @property
    def moment(self) -> str:
        """When the run was started, or else last written, in ISO form."""
        return self.started or _moment(self.modified)

    @property
    def day(self) -> str:
        """The same to the minute, for people."""
        return self.moment[:16].replace("T", " ")


def summarise(name: str, folder: Path) -> Summary:
    """Read a run folder; where files cannot be read, `problem` says why and the rest is as if they were not there."""
    note = read_note(folder)
    asked = str(note.request.get("command") or "rank") if note is not None else ""
    if is_race(folder) or asked == "race":
        found = _race(name, folder, note)
    elif asked != "tune" and any((folder / mark).is_file() for mark in (RANKING, EVENTS, NOTE)):
        found = _ranking(name, folder, note)
    else:
        found = _tuning(name, folder, note)
    found = replace(found, modified=last_written(folder))
    if note is None:
        return found
    return replace(
        found,
        state="running" if note.running else found.state,
        stoppable=note.running,
        task=found.task or str(note.request.get("data") or ""),
        started=found.started or _moment(note.created),
    )


def _ranking(name: str, folder: Path, note: Started | None) -> Summary:
    record, problem = json_record(folder / RANKING)
    found: dict[str, Any] = {}
    try:
        found = check_record(record, origin=RANKING) if record else {}
    except RunError as error:
        problem = one_line(error)
    rows: tuple[Row, ...] = found.get("rows", ())
    task: TaskSummary | None = found.get("task")
    leader = short_name(rows[0].identifier) if rows else ""
    if task is not None and any_explains([row.odds for row in rows], len(task.target_names)) is False:
        few = nothing_explained(rows) == TOO_FEW_TO_EXPLAIN
        leader = "too few samples to tell" if few else "none explains the labels"
    events = json_lines(folder / EVENTS)
    began = next((event for event in events if event.get("event") == "started"), {})
    last = events[-1] if events else {}
    failed = str(last.get("error") or "") if last.get("event") == "failed" else ""
    return Summary(
        name=name,
        kind="ranking",
        state=_ranking_state(folder, record, began, last.get("event"), note),
        task=(task.name if task is not None else "") or str(began.get("task") or ""),
        best=leader,
        score=rows[0].score if rows else None,
        metric=next(iter(found.get("metrics", ())), ""),
        models=len(rows),
        unranked=count_causes(one.error for one in found.get("failures", ())),
        seconds=found.get("seconds"),
        started=str(found.get("environment", {}).get("started") or "") or _moment(began.get("time")),
        problem=problem or _tunings(folder)[1] or failed,
    )


def _ranking_state(
    folder: Path, record: Mapping[str, Any], began: Mapping[str, Any], last: Any, note: Started | None
) -> State:
    if last == "finished" or (last is None and record.get("complete")):
        return "finished"
    if last in ("interrupted", "failed"):
        return last
    if note is not None and note.host == platform.node():  # and it is not running any more
        return "interrupted" if record else "failed"
    if _is_here(began):
        return "running" if _runs(began) else "interrupted"
    return "running" if _wrote_lately(folder) else "interrupted"


def _race(name: str, folder: Path, note: Started | None) -> Summary:
    race, problem = RaceRecord(), ""
    for line in json_lines(folder / RACE_LINES):
        try:
            race.take(line)
        except RunError as error:
            problem = problem or one_line(error)
    leader = race.final or next(iter(race.leaderboard()), None)
    seen = race.seen(leader) if leader is not None else {}
    metric, score = f"held-out {race.metric}" if race.metric else "", seen[max(seen)].metric if seen else None
    given = _tunings(folder / RACE_WINNER)[0] if race.complete else {}
    for run in given.values():  # what the race has given, and not an arm on its way
        metric, score = _result(run) if achieved(run) is not None else (metric, score)
    state: State = "finished" if race.complete else "running" if _is_held(folder) else "interrupted"
    if state == "interrupted" and note is not None and not is_race(folder):
        state = "failed"  # before it had anything to show
    spent = as_dict(json_record(folder / RACE)[0].get("seconds")).values() if race.complete else ()
    task = as_dict(json_record(folder / RACE_EVIDENCE / RANKING)[0].get("task")).get("name")
    return Summary(
        name=name,
        kind="race",
        state=state,
        task=race.task or (task if isinstance(task, str) else ""),
        best=short_name(leader.model) if leader is not None and (seen or race.complete) else "",
        score=score,
        metric=metric,
        models=len(race.arms),
        seconds=float(sum(value for value in spent if is_number(value))) or None,
        problem=problem,
    )


def _is_held(folder: Path) -> bool:
    """Whether the process that took the folder is at work, as far as can be told from here."""
    holder, _ = json_record(folder / HOLDER)
    pid, since = holder.get("pid"), holder.get("since")
    if not isinstance(pid, int) or not isinstance(since, str):
        return False
    if holder.get("host") != platform.node():
        return _wrote_lately(folder)
    try:
        return was_running_at(pid, datetime.fromisoformat(since).timestamp())
    except (ValueError, OverflowError):
        return False


def _tuning(name: str, folder: Path, note: Started | None) -> Summary:
    places = dict.fromkeys(path.parent for path in real_files(folder) if path.name in (TUNING, CURVES))
    tunings, problem = _tunings(folder)
    ends = [json_lines(place / CURVES, last_bytes=TAIL_BYTES) for place in places]
    trials = json_lines(folder / TRIALS)
    fresh = _is_tuning(folder, places, note)
    over = bool(places) and all(
        place in tunings or any(line.get("event") == "result" for line in lines)
        for place, lines in zip(places, ends, strict=True)
    )
    state: State = "finished" if over or (trials and not fresh) else "running" if fresh else "interrupted"
    if state == "interrupted" and note is not None and not places:
        state = "failed"
    known = next(iter(tunings.values()), TuningRun(name=""))
    model = known.model or str(as_dict(trials[-1].get("run")).get("model") or "" if trials else "")
    methods = dict.fromkeys(record.made_by for record in tunings.values() if record.made_by)
    metric, score = _result(known)
    if not metric:
        with suppress(RunError):  # a line that is none is passed over
            metric, score = _result(tuning_run("", TuningRecord(), [line for lines in ends for line in lines]))
    return Summary(
        name=name,
        kind="tuning",
        state=state,
        task=known.task,
        best=" · ".join(part for part in (short_name(model) if model else "", ", ".join(methods)) if part),
        score=score,
        metric=metric,
        models=max(len(places), len(trials)),
        seconds=known.seconds,
        started=str(known.environment.get("started") or ""),
        problem=problem,
    )


def _is_tuning(folder: Path, places: Iterable[Path], note: Started | None) -> bool:
    """Whether a process is at work on a tuning: the one that was started here, or one that the curves name."""
    if note is not None and note.host == platform.node():
        return note.running
    lines = [[line for line in json_lines(place / CURVES) if line.get("event") == "started"] for place in places]
    here = [line for found in lines for line in found if _is_here(line)]
    if any(_runs(line) for line in here):
        return True
    # One method of a comparison may be over and the next not have begun: then only the time tells.
    return not (here and len(lines) == 1) and _wrote_lately(folder)


def _tunings(folder: Path) -> tuple[dict[Path, TuningRun], str]:
    """The records of tunings that can be read, by their places, and what is wrong with the first that cannot."""
    found, first_problem = {}, ""
    for path in real_files(folder):
        if path.name != TUNING:
            continue
        record, problem = json_record(path)
        try:
            if record:
                found[path.parent] = tuning_run("", TuningRecord.from_json(record, origin=TUNING), (), origin=TUNING)
        except RunError as error:
            problem = one_line(error)
        if problem and path.parent != folder:
            problem = f"{path.parent.relative_to(folder)}: {problem}"
        first_problem = first_problem or problem
    return found, first_problem


def _result(run: TuningRun) -> tuple[str, float | None]:
    """Name and value of the first metric: on test where it is known, else of the last validation."""
    if (found := achieved(run)) is not None:
        return f"{found.metric}, {found.split}", found.value
    for metric, value in run.validation[-1]["metrics"].items() if run.validation else ():
        return f"{metric}, validation", float(value)
    return "", None


def _is_here(started: Mapping[str, Any]) -> bool:
    """Whether a line names a process of this machine."""
    return started.get("host") == platform.node() and isinstance(started.get("pid"), int)


def _runs(started: Mapping[str, Any]) -> bool:
    return was_running_at(started["pid"], as_number(started.get("time")) or 0.0)


def _wrote_lately(folder: Path) -> bool:
    return time.time() - last_written(folder) < QUIET_SECONDS


def _moment(value: Any) -> str:
    if not is_number(value) or not 0 < value < _LATEST:
        return ""
    return datetime.fromtimestamp(value, UTC).isoformat(timespec="seconds")
