"""Progress for people: bars on a terminal, lines elsewhere, nothing where it is not wanted."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from hubscout.credentials import strip_credentials
from hubscout.features.progress import Advanced, Downloading, Event, Finished, Message, Observer, Started, silent
from hubscout.hubs.downloading import download_text, speed_text

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

_SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def display(models: int, *, quiet: bool = False, stream: TextIO | None = None) -> Iterator[Observer]:
    """An observer that shows how far `models` models have come, for the time of a `with` block.

    Bars where `stream` (standard error) is a terminal, otherwise plain lines; nothing if `quiet`.
    """
    out = sys.stderr if stream is None else stream
    if quiet:
        yield silent
    elif out.isatty():
        with _bars(out) as progress:
            yield BarDisplay(progress, models)
    else:
        yield LineDisplay(out, models)


@dataclass
class _Model:
    """Where one model stands. `since` is when its first sample that is not from the cache was started."""

    rows: int
    done: int
    since: float
    run: int = 0

    def samples_per_second(self, now: float) -> float:
        return self.run / max(now - self.since, 1e-9)

    def seconds_left(self, now: float) -> float | None:
        return (self.rows - self.done) / self.samples_per_second(now) if self.run else None


@dataclass
class _Download:
    """How far the download of a model is, in bytes, and when it began."""

    done: int
    total: int
    since: float

    @property
    def complete(self) -> bool:
        return self.done >= self.total

    def speed(self, now: float) -> str:
        return speed_text(self.done / max(now - self.since, 1e-9))


class LineDisplay:
    """A line when a model starts and ends, one every ten seconds between, and every message."""

    def __init__(self, stream: TextIO, models: int, *, seconds_between: float = _SECONDS_BETWEEN_LINES) -> None:
        self._stream = stream
        self._models = models
        self._seconds_between = seconds_between
        self._current: dict[str, _Model] = {}
        self._downloads: dict[str, float] = {}
        self._seen: dict[str, int] = {}
        self._last = time.monotonic()

    def __call__(self, event: Event) -> None:
        """Print what is worth a line."""
        now = time.monotonic()
        if isinstance(event, Started):
            self._current[event.model] = _Model(event.rows, event.rows_done, now)
            cached = f", {event.rows_done} of them cached" if event.rows_done else ""
            self._print(event.model, f"{event.rows} samples{cached}")
        elif isinstance(event, Advanced) and (state := self._current.get(event.model)):
            state.done += event.rows
            state.run += event.rows
            if now - self._last >= self._seconds_between:
                self._print(event.model, _speed(state, now))
        elif isinstance(event, Downloading):
            began = event.bytes_done == 0 or event.model not in self._downloads
            since = now if began else self._downloads[event.model]
            self._downloads[event.model] = since
            if began or event.bytes_done >= event.bytes_total or now - self._last >= self._seconds_between:
                self._print(event.model, download_text(event.bytes_done, event.bytes_total, now - since))
        elif isinstance(event, Message):
            self._print(event.model, event.text)
        elif isinstance(event, Finished):
            self._current.pop(event.model, None)
            self._print(event.model, f"failed: {event.error}" if event.error else f"done in {event.seconds:.1f} s")

    def _print(self, model: str, text: str) -> None:
        place = self._seen.setdefault(model, len(self._seen) + 1)
        self._last = time.monotonic()
        line = strip_credentials(f"[{place}/{max(self._models, place)}] {model}: {text}")
        print(line, file=self._stream, flush=True)


class BarDisplay:
    """A bar for all models and one for each that is running."""

    def __init__(self, progress: Progress, models: int) -> None:
        self._progress = progress
        self._all = progress.add_task("models", total=models, speed="")
        self._current: dict[str, tuple[TaskID, _Model | _Download]] = {}
        self._finished: set[str] = set()

    def __call__(self, event: Event) -> None:
        """Move the bars."""
        now = time.monotonic()
        if isinstance(event, Started):
            self._drop(event.model)
            bar = self._progress.add_task(event.model, total=event.rows, completed=event.rows_done, speed="")
            self._current[event.model] = (bar, _Model(event.rows, event.rows_done, now))
        elif isinstance(event, Downloading):
            self._show_download(event, now)
        elif isinstance(event, Advanced) and event.model in self._current:
            bar, state = self._current[event.model]
            if isinstance(state, _Model):
                state.done += event.rows
                state.run += event.rows
                self._progress.update(bar, advance=event.rows, speed=f"{state.samples_per_second(now):.1f}/s")
        elif isinstance(event, Message):
            self._progress.console.print(f"{event.model}: {event.text}", style="yellow", highlight=False, markup=False)
        elif isinstance(event, Finished):
            self._drop(event.model)
            self._finished.add(event.model)
            self._progress.update(self._all, completed=len(self._finished))
            if event.error:
                text = f"{event.model}: failed: {event.error}"
                self._progress.console.print(text, style="red", highlight=False, markup=False)

    def _show_download(self, event: Downloading, now: float) -> None:
        if event.bytes_done == 0 or event.model not in self._current:
            self._drop(event.model)
            total = max(1, round(event.bytes_total / 1e6))
            bar = self._progress.add_task(f"{event.model}: download, MB", total=total, speed="")
            self._current[event.model] = (bar, _Download(0, event.bytes_total, now))
        bar, state = self._current[event.model]
        if not isinstance(state, _Download):  # on another machine the model runs already
            return
        state.done = event.bytes_done
        self._progress.update(bar, completed=round(event.bytes_done / 1e6), speed=state.speed(now))
        if state.complete:
            self._drop(event.model)

    def _drop(self, model: str) -> None:
        if model in self._current:
            self._progress.remove_task(self._current.pop(model)[0])


def _speed(state: _Model, now: float) -> str:
    left = state.seconds_left(now)
    rest = "" if left is None else f", {left:.0f} s left"
    return f"{state.done}/{state.rows} samples, {state.samples_per_second(now):.1f}/s{rest}"


@contextmanager
def _bars(stream: TextIO) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns: tuple[ProgressColumn, ...] = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=Console(file=stream), transient=True) as progress:
        yield progress
