"""What an extraction tells about itself while it runs.

Events are plain, picklable values, so that they may come from another thread, process or machine; an observer is
any function that takes one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Event:
    """Something happened while `model` was worked on."""

    model: str


@dataclass(frozen=True)
class Started(Event):
    """A model starts: `rows` samples in all, of which `rows_done` come from the cache."""

    rows: int
    rows_done: int = 0


@dataclass(frozen=True)
class Advanced(Event):
    """`rows` more samples went through the model."""

    rows: int


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
class Finished(Event):
    """A model is done, or could not be run, for the reason in `error`."""

    seconds: float
    error: str | None = None


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
