"""Progress for people: bars on a terminal, lines elsewhere, nothing where it is not wanted."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from hubscout.credentials import strip_credentials
from hubscout.runs.events import (
    Advanced,
    Downloading,
    Event,
    Finished,
    Message,
    Observer,
    Progress,
    Raced,
    Started,
    Validated,
    download_text,
    finished_text,
    losses_text,
    metrics_text,
    silent,
    speed_text,
)
from hubscout.runs.race_display import race_line, race_table
from hubscout.runs.race_record import RaceRecord
from hubscout.runs.texts import LONGEST_IN_A_LINE, names_by_model

if TYPE_CHECKING:
    from rich.progress import Progress as Bars


@contextmanager
def display(
    models: Sequence[str] = (), *, title: str = "", quiet: bool = False, stream: TextIO | None = None
) -> Iterator[Observer]:
    """An observer that shows how far a run has come, for the time of a `with` block.

    Bars where `stream` (standard error) is a terminal, otherwise plain lines.

    Args:
        models: identifiers of the models that will be worked on.
        title: what the tuning of one model is called.
        quiet: show nothing.
        stream: where to write; standard error if None.

    """
    out = sys.stderr if stream is None else stream
    if quiet:
        yield silent
    elif out.isatty():
        with _bars(out, transient=not title) as bars:
            yield BarDisplay(bars, models, title)
    else:
        yield LineDisplay(out, models, title)


@contextmanager
def shown(
    observer: Observer | None,
    progress: bool,
    models: Sequence[str] = (),
    *,
    title: str = "",
    notes: Iterable[str] = (),
) -> Iterator[Observer | None]:
    """The observer of a call in Python: the one given, or a display where a person looks on.

    That is a terminal, which has bars, or a notebook, which has lines. A program, a log file, a process that is not
    the first of several are told nothing.

    Args:
        observer: the caller's own; it hears everything and nothing is shown.
        progress: whether to show anything.
        models: identifiers of the models that will be worked on.
        title: what the tuning of one model is called.
        notes: what to say first.

    """
    notebook = _in_notebook()
    watched = (notebook or sys.stderr.isatty()) and os.environ.get("RANK", "0") == "0"
    if observer is not None or not progress or not watched:
        yield observer
        return
    # A notebook puts standard error on a red ground.
    with display(models, title=title, stream=sys.stdout if notebook else None) as shower:
        for note in notes:
            shower(Message("", note))
        yield shower


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


@dataclass
class _Count:
    """How far one model is, in samples or steps. `since` is when the first that is not from the cache was started."""

    total: int
    done: int
    since: float
    run: int = 0

    def advance(self, count: int) -> None:
        self.done += count
        self.run += count

    def per_second(self, now: float) -> float:
        return self.run / max(now - self.since, 1e-9)

    def left(self, now: float) -> str:
        missing = self.total - self.done
        return f", {missing / self.per_second(now):.0f} s left" if self.run and missing > 0 else ""


@dataclass
class LineDisplay:
    """A line when a model starts and ends, one every ten seconds between, at every validation, and every message."""

    stream: TextIO
    models: Sequence[str] = ()
    title: str = ""
    seconds_between: float = 10.0

    def __post_init__(self) -> None:
        self._names = names_by_model(self.models, room=LONGEST_IN_A_LINE)
        self._current: dict[str, _Count] = {}
        self._downloads: dict[str, float] = {}
        self._seen: dict[str, int] = {}
        self._race = RaceRecord()
        self._last = time.monotonic()

    def __call__(self, event: Event) -> None:
        """Print what is worth a line."""
        now = time.monotonic()
        due = now - self._last >= self.seconds_between
        state = self._current.get(event.model)
        match event:
            case Started():
                self._current[event.model] = _Count(event.rows, event.rows_done, now)
                cached = f", {event.rows_done} of them cached" if event.rows_done else ""
                self._print(event.model, f"{event.rows} samples{cached}")
            case Advanced() if state is not None:
                state.advance(event.rows)
                if due:
                    speed = f"{state.per_second(now):.1f}/s{state.left(now)}"
                    self._print(event.model, f"{state.done}/{state.total} samples, {speed}")
            case Progress():
                if state is None or event.step < state.done:  # it may have started anew
                    state = self._current[event.model] = _Count(event.steps, event.step, now)
                    due = True
                state.advance(event.step - state.done)
                state.total = event.steps  # a run under a limit of time may become shorter or longer
                if due:
                    speed = f"{event.samples_per_second:.0f} samples/s{state.left(now)}"
                    self._print(event.model, f"step {event.step}/{event.steps}: {losses_text(event)}, {speed}")
            case Validated():
                self._print(event.model, f"epoch {event.epoch:.1f}: {metrics_text(event)}")
            case Downloading():
                began = event.bytes_done == 0 or event.model not in self._downloads
                since = self._downloads[event.model] = now if began else self._downloads[event.model]
                if began or event.bytes_done >= event.bytes_total or due:
                    self._print(event.model, download_text(event.bytes_done, event.bytes_total, now - since))
            case Message():
                self._print(event.model, event.text)
            case Raced():
                self._race.take(event.line)
                if said := race_line(event.line, self._race):
                    self._print("", said)
            case Finished():
                self._current.pop(event.model, None)
                self._print(event.model, finished_text(event))

    def _print(self, model: str, text: str) -> None:
        self._last = time.monotonic()
        place = self._seen.setdefault(model, len(self._seen) + 1) if model else 0
        name = self._names.get(model, model)
        start = f"[{place}/{max(len(self.models), place)}] {name}" if model else self.title
        print(strip_credentials(f"{start}: {text}" if start else text), file=self.stream, flush=True)


class BarDisplay:
    """A bar for all models, one for each that is being extracted, one for a tuning; a table of the arms of a race."""

    def __init__(self, bars: Any, models: Sequence[str], title: str = "") -> None:
        self._bars = bars
        self._names = names_by_model(models, room=LONGEST_IN_A_LINE)
        self._race = RaceRecord()
        self._all = bars.add_task("models", total=len(models), state="") if models or not title else None
        self._current: dict[str, tuple[Any, _Count]] = {}
        self._downloads: dict[str, tuple[Any, float]] = {}
        self._finished: set[str] = set()
        self._tuning = bars.add_task(title, total=None, state="") if title else None
        self._losses = self._metrics = ""

    def __call__(self, event: Event) -> None:
        """Move the bars."""
        now = time.monotonic()
        match event:
            case Started():
                self._drop(event.model)
                bar = self._bars.add_task(self._name(event), total=event.rows, completed=event.rows_done, state="")
                self._current[event.model] = (bar, _Count(event.rows, event.rows_done, now))
            case Advanced() if event.model in self._current:
                bar, state = self._current[event.model]
                state.advance(event.rows)
                self._bars.update(bar, advance=event.rows, state=f"{state.per_second(now):.1f}/s")
            case Progress():
                self._losses = losses_text(event)
                self._show_tuning(total=event.steps, completed=event.step)
            case Validated():
                self._metrics = metrics_text(event)
                self._show_tuning()
            case Downloading() if event.model not in self._current:  # on another machine the model may run already
                self._show_download(event, now)
            case Message():
                self._say(self._name(event), event.text, "yellow")
            case Raced():
                self._race.take(event.line)
                self._bars.above = race_table(self._race) if self._race.arms else None
            case Finished():
                self._drop(event.model)
                if event.model:
                    self._finished.add(event.model)
                if self._all is not None:
                    self._bars.update(self._all, completed=len(self._finished))
                if event.error:
                    self._say(self._name(event), finished_text(event), "red" if event.cause == "failed" else "yellow")

    def _name(self, event: Event) -> str:
        return self._names.get(event.model, event.model)

    def _say(self, model: str, text: str, style: str) -> None:
        self._bars.console.print(f"{model}: {text}" if model else text, style=style, highlight=False, markup=False)

    def _show_tuning(self, **where: int) -> None:
        if self._tuning is None:
            self._tuning = self._bars.add_task("tuning", total=None, state="")
        self._bars.update(self._tuning, state=f"{self._losses} {self._metrics}", **where)

    def _show_download(self, event: Downloading, now: float) -> None:
        if event.bytes_done == 0 or event.model not in self._downloads:
            self._drop(event.model)
            total = max(1, round(event.bytes_total / 1e6))
            name = f"{self._name(event)}: download, MB" if event.model else "download, MB"
            self._downloads[event.model] = (self._bars.add_task(name, total=total, state=""), now)
        bar, since = self._downloads[event.model]
        speed = speed_text(event.bytes_done / max(now - since, 1e-9))
        self._bars.update(bar, completed=round(event.bytes_done / 1e6), state=speed)
        if event.bytes_done >= event.bytes_total:
            self._drop(event.model)

    def _drop(self, model: str) -> None:
        for bars in (self._current, self._downloads):
            if model in bars:
                self._bars.remove_task(bars.pop(model)[0])


@contextmanager
def _bars(stream: TextIO, *, transient: bool) -> Iterator[Bars]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    class BarsBelow(Bars):
        """Bars, with a table above them where there is one."""

        above: Any = None

        def get_renderables(self) -> Iterator[Any]:
            if self.above is not None:
                yield self.above
            yield from super().get_renderables()

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[state]}", markup=False),
    )
    console = Console(file=stream)
    # A model may take minutes: the pace of the last 30 seconds, which rich goes by, is unknown most of the time.
    with BarsBelow(*columns, console=console, transient=transient, speed_estimate_period=86_400) as bars:
        yield bars
