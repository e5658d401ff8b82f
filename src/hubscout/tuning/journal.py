"""`metrics.jsonl`: what happened in a run, one JSON object a line, and the events that a display listens to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hubscout.runs.json_lines import append_line, write_lines


@dataclass(frozen=True)
class Note:
    """Something the user should know."""

    text: str


@dataclass(frozen=True)
class Progress:
    """Steps were done: mean losses since the last report, by part, and what is left."""

    step: int
    steps: int
    epoch: float
    losses: Mapping[str, float]
    learning_rate: float
    samples_per_second: float


@dataclass(frozen=True)
class Validated:
    """The validation metrics after a step."""

    step: int
    epoch: float
    metrics: Mapping[str, float]
    best: bool


@dataclass(frozen=True)
class Finished:
    """The run came to its end."""

    step: int
    seconds: float


Event = Note | Progress | Validated | Finished
Observer = Callable[[Event], None]


def silent(event: Event) -> None:
    """The observer that does nothing."""


@dataclass
class Journal:
    """The lines of `metrics.jsonl`, on disk where there is a folder; kept in memory as the run's curves."""

    path: Path | None = None
    lines: list[dict[str, Any]] = field(default_factory=list)

    def resume(self, lines: list[dict[str, Any]]) -> None:
        """Go back to what was written up to a checkpoint: later lines will be written again."""
        self.lines = list(lines)
        if self.path is not None:
            write_lines(self.path, self.lines)

    def add(self, kind: str, **values: Any) -> None:
        """One line."""
        line = {"event": kind, **{name: _plain(value) for name, value in values.items()}}
        self.lines.append(line)
        if self.path is not None:
            append_line(self.path, line)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
