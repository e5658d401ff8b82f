"""What a run tells about itself while it works, and how that is said.

Events are plain, picklable values, so that they may come from another thread, process or machine; an observer is
any function that takes one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hubscout.metric_texts import metric_text
from hubscout.runs.texts import counted


@dataclass(frozen=True)
class Event:
    """Something happened while `model` was worked on; an empty name is the one model that a tuning is about."""

    model: str


@dataclass(frozen=True)
class Downloading(Event):
    """A model is being fetched from its hub: `bytes_done` of the `bytes_total` that were missing here have come."""

    bytes_done: int
    bytes_total: int


@dataclass(frozen=True)
class Message(Event):
    """A sentence that the user should see: memory ran out, a broken cache file is rebuilt, a sample is skipped."""

    text: str


@dataclass(frozen=True)
class Started(Event):
    """Features of a model are being extracted: `rows` samples in all, of which `rows_done` come from the cache."""

    rows: int
    rows_done: int = 0


@dataclass(frozen=True)
class Advanced(Event):
    """`rows` more samples went through the model."""

    rows: int


@dataclass(frozen=True)
class Progress(Event):
    """Steps of tuning were done: mean losses since the last report, by part, and what is left."""

    step: int
    steps: int
    epoch: float
    losses: Mapping[str, float]
    learning_rate: float
    samples_per_second: float


@dataclass(frozen=True)
class Validated(Event):
    """The validation metrics after a step of tuning."""

    step: int
    epoch: float
    metrics: Mapping[str, float]
    best: bool


@dataclass(frozen=True)
class Finished(Event):
    """A model is done, after so many `steps` where it was tuned; or it could not be run, for the reason in `error`."""

    seconds: float
    error: str | None = None
    steps: int | None = None
    cause: str = "failed"
    """What a model with an `error` is said to be, as in the table: one over the limits has not failed."""


@dataclass(frozen=True)
class Raced(Event):
    """Something happened in a race: the line that was written to its `race.jsonl`."""

    line: Mapping[str, Any]


Observer = Callable[[Event], None]


def silent(event: Event) -> None:
    """The observer that looks away."""


@dataclass
class Log:
    """Passes events on, and keeps the messages for the result."""

    model: str
    observer: Observer
    messages: list[str] = field(default_factory=list)

    def tell(self, text: str) -> None:
        self.messages.append(text)
        self.observer(Message(self.model, text))


def losses_text(event: Progress) -> str:
    """The loss and its parts.

    >>> losses_text(Progress("", 1, 2, 0.5, {"task": 1.25, "teachers": 0.5}, 0.01, 100.0))
    'loss 1.750 (task 1.250, teachers 0.500)'
    """
    total = f"loss {sum(event.losses.values()):.3f}"
    if len(event.losses) == 1:
        return total
    return f"{total} ({', '.join(f'{name} {value:.3f}' for name, value in event.losses.items())})"


def metrics_text(event: Validated) -> str:
    """The validation metrics, and whether they are the best so far."""
    text = ", ".join(f"{name} {metric_text(name, value)}" for name, value in event.metrics.items())
    return f"validation {text}{' (best)' if event.best else ''}"


def finished_text(event: Finished) -> str:
    """How the work on a model ended; of a failure the first sentence, since the table has the whole reason.

    >>> finished_text(Finished("a", 2.04)), finished_text(Finished("a", 0.0, "No such model. Known: b, c."))
    ('done in 2.0 s', 'failed: No such model')
    >>> finished_text(Finished("a", 0.0, "25.6M parameters, of at most 10M", cause="over the limits"))
    'over the limits: 25.6M parameters, of at most 10M'
    >>> finished_text(Finished("", 61.2, steps=300))
    '300 steps in 61 s'
    """
    if event.error:
        return f"{event.cause}: {event.error.partition('. ')[0].rstrip('.')}"
    return (
        f"done in {event.seconds:.1f} s"
        if event.steps is None
        else f"{counted(event.steps, 'step')} in {event.seconds:.0f} s"
    )


def download_text(bytes_done: int, bytes_total: int, seconds: float) -> str:
    """How far a download is after some seconds, in words.

    >>> download_text(0, 346_000_000, 0.0)
    'downloading 346 MB'
    >>> download_text(1_200_000, 2_400_000, 3.0)
    'downloaded 1.2 of 2.4 MB, 0.4 MB/s, 3 s left'
    >>> download_text(900, 900, 1.0)
    'downloaded 0.001 MB in 1 s'
    """
    total = _megabytes(bytes_total)
    if bytes_done == 0:
        return f"downloading {total} MB"
    if bytes_done >= bytes_total:
        return f"downloaded {total} MB in {seconds:.0f} s"
    speed = bytes_done / max(seconds, 1e-9)
    left = (bytes_total - bytes_done) / speed
    return f"downloaded {_megabytes(bytes_done)} of {total} MB, {speed_text(speed)}, {left:.0f} s left"


def speed_text(bytes_per_second: float) -> str:
    """Megabytes per second, or kilobytes where those would be none."""
    if bytes_per_second < 1e5:
        return f"{bytes_per_second / 1e3:.0f} kB/s"
    return f"{bytes_per_second / 1e6:.1f} MB/s"


def _megabytes(count: int) -> str:
    digits = 0 if count >= 1e7 else 1 if count >= 1e5 else 3
    return f"{count / 1e6:.{digits}f}"
