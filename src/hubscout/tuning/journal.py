"""`metrics.jsonl`: what happened in a run, one JSON object per line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hubscout.runs.json_lines import append_line, write_lines


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
