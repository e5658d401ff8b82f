"""What a run tells about itself while it works.

Events are plain, picklable values, so that they may come from another thread, process or machine; an observer is
any function that takes one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


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
