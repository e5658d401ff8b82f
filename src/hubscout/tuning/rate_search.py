"""The search for a learning rate: short runs at rates around the default, judged on validation after a cool-down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hubscout.tasks import task_metrics
from hubscout.tuning.schedule import rate_factor

if TYPE_CHECKING:
    from hubscout.tuning.single_run import SingleRun

FACTORS = (1.0, 1 / 3, 3.0)
"""Rates that are tried, in units of the default, which comes first."""
SHARE = 0.05
"""Of the steps of the run, for each rate."""
FEWEST_STEPS = 10
"""A shorter run says nothing about its rate: then there is no search."""


@dataclass(frozen=True)
class RateChoice:
    """A learning rate of the backbone, and why it was chosen."""

    learning_rate: float
    reason: str


def steps_per_rate(steps: int) -> int:
    """How long each rate is tried in a run of so many steps; 0: too short a run for a search.

    >>> steps_per_rate(1000), steps_per_rate(100)
    (50, 0)
    """
    short = int(SHARE * steps)
    return short if short >= FEWEST_STEPS else 0


def search_rate(run: SingleRun) -> RateChoice:
    """Try the rates from the first step of a run, which stands there again afterwards.

    The default is left only for a rate whose metric is ahead by more than its standard error: a small validation split
    cannot tell the rates apart, and short runs flatter high ones.
    """
    loop, arguments, split = run.loop, run.arguments, run.task.validation
    steps = steps_per_rate(loop.steps)
    assert arguments.learning_rate is not None
    shape = [rate_factor(step, steps, "wsd", arguments.warmup, arguments.cooldown) for step in range(steps)]
    name = task_metrics.primary(run.task.kind, run.task.target_names)
    names = run.task.target_names
    values, predictions, told = {}, {}, []
    for factor in FACTORS:
        rate = round_rate(factor * arguments.learning_rate)
        with loop.branch([factor * height for height in shape]):
            predicted, targets, groups = run.evaluator.outcome(loop.network, run.validation, split)
        if np.isfinite(predicted).all():
            found = task_metrics.values(run.task.kind, predicted, targets, groups=groups, target_names=names)
            values[rate], predictions[rate] = found[name], predicted
        told.append((rate, f"{values[rate]:.4f} at {rate:g}" if rate in values else f"divergence at {rate:g}"))
    tried = f"Short runs of {steps} steps gave a validation {name} of {', '.join(text for _, text in sorted(told))}."
    default = round_rate(arguments.learning_rate)
    if not values:
        lowest = min(rate for rate, _ in told)
        return RateChoice(lowest, f"{tried} The run goes on with the lowest.")
    best = max(values, key=lambda rate: values[rate])  # the default, where it is as good as the best
    if best != default and default in values:
        error = task_metrics.difference_error(
            run.task.kind, predictions[best], predictions[default], targets, groups=groups, target_names=names
        )
        if values[best] - values[default] <= error:
            return RateChoice(
                default,
                f"{tried} {best:g} is ahead by no more than the standard error of {error:.4f}: the run goes on with "
                f"the default, learning_rate={default:g}.",
            )
    return RateChoice(best, f"{tried} The run goes on with the best, learning_rate={best:g}.")


def round_rate(rate: float) -> float:
    """A rate with the digits that a person would give.

    >>> round_rate(0.003 / 3)
    0.001
    """
    return float(f"{rate:.3g}")
