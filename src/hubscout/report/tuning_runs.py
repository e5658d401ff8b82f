"""Curves of tuning runs, by method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from hubscout.report.charts.lines import COLOURS, Curve
from hubscout.runs.run_folder import RACE_DEPLOYED, RACE_WINNER
from hubscout.runs.texts import short_names
from hubscout.runs.tuning_record import TuningRun


def by_method(runs: Iterable[TuningRun]) -> dict[str, list[TuningRun]]:
    """Runs that differ in their seed alone, together under the name of their method.

    Where one method was run on several models, the model is part of the name.
    """
    runs = list(runs)
    models = list(dict.fromkeys(run.model for run in runs if run.model))
    short = dict(zip(models, short_names(models), strict=True)) if len(models) > 1 else {}
    groups: dict[str, list[TuningRun]] = {}
    for run in runs:
        name = f"{run.method}, {short[run.model]}" if run.model in short else run.method
        groups.setdefault(name, []).append(run)
    return groups


def evaluated(runs: Iterable[TuningRun]) -> TuningRun | None:
    """The run whose samples are shown: of those that were evaluated the best, by validation where there is one."""
    known = [run for run in runs if run.evaluation is not None]

    def merit(run: TuningRun) -> float:
        split = next((name for name in ("validation", "test") if run.metrics.get(name)), None)
        value = next(iter(run.metrics[split].values()))[0] if split is not None else np.nan
        return -np.inf if np.isnan(value) else value

    return max(known, key=merit, default=None)


def whose(runs: Sequence[TuningRun], chosen: TuningRun) -> str:
    """Which of several runs something is of, in words; nothing where there is only one that was asked for."""
    models = {RACE_WINNER: " of the winner", RACE_DEPLOYED: " of the model to deploy"}
    return models.get(chosen.name) or (f" of {chosen.name}" if len(runs) > 1 else "")


def validation_curve(method: str, runs: list[TuningRun], metric: str) -> Curve | None:
    """The validation metric over epochs; seeds are averaged where they were validated at the same epoch."""
    values: dict[float, list[float]] = {}
    for run in runs:
        for line in run.validation:
            if metric in line["metrics"]:
                epoch = round(float(line.get("epoch", line["step"])), 4)
                values.setdefault(epoch, []).append(float(line["metrics"][metric]))
    return _curve(method, values, len(runs)) if values else None


def loss_curves(runs: list[TuningRun], bins: int = 60) -> list[Curve]:
    """The parts of the loss over steps: means of so many stretches, over all runs."""
    parts = dict.fromkeys(part for run in runs for line in run.losses for part in line["parts"])
    last = max((int(line["step"]) for run in runs for line in run.losses), default=0)
    width = max(1.0, last / bins)
    curves = []
    for part in parts if last else ():
        values: dict[float, list[float]] = {}
        for run in runs:
            stretches: dict[float, list[float]] = {}
            for line in run.losses:
                if part in line["parts"]:
                    centre = (int((line["step"] - 1) // width) + 0.5) * width
                    stretches.setdefault(centre, []).append(float(line["parts"][part]))
            for centre, found in stretches.items():
                values.setdefault(centre, []).append(float(np.mean(found)))
        curves.append(_curve(part, values, len(runs)))
    return curves


def _curve(name: str, values: Mapping[float, list[float]], runs: int) -> Curve:
    """The means, with a band from the least to the most where there are several runs."""
    places = sorted(values)
    return Curve(
        name=name,
        x=places,
        y=[float(np.mean(values[place])) for place in places],
        low=[min(values[place]) for place in places] if runs > 1 else (),
        high=[max(values[place]) for place in places] if runs > 1 else (),
    )


def coloured(
    curves: Sequence[Curve], tip: Callable[[str, float, float], str] | None = None, most: int = 60
) -> list[Curve]:
    """The curves with a colour each; `tip` makes what is said at (name, x, y) of curves of at most so many points."""
    made = []
    for place, curve in enumerate(curves):
        tips = []
        if tip is not None and len(curve.x) <= most:
            tips = [tip(curve.name, x, y) for x, y in zip(curve.x, curve.y, strict=True)]
        made.append(replace(curve, colour=place if place < COLOURS else None, tips=tips, dots=bool(tips)))
    return made
