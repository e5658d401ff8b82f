"""Tuning runs on disk: the curves of `metrics.jsonl` and the results of `tuning.json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hubscout.runs.file_names import CURVES, TRIALS, TUNING
from hubscout.runs.json_lines import read_lines
from hubscout.runs.record_types import check_types, is_number
from hubscout.runs.tuning_record import Metrics, TuningRecord, read_metrics, read_tuning

PRIMARY = "primary metric"
"""What a comparison's trials measured; they do not say its name."""
DEEPEST = 3
"""How many folders below the run folder tuning runs are looked for: METHOD/SEED and one above."""


@dataclass(frozen=True, kw_only=True)
class TuningRun:
    """One tuning of one seed.

    `metrics` are split → metric → (value, low, high); empty while the run is going on. `validation` has one entry a
    validation, `losses` one a step.
    """

    name: str
    method: str
    target: str = ""
    teachers: tuple[str, ...] = ()
    seed: int | None = None
    kind: str = ""
    task: str = ""
    metrics: Metrics = field(default_factory=dict)
    validation: tuple[Mapping[str, Any], ...] = ()
    losses: tuple[Mapping[str, Any], ...] = ()
    best_step: int | None = None
    notes: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def primary(self) -> str | None:
        """The metric that validation goes by: the first of those measured."""
        for line in self.validation:
            return next(iter(line["metrics"]), None)
        for found in self.metrics.values():
            return next(iter(found), None)
        return None


def find_tuning_runs(folder: Path) -> list[TuningRun]:
    """The tuning runs in a folder and in the folders below it, in the order of their names.

    The trials of a comparison (`tune --method all`) whose curves were not kept are runs with results alone.
    """
    runs = [read_tuning_run(place, name) for place, name in _places(folder, "", DEEPEST)]
    known = {(run.method, run.seed) for run in runs}
    return runs + [run for run in read_trials(folder / TRIALS) if (run.method, run.seed) not in known]


def _places(folder: Path, name: str, deeper: int) -> Iterable[tuple[Path, str]]:
    if (folder / TUNING).is_file() or (folder / CURVES).is_file():
        yield folder, name or folder.name
        return
    if deeper == 0:
        return
    for child in sorted(folder.iterdir()):
        # A link may lead out of the run folder, or in a circle.
        if child.is_dir() and not child.is_symlink() and not child.name.startswith("."):
            yield from _places(child, f"{name}/{child.name}" if name else child.name, deeper - 1)


def read_tuning_run(folder: Path, name: str) -> TuningRun:
    """Read one folder. A run that is still going on has curves only; its last line may be half written."""
    record = read_tuning(folder) if (folder / TUNING).is_file() else TuningRecord()
    return tuning_run(name, record, read_lines(folder / CURVES, tolerant=True), origin=str(folder / TUNING))


def tuning_run(
    name: str, record: TuningRecord, lines: Iterable[Mapping[str, Any]], *, origin: str = "This record"
) -> TuningRun:
    """A run out of its record and the lines of its curves."""
    lines = list(lines)
    metrics = record.saved_metrics
    if not metrics:
        result = next((line.get("metrics") or {} for line in lines if line.get("event") == "result"), {})
        metrics = read_metrics(result, origin=f"{origin}: metrics")
    run = TuningRun(
        name=name,
        method=record.method or name.partition("/")[0],
        target=record.target,
        teachers=record.teachers,
        seed=record.arguments.get("seed"),
        kind=record.kind,
        task=record.task,
        metrics=metrics,
        validation=tuple(line for line in lines if line.get("event") == "validation" and _drawable(line, "metrics")),
        losses=tuple(line for line in lines if line.get("event") == "step" and _drawable(line, "parts")),
        best_step=record.best_step,
        notes=record.notes,
        arguments=record.arguments,
    )
    check_types(run, origin)
    return run


def read_trials(path: Path) -> list[TuningRun]:
    """The finished trials of a comparison of methods; lines of another kind of search are passed over."""
    runs = []
    for line in read_lines(path, tolerant=True):
        values = {split: line.get(split) for split in ("test", "validation")}
        if "method" not in line or not _numbers(values) or not isinstance(line.get("seed"), int | None):
            continue
        told: Any = line.get("run")
        told = told if isinstance(told, dict) else {}
        runs.append(
            TuningRun(
                name=f"{line['method']}-{line.get('seed')}",
                method=str(line["method"]),
                target=str(told.get("target") or ""),
                teachers=_texts(told.get("teachers")),
                seed=line.get("seed"),
                metrics={split: {PRIMARY: (v, v, v)} for split, v in values.items() if v is not None},
            )
        )
    return runs


def _numbers(values: Any) -> bool:
    return isinstance(values, Mapping) and bool(values) and all(is_number(value) for value in values.values())


def _drawable(line: Mapping[str, Any], values: str) -> bool:
    """Whether a line of a curve has numbers, and a place on the axis for them."""
    return _numbers(line.get(values)) and is_number(line.get("step")) and is_number(line.get("epoch", 0))


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(str(value) for value in values) if isinstance(values, list | tuple) else ()
