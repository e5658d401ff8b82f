"""`tuning.json`: what a tuning was and how well the model does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from hubscout.credentials import strip_credentials
from hubscout.errors import RunError
from hubscout.runs.atomic_files import write_atomically
from hubscout.runs.file_names import CURVES, TUNING
from hubscout.runs.json_files import read_json
from hubscout.runs.json_lines import write_lines
from hubscout.runs.record_types import check_types
from hubscout.runs.versions import Migrations, in_version

FORM = "hubscout-tuning"
VERSION = 1
MIGRATIONS: Migrations = {}

Interval = tuple[float, float, float]
"""A value and the ends of its interval."""
Metrics = Mapping[str, Mapping[str, Interval]]
"""Split → metric → value."""


@dataclass(frozen=True, kw_only=True)
class TuningRecord:
    """One tuning of one model. `merged_metrics` are of the network in the folder where that is not the tuned one."""

    task: str = ""
    task_fingerprint: str = ""
    kind: str = ""
    target: str = ""
    teachers: tuple[str, ...] = ()
    method: str = ""
    metrics: Metrics = field(default_factory=dict)
    merged_metrics: Metrics | None = None
    best_step: int | None = None
    steps: int = 0
    notes: tuple[str, ...] = ()
    warning: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Samples of each split."""
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def saved_metrics(self) -> Metrics:
        """What the network in the folder achieves."""
        return self.metrics if self.merged_metrics is None else self.merged_metrics

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        merged = None if self.merged_metrics is None else plain_metrics(self.merged_metrics)
        return asdict(self) | {
            "teachers": list(self.teachers),
            "metrics": plain_metrics(self.metrics),
            "merged_metrics": merged,
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, record: Any, *, origin: str = TUNING) -> TuningRecord:
        """The inverse of what `write_tuning` puts into the file; a `RunError` names what is wrong."""
        known = {part.name for part in fields(cls)}
        values = {k: v for k, v in in_version(record, FORM, VERSION, MIGRATIONS, origin=origin).items() if k in known}
        for name in ("teachers", "notes"):
            if isinstance(values.get(name), list):
                values[name] = tuple(values[name])
        for name in ("metrics", "merged_metrics"):
            if values.get(name) is not None:
                values[name] = read_metrics(values[name], origin=f"{origin}: {name}")
        found = cls(**values)
        check_types(found, origin)
        return found


def plain_metrics(metrics: Metrics) -> dict[str, Any]:
    """Metrics as JSON has them."""
    return {
        split: {name: dict(zip(("value", "low", "high"), interval, strict=True)) for name, interval in found.items()}
        for split, found in metrics.items()
    }


def read_metrics(record: Any, *, origin: str) -> dict[str, dict[str, Interval]]:
    """The inverse of `plain_metrics`."""
    try:
        return {
            split: {name: (one["value"], one["low"], one["high"]) for name, one in found.items()}
            for split, found in record.items()
        }
    except (TypeError, KeyError, AttributeError) as error:
        raise RunError(f"{origin} cannot be read: {error!r}.") from error


def write_tuning(folder: Path, record: TuningRecord, curves: Iterable[Mapping[str, Any]]) -> None:
    """What was run and how it went, without the weights: what a report is made from."""
    text = json.dumps({"format": FORM, "version": VERSION, **record.to_json()}, indent=1, ensure_ascii=False)
    write_atomically(folder / TUNING, strip_credentials(text) + "\n")
    write_lines(folder / CURVES, curves)


def read_tuning(folder: Path) -> TuningRecord:
    """The record of the tuned model in a folder."""
    path = folder / TUNING
    if not path.is_file():
        raise RunError(f"{folder} is no folder of a tuned model: it has no {TUNING}. `hubscout tune --out` makes one.")
    return TuningRecord.from_json(read_json(path), origin=str(path))
