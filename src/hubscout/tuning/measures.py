"""How good predictions are: the metrics of each kind of task, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Predicted = np.ndarray
Statistic = Callable[[np.ndarray, np.ndarray], float]


@dataclass(frozen=True)
class Measure:
    """A metric's value on a split, with a percentile bootstrap interval over samples (sentences for tagging)."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


PRIMARY = {
    "classification": "accuracy",
    "multilabel": "mean_average_precision",
    "regression": "r2",
    "tagging": "macro_f1",
}
"""The metric that validation goes by; higher is better for all of them."""


def measures_of(kind: str) -> dict[str, Statistic]:
    """The metrics of a kind of task: functions of decoded predictions and targets, by row."""
    if kind == "multilabel":
        return {"mean_average_precision": mean_average_precision, "micro_f1": micro_f1}
    if kind == "regression":
        return {"r2": r_squared, "rmse": root_mean_squared_error}
    if kind == "tagging":
        return {"macro_f1": macro_f1, "accuracy": accuracy}
    return {"accuracy": accuracy, "macro_f1": macro_f1}


def accuracy(predicted: Predicted, targets: np.ndarray) -> float:
    """Share of rows whose most probable class is right."""
    return float((predicted.argmax(axis=1) == targets).mean())


def macro_f1(predicted: Predicted, targets: np.ndarray) -> float:
    """Mean over the classes that occur of the harmonic mean of precision and recall; the tag "O" is a class too."""
    guesses, width = predicted.argmax(axis=1), predicted.shape[1]
    right = np.bincount(targets[guesses == targets], minlength=width)
    seen = np.bincount(targets, minlength=width)
    said = np.bincount(guesses, minlength=width)
    occurs = seen > 0
    return float((2 * right[occurs] / (seen + said)[occurs]).mean())


def micro_f1(predicted: Predicted, targets: np.ndarray) -> float:
    """F1 over all labels of all rows, at probability one half."""
    said, true = predicted >= 0.5, np.asarray(targets) > 0
    total = said.sum() + true.sum()
    return float(2 * (said & true).sum() / total) if total else 0.0


def mean_average_precision(predicted: Predicted, targets: np.ndarray) -> float:
    """Mean over the labels that occur of the area under precision against recall (by steps)."""
    order = np.argsort(-predicted, axis=0, kind="stable")
    true = np.take_along_axis(np.asarray(targets) > 0, order, axis=0)
    hits = true.cumsum(axis=0)
    precision = hits / np.arange(1, len(true) + 1)[:, None]
    occurs = hits[-1] > 0
    if not occurs.any():
        return 0.0
    return float(((precision * true).sum(axis=0)[occurs] / hits[-1][occurs]).mean())


def r_squared(predicted: Predicted, targets: np.ndarray) -> float:
    """Mean over the columns of 1 − residual / total sum of squares; columns that do not vary are left out."""
    residual = ((targets - predicted) ** 2).sum(axis=0)
    total = ((targets - targets.mean(axis=0)) ** 2).sum(axis=0)
    varies = total > 0
    return float((1 - residual[varies] / total[varies]).mean()) if varies.any() else 0.0


def root_mean_squared_error(predicted: Predicted, targets: np.ndarray) -> float:
    """Over all rows and columns, in the targets' own units; lower is better."""
    return float(np.sqrt(((targets - predicted) ** 2).mean()))


def measure(
    kind: str,
    predicted: Predicted,
    targets: np.ndarray,
    *,
    groups: np.ndarray | None = None,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Measure]:
    """All metrics of a kind with intervals. `groups` holds the sample each row belongs to, where rows are words."""
    found = {}
    draws = list(_resampled(len(targets), groups, resamples, seed))
    for name, statistic in measures_of(kind).items():
        values = [statistic(predicted[rows], targets[rows]) for rows in draws]
        point = statistic(predicted, targets)
        low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2]) if values else (point, point)
        found[name] = Measure(point, float(low), float(high))
    return found


def values(kind: str, predicted: Predicted, targets: np.ndarray) -> dict[str, float]:
    """All metrics of a kind, without intervals."""
    return {name: statistic(predicted, targets) for name, statistic in measures_of(kind).items()}


def _resampled(rows: int, groups: np.ndarray | None, resamples: int, seed: int) -> Sequence[np.ndarray]:
    generator = np.random.default_rng(seed)
    if groups is None:
        return [generator.integers(rows, size=rows) for _ in range(resamples)]
    members = np.split(np.arange(rows), np.flatnonzero(np.diff(groups)) + 1)
    drawn = (generator.integers(len(members), size=len(members)) for _ in range(resamples))
    return [np.concatenate([members[sample] for sample in samples]) for samples in drawn]
