"""The run folder of a ranking while it is being made: what is finished is on disk at once, and never becomes less.

`ranking.json` is written anew after every model (`complete` is false until the end) and `events.jsonl` gets one line
per event, so that a kill loses one model at most and others can watch; `scores.parquet` comes at the end. One process
at a time writes a folder. Rankings of the same data with the same settings that were made apart are merged into one.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hubscout.errors import OtherRunError, RunError
from hubscout.interrupts import uninterrupted
from hubscout.runs.events import Advanced, Event, Observer, Started
from hubscout.runs.files import append_line, why_not_written
from hubscout.runs.profiler import step
from hubscout.runs.ranking import Ranking
from hubscout.runs.ranking_storage import load_ranking, save_ranking
from hubscout.runs.row import Row
from hubscout.runs.run_folder import EVENTS, PREVIOUS_RANKING, RANKING, FolderLock

TELL_SECONDS = 2.0
"""How often the folder is told how many samples are done."""
_WAY_OUT = "Choose another folder, or overwrite it (overwrite=True, --overwrite)."


class Journal:
    """Writes a run folder; without a folder it keeps nothing. `open` it, `begin`, and `close` it in the end."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.problem: str | None = None
        """Why the last writing failed."""
        self._lock = None if folder is None else FolderLock(folder)
        self._kept: tuple[Row, ...] = ()
        self._to_replace = False

    def open(self, *, task: str, settings: Mapping[str, Any], overwrite: bool) -> Ranking | None:
        """Take the folder for this process, and give back the ranking that is there, to go on from.

        A folder that holds the ranking of another configuration is left alone unless `overwrite` says otherwise. Then
        nothing is given back, and what was there stays until there is something to put in its place.
        """
        if self.folder is None or self._lock is None:
            return None
        self._lock.take()
        if not (self.folder / RANKING).exists():
            return None
        if overwrite:
            self._to_replace = True
            return None
        try:
            earlier = load_ranking(self.folder)
        except RunError as error:
            raise RunError(f"{error} {_WAY_OUT}") from error
        different = differences(earlier, task, settings)
        if different:
            raise OtherRunError(f"{self.folder} holds another ranking ({'; '.join(different)}). {_WAY_OUT}")
        return earlier

    def there(self) -> Ranking | None:
        """Whatever ranking the folder holds, also one that is to be replaced; None where it cannot be read."""
        try:
            return None if self.folder is None else load_ranking(self.folder)
        except RunError:
            return None

    def begin(self, kept: Sequence[Row] = ()) -> None:
        """Start writing. `kept` are rows of the folder that no ranking without them may replace."""
        self._kept = tuple(kept)
        if self.folder is None:
            return
        try:
            (self.folder / EVENTS).write_text("", encoding="utf-8")
        except OSError as error:
            raise RunError(f"The run folder {self.folder} cannot be written: {error.strerror}.") from error

    def close(self) -> None:
        """Let the folder go."""
        if self._lock is not None:
            self._lock.release()

    def note(self, event: str, **facts: Any) -> None:
        """Append one event."""
        if self.folder is None:
            return
        try:
            append_line(self.folder / EVENTS, {"time": round(time.time(), 3), "event": event, **facts})
        except (OSError, TypeError, ValueError) as error:
            self.problem = why_not_written(error)

    def watched(self, observer: Observer | None) -> Observer | None:
        """The observer, which also tells the folder now and then how many samples of a model are done."""
        if self.folder is None:
            return observer
        done: dict[str, int] = {}
        rows: dict[str, int] = {}
        last = time.monotonic()

        def watch(event: Event) -> None:
            nonlocal last
            if isinstance(event, Started):
                done[event.model], rows[event.model] = event.rows_done, event.rows
            elif isinstance(event, Advanced) and event.model in done:
                done[event.model] += event.rows
                if time.monotonic() - last > TELL_SECONDS:
                    last = time.monotonic()
                    self.note("model-advanced", model=event.model, n=done[event.model], rows=rows[event.model])
            if observer is not None:
                observer(event)

        return watch

    def keep(self, ranking: Ranking, *, more_to_come: bool = False) -> None:
        """Write the ranking as it stands; where that fails (a full disk), the work goes on and `problem` says why.

        Args:
            ranking: all that is finished.
            more_to_come: whether it will be written again, with more models.

        """
        if self.folder is None:
            return
        self.problem = self._would_lose(ranking)
        if self.problem is not None:
            return
        try:
            with uninterrupted(), step("write"):
                self._write(ranking, self.folder, more_to_come)
        except Exception as error:  # whatever it is, hours of work on other models must not end with it
            self.problem = why_not_written(error)

    def _write(self, ranking: Ranking, folder: Path, more_to_come: bool) -> None:
        if self._to_replace:
            shutil.copyfile(folder / RANKING, folder / PREVIOUS_RANKING)
            self._to_replace = False
        save_ranking(ranking, folder, more_to_come=more_to_come)

    def _would_lose(self, ranking: Ranking) -> str | None:
        """Why the ranking must not take the place of what is in the folder; None if it may."""
        if self._to_replace and not ranking.rows:
            return "no model could be ranked, so the ranking that is there stays"
        now = {row.identifier: row for row in ranking.rows}
        # Until the end, growing subsets have models on few samples that were scored on many before.
        lost = [
            row.identifier
            for row in self._kept
            if row.identifier not in now or (not ranking.complete and now[row.identifier].n < row.n)
        ]
        if not lost:
            return None
        return f"the ranking there would lose {', '.join(lost[:3])}{' and others' if len(lost) > 3 else ''}"


def differences(earlier: Ranking, task: str, settings: Mapping[str, Any]) -> list[str]:
    """In which data and settings an earlier ranking differs, in words; empty where it does not."""
    found = []
    if earlier.task.fingerprint != task:
        found.append(f"of the task {earlier.task.name!r}, whose data is not this data")
    plain = json.loads(json.dumps(settings))
    for name in sorted({*plain, *earlier.settings}):
        there, here = earlier.settings.get(name), plain.get(name)
        if there != here:
            found.append(f"{name} is {there!r} there and {here!r} here")
    return found


def merge_rankings(rankings: Sequence[Ranking]) -> Ranking:
    """One ranking of all the models of several rankings.

    Args:
        rankings: two or more, of the same data with the same settings.

    Returns:
        The ranking with every model once: of two rows of a model the one from more samples, else the later one.
        Probabilities are those among all models. A model that failed in one run and was ranked in another is ranked.

    Raises:
        RunError: their data or settings differ, or a metric compares the models of a run with each other.

    Example:
        >>> merge_rankings([Ranking.load("a/"), Ranking.load("b/")]).save("c/")  # doctest: +SKIP

    """
    from hubscout.metrics import METRICS

    if len(rankings) < 2:
        raise RunError(f"Two rankings or more can be merged; {len(rankings)} came.")
    first = rankings[0]
    for number, other in enumerate(rankings[1:], start=2):
        if found := differences(other, first.task.fingerprint, first.settings):
            raise RunError(f"Ranking {number} has other data or settings than the first ({'; '.join(found)}).")
    together = [name for name in first.metrics if METRICS[name].combine is not None]
    if together:
        raise RunError(
            f"The metric {together[0]!r} compares the models of one run with each other: rank them together instead."
        )
    rows: dict[str, Row] = {}
    for row in (row for ranking in rankings for row in ranking):
        if row.identifier not in rows or row.n >= rows[row.identifier].n:
            rows[row.identifier] = row
    failures = {one.identifier: one for ranking in rankings for one in ranking.failures if one.identifier not in rows}
    notes = tuple(dict.fromkeys(note for ranking in rankings for note in ranking.task.notes))
    return replace(
        first,
        task=replace(first.task, notes=notes),
        rows=tuple(rows.values()),
        failures=tuple(failures.values()),
        stages=(),
        seconds=sum(ranking.seconds for ranking in rankings),
        complete=all(ranking.complete for ranking in rankings),
    )
