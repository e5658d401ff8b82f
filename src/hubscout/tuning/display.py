"""Progress of a run for people: a bar on a terminal, lines elsewhere, nothing where it is not wanted."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from hubscout.tuning.journal import Event, Finished, Note, Observer, Progress, Validated, silent

_SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def display(*, quiet: bool = False, stream: TextIO | None = None, title: str = "tuning") -> Iterator[Observer]:
    """An observer that shows loss parts, the validation metric and the time left, for the time of a `with` block."""
    out = sys.stderr if stream is None else stream
    if quiet:
        yield silent
    elif out.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = (
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
            TextColumn("{task.fields[state]}"),
        )  # fmt: skip
        with Bars(*columns, console=Console(file=out)) as bars:
            yield _Bar(bars, title)
    else:
        yield _Lines(out, title)


def losses_text(event: Progress) -> str:
    """The loss and its parts.

    >>> losses_text(Progress(1, 2, 0.5, {"task": 1.25, "teachers": 0.5}, 0.01, 100.0))
    'loss 1.750 (task 1.250, teachers 0.500)'
    """
    total = f"loss {sum(event.losses.values()):.3f}"
    if len(event.losses) == 1:
        return total
    return f"{total} ({', '.join(f'{name} {value:.3f}' for name, value in event.losses.items())})"


def metrics_text(event: Validated) -> str:
    """The validation metrics, and whether they are the best so far."""
    text = ", ".join(f"{name} {value:.4f}" for name, value in event.metrics.items())
    return f"validation {text}{' (best)' if event.best else ''}"


class _Lines:
    """A line every ten seconds, at every validation and for every note."""

    def __init__(self, stream: TextIO, title: str) -> None:
        self.stream, self.title = stream, title
        self.printed = -_SECONDS_BETWEEN_LINES
        self.started = time.monotonic()
        self.first_step: int | None = None

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if isinstance(event, Note):
            self._print(event.text)
        elif isinstance(event, Validated):
            self._print(f"epoch {event.epoch:.1f}: {metrics_text(event)}")
        elif isinstance(event, Finished):
            self._print(f"{event.step} steps in {event.seconds:.0f} s")
        elif now - self.printed >= _SECONDS_BETWEEN_LINES:
            self.printed = now
            if self.first_step is None:
                self.first_step, self.started = event.step, now
            done = event.step - self.first_step
            left = f", {(event.steps - event.step) * (now - self.started) / done:.0f} s left" if done else ""
            rate = f"{event.samples_per_second:.0f} samples/s"
            self._print(f"step {event.step}/{event.steps}: {losses_text(event)}, {rate}{left}")

    def _print(self, text: str) -> None:
        print(f"{self.title}: {text}", file=self.stream, flush=True)


class _Bar:
    def __init__(self, bars: Any, title: str) -> None:
        self.bars = bars
        self.bar = bars.add_task(title, total=None, state="")
        self.losses = self.metric = ""

    def __call__(self, event: Event) -> None:
        if isinstance(event, Note):
            self.bars.console.print(event.text, highlight=False, markup=False)
            return
        if isinstance(event, Progress):
            self.losses = losses_text(event)
            self.bars.update(self.bar, total=event.steps, completed=event.step)
        elif isinstance(event, Validated):
            self.metric = metrics_text(event)
        self.bars.update(self.bar, state=f"{self.losses} {self.metric}")
