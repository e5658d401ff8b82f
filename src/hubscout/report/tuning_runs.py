"""Curves of tuning runs, by method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hubscout.runs.run_folder import RACE_DEPLOYED, RACE_WINNER
from hubscout.runs.tuning_record import TuningRun


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

    Where one method was run on several models, the model is part of the name.
    """
    runs = list(runs)
    several = len({run.model for run in runs if run.model}) > 1
    groups: dict[str, list[TuningRun]] = {}
    for run in runs:
        name = f"{run.method}, {run.model.rpartition('/')[2]}" if several and run.model else run.method
        groups.setdefault(name, []).append(run)
    return groups


def evaluated(runs: Iterable[TuningRun]) -> TuningRun | None:
    """The run whose samples are shown: of those that were evaluated the best, by validation where there is one."""
    known = [run for run in runs if run.evaluation is not None]

    def merit(run: TuningRun) -> float:
        split = next((name for name in ("validation", "test") if run.metrics.get(name)), None)
        return next(iter(run.metrics[split].values()))[0] if split is not None else -np.inf

    return max(known, key=merit, default=None)


def whose(runs: Sequence[TuningRun], chosen: TuningRun) -> str:
    """Which of several runs something is of, in words; nothing where there is only one that was asked for."""
    models = {RACE_WINNER: " of the winner", RACE_DEPLOYED: " of the model to deploy"}
    return models.get(chosen.name) or (f" of {chosen.name}" if len(runs) > 1 else "")


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
