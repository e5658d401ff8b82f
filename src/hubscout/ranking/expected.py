"""How good predictions will be that a linear model makes from frozen features: from samples left out of its fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy

from hubscout.runs.row import Expected
from hubscout.tasks import task_metrics
from hubscout.tasks.kinds import kind_of

if TYPE_CHECKING:
    from hubscout.evidence import Evidence
    from hubscout.evidence.statistics import KeptRows
    from hubscout.tasks import Task

GROUPS = 20
"""Groups of samples of the jackknife."""
CONFIDENCE = 0.95
FEWEST_ERRORS = 1.5
"""No fewer errors per standard error: with none among n, the rule of three has 3/n as the end of the interval."""


@dataclass(frozen=True)
class LeftOut:
    """The metrics of the task for samples left out, the main one first; and how sure it is that features help.

    `odds` is the largest log Bayes factor over a base rate, in nats, of the targets that are predicted better than by
    their base rate where the sample was left out; 0 where there is none. One odd sample with a label that it alone has
    is fitted beyond all doubt, and predicts nothing.
    """

    expected: tuple[Expected, ...]
    odds: float


def left_out(evidence: Evidence, kept: KeptRows, task: Task) -> LeftOut | None:
    """Predict every kept sample from all others, and say how good that is; None where one group has all of them.

    Samples of a group, such as a patient, are predicted from the other groups.
    """
    from hubscout.evidence.left_out import base_rates_without, left_out_predictions

    kind, width = kind_of(task.kind), len(task.target_names)
    if not kind.rows_are_words:
        # A label that is predicted alike for all must not be found in the order of the data.
        kept = kept.shuffled()
    units, together = kept.samples, kept.samples if kind.rows_are_words else None
    if task.train.groups is not None:
        numbers, units = np.unique(task.train.groups[kept.samples], return_inverse=True)
        if len(numbers) < 2:
            return None
        units = np.random.default_rng(0).permutation(len(numbers))[units]
        order = np.argsort(units, kind="stable")
        kept, units = kept.take(order), units[order]
        together = units
    columns = kind.columns_of_rows(kept.targets, width)
    predicted = left_out_predictions(evidence, kept.features, columns, together)
    rates = evidence.over_base_rates.target_mean
    alone = base_rates_without(rates, evidence.n, columns, together)
    groups = _groups(units)
    better = _better((predicted - columns) ** 2, (alone - columns) ** 2, groups)
    odds = evidence.n * float(evidence.per_target_gain[better].max(initial=0.0))
    if not kind.is_real_valued:
        # Base rates without a sample are lower for its own labels, which would turn every guess away from them.
        predicted += rates - alone
    if kind.has_classes:
        # A class that no sample has is never said.
        predicted[:, [name in evidence.unscored for name in evidence.targets]] = -np.inf
    every = np.ones(len(groups), dtype=bool)
    values = _values(task, predicted, kept, every)
    without = [_values(task, predicted, kept, groups != group) for group in range(int(groups.max()) + 1)]
    guesses = _guesses(task, rates, kept)
    found = []
    for name, value in values.items():
        count = len(np.unique(units))
        if name == "accuracy" and task.train.groups is None:
            low, high = task_metrics.share_interval(value, count, CONFIDENCE)
        else:
            error = float(_standard_error(np.array([part[name] for part in without])))
            reach = _times(len(without)) * max(error, FEWEST_ERRORS / count)
            low, high = value - reach, value + reach
        low = low if name == "r2" else max(low, 0.0)  # which may be below 0; all others are shares
        found.append(Expected(metric=name, value=value, low=low, high=min(high, 1.0), guess=guesses[name]))
    return LeftOut(tuple(found), odds)


def _better(missed: np.ndarray, base: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Which targets have smaller squared errors `missed` than `base`, (m, C) each, by more than chance: (C,)."""
    from hubscout.evidence.array_backend import sums_by_id

    size = int(groups.max()) + 1
    ours, theirs = (sums_by_id(errors, groups, size) for errors in (missed, base))
    with np.errstate(divide="ignore", invalid="ignore"):
        skill = 1 - ours.sum(0) / theirs.sum(0)
        without = 1 - (ours.sum(0) - ours) / (theirs.sum(0) - theirs)
    return np.nan_to_num(skill, nan=0.0) > _times(size) * np.nan_to_num(_standard_error(without), nan=np.inf)


def _values(task: Task, predicted: np.ndarray, kept: KeptRows, chosen: np.ndarray) -> dict[str, float]:
    """The metrics of the predictions over some rows: the main one, and the balanced accuracy beside an accuracy."""
    kind, names = kind_of(task.kind), task.target_names
    targets, said = kept.targets[chosen], predicted[chosen]
    groups = kept.samples[chosen] if kind.rows_are_words else None
    main = task_metrics.primary(task.kind, names)
    shown = {main: task_metrics.Outcome(task.kind, said, targets, groups, names).primary}
    if kind.classes_of_samples:
        shown["balanced_accuracy"] = task_metrics.balanced_accuracy(said, targets)
    return shown


def _guesses(task: Task, rates: np.ndarray, kept: KeptRows) -> dict[str, float]:
    """The same metrics of the best guess that knows base rates alone."""
    kind = kind_of(task.kind)
    groups = kept.samples if kind.rows_are_words else None
    found = task_metrics.Outcome(task.kind, np.empty(0), kept.targets, groups, task.target_names).guessed(rates)
    if kind.has_classes:
        occurring = len(np.unique(kept.targets))
        found["balanced_accuracy"] = 1 / occurring
        # Of classes drawn at the rate at which they occur, F1 is that rate.
        found["macro_f1"] = max(found["macro_f1"], 1 / occurring)
    return found


def _groups(units: np.ndarray) -> np.ndarray:
    """A group for each row: whole samples together, or whole groups of them, at random."""
    unique, unit = np.unique(units, return_inverse=True)
    places = np.random.default_rng(0).permutation(len(unique))
    return (places * min(GROUPS, len(unique)) // len(unique))[unit]


def _standard_error(without: np.ndarray) -> np.ndarray:
    """By the delete-a-group jackknife, from the values without each group; ∞ with one group."""
    groups = len(without)
    if groups < 2:
        return np.full(without.shape[1:], np.inf)
    return np.sqrt((groups - 1) / groups * ((without - without.mean(0)) ** 2).sum(0))


def _times(groups: int) -> float:
    """Standard errors from the middle to the end of an interval."""
    return float(scipy.special.stdtrit(max(groups - 1, 1), (1 + CONFIDENCE) / 2))
