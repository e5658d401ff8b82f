"""Tuning runs on disk: the curves of `metrics.jsonl` and the results of `tuning.json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hubscout.errors import RunError
from hubscout.runs.file_names import CURVES, TRIALS, TUNING
from hubscout.runs.json_files import read_json
from hubscout.runs.json_lines import read_lines
from hubscout.runs.record_types import check_types, is_number

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
    metrics: Mapping[str, Mapping[str, tuple[float, float, float]]] = field(default_factory=dict)
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
    record = _read_record(folder / TUNING) if (folder / TUNING).is_file() else {}
    lines = read_lines(folder / CURVES, tolerant=True)
    return tuning_run(name, record, lines, origin=str(folder / TUNING))


def tuning_run(
    name: str, record: Mapping[str, Any], lines: Iterable[Mapping[str, Any]], *, origin: str = "This record"
) -> TuningRun:
    """A run out of what `Tuned.record` and `Tuned.curves` hold."""
    lines = list(lines)
    arguments = record.get("arguments") or {}
    found = record.get("merged_metrics") or record.get("metrics") or {}
    if not found:
        found = next((line.get("metrics") or {} for line in lines if line.get("event") == "result"), {})
    try:
        metrics = {
            split: {key: (m["value"], m["low"], m["high"]) for key, m in values.items()}
            for split, values in found.items()
        }
        seed = arguments.get("seed")
    except (TypeError, KeyError, AttributeError) as error:
        raise RunError(f"{origin} has no metrics or arguments that can be read: {error}.") from error
    run = TuningRun(
        name=name,
        method=str(record.get("method") or name.partition("/")[0]),
        target=str(record.get("target") or ""),
        teachers=_texts(record.get("teachers")),
        seed=seed,
        kind=str(record.get("kind") or ""),
        task=str(record.get("task") or ""),
        metrics=metrics,
        validation=tuple(line for line in lines if line.get("event") == "validation" and _drawable(line, "metrics")),
        losses=tuple(line for line in lines if line.get("event") == "step" and _drawable(line, "parts")),
        best_step=record.get("best_step"),
        notes=_texts(record.get("notes")),
        arguments=arguments,
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


def _read_record(path: Path) -> dict[str, Any]:
    record = read_json(path)
    if not isinstance(record, dict):
        raise RunError(f"{path} is no record of a tuning run.")
    return record


@dataclass(frozen=True, kw_only=True)
class MethodCurve:
    """A quantity of one method over epochs: mean, least and most over its runs."""

    method: str
    epochs: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    runs: int


def by_method(runs: Iterable[TuningRun]) -> dict[str, list[TuningRun]]:
    """Runs that differ in their seed alone, together under the name of their method.

    Where one method was run on several targets, the target is part of the name.
    """
    runs = list(runs)
    several = len({run.target for run in runs if run.target}) > 1
    groups: dict[str, list[TuningRun]] = {}
    for run in runs:
        name = f"{run.method}, {run.target.rpartition('/')[2]}" if several and run.target else run.method
        groups.setdefault(name, []).append(run)
    return groups


def validation_curve(method: str, runs: list[TuningRun], metric: str) -> MethodCurve | None:
    """The validation metric over epochs; seeds are averaged where they were validated at the same epoch."""
    values: dict[float, list[float]] = {}
    for run in runs:
        for line in run.validation:
            if metric in line["metrics"]:
                values.setdefault(round(float(line.get("epoch", line["step"])), 4), []).append(
                    float(line["metrics"][metric])
                )
    return _curve(method, values, len(runs))


def loss_curves(runs: list[TuningRun], bins: int = 60) -> list[MethodCurve]:
    """The parts of the loss over steps: means of so many stretches, over all runs."""
    parts = list(dict.fromkeys(part for run in runs for line in run.losses for part in line["parts"]))
    last = max((int(line["step"]) for run in runs for line in run.losses), default=0)
    if not last:
        return []
    width = max(1.0, last / bins)
    curves = []
    for part in parts:
        values: dict[float, list[float]] = {}
        for run in runs:
            stretches: dict[float, list[float]] = {}
            for line in run.losses:
                if part in line["parts"]:
                    centre = (int((line["step"] - 1) // width) + 0.5) * width
                    stretches.setdefault(centre, []).append(float(line["parts"][part]))
            for centre, found in stretches.items():
                values.setdefault(centre, []).append(float(np.mean(found)))
        curve = _curve(part, values, len(runs))
        if curve is not None:
            curves.append(curve)
    return curves


def _curve(method: str, values: Mapping[float, list[float]], runs: int) -> MethodCurve | None:
    if not values:
        return None
    epochs = sorted(values)
    return MethodCurve(
        method=method,
        epochs=tuple(epochs),
        mean=tuple(float(np.mean(values[epoch])) for epoch in epochs),
        low=tuple(min(values[epoch]) for epoch in epochs),
        high=tuple(max(values[epoch]) for epoch in epochs),
        runs=runs,
    )
