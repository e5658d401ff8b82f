"""How good predictions are: the metrics of each kind of task, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hubscout.errors import InputError
from hubscout.tasks.entities import count_entities, f1_of_counts, tag_scheme
from hubscout.tasks.kinds import kind_of

if TYPE_CHECKING:
    from hubscout.tasks.task import Split, Task

ENTITY_F1 = "entity_f1"
FLOOR = -6.0
"""Log-likelihoods below count as this: one sample that a network is surely wrong about must not decide between two."""
Predicted = np.ndarray
Statistic = Callable[[np.ndarray, np.ndarray], float]


class MetricValue(NamedTuple):
    """A metric's value on a split, with an interval over samples (sentences for tagging)."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


Metrics = Mapping[str, Mapping[str, MetricValue]]
"""Split → metric → value with its interval."""


def names_of(kind: str, target_names: Sequence[str] = ()) -> tuple[str, ...]:
    """The metrics of a task, the one that validation goes by first; higher is better for that one.

    Tags that mark entities by B- and I- (or their kin) go by entities; all others by words. Plain tags beside an "O"
    may or may not be meant as entities, so that theirs is told second.

    >>> names_of("tagging", ["B-PER", "I-PER", "O"]), names_of("tagging", ["NOUN", "VERB"])
    (('entity_f1', 'macro_f1', 'accuracy'), ('macro_f1', 'accuracy'))
    """
    asked = kind_of(kind)
    names = tuple(TASK_METRICS[asked.name])
    scheme = tag_scheme(target_names) if asked.rows_are_words else None
    if scheme is None:
        return names
    return (ENTITY_F1, *names) if scheme.prefixed else (names[0], ENTITY_F1, *names[1:])


def primary(kind: str, target_names: Sequence[str] = ()) -> str:
    """The metric that validation goes by.

    >>> primary("regression")
    'r2'
    """
    return names_of(kind, target_names)[0]


def accuracy(predicted: Predicted, targets: np.ndarray) -> float:
    """Share of rows whose most probable class is right."""
    return float((predicted.argmax(axis=1) == targets).mean())


def balanced_accuracy(predicted: Predicted, targets: np.ndarray) -> float:
    """Mean over the classes that occur of the share of their rows that are right."""
    seen = np.bincount(targets)
    right = np.bincount(targets[predicted.argmax(axis=1) == targets], minlength=len(seen))
    return float((right[seen > 0] / seen[seen > 0]).mean())


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


TASK_METRICS: dict[str, dict[str, Statistic]] = {
    "classification": {"accuracy": accuracy, "macro_f1": macro_f1},
    "multilabel": {"mean_average_precision": mean_average_precision, "micro_f1": micro_f1},
    "regression": {"r2": r_squared, "rmse": root_mean_squared_error},
    "tagging": {"macro_f1": macro_f1, "accuracy": accuracy},
}
"""For each kind of task those that are functions of decoded predictions and targets by row, the main one first."""
SHARES = frozenset({ENTITY_F1, *(name for names in TASK_METRICS.values() for name in names)} - {"r2", "rmse"})
"""Those that lie between 0 and 1."""


def share_interval(share: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a share of n samples, which stays wide where n is small and all or none are right.

    >>> [round(end, 3) for end in share_interval(1.0, 3)]
    [0.439, 1.0]
    >>> share_interval(1.0, 60)[1]
    1.0
    """
    square = NormalDist().inv_cdf((1 + confidence) / 2) ** 2 / n
    middle = (share + square / 2) / (1 + square)
    reach = (square * share * (1 - share) + square**2 / 4) ** 0.5 / (1 + square)
    # An end is the share itself where none or all are right, which rounding may miss.
    return max(min(middle - reach, share), 0.0), min(max(middle + reach, share), 1.0)


@dataclass(frozen=True, eq=False)
class Outcome:
    """Decoded predictions (rows, C) beside the truth, by row: a sample, or a word of a tagging task.

    `groups` holds the sample of each row, where rows are words.
    """

    kind: str
    predicted: Predicted
    targets: np.ndarray
    groups: np.ndarray | None = None
    target_names: Sequence[str] = ()

    @classmethod
    def of(cls, task: Task, split: Split, predicted: Predicted) -> Outcome:
        """Predictions for the samples of a split."""
        kind = kind_of(task.kind)
        groups = kind.sample_of_row(split.targets)
        return cls(task.kind, predicted, kind.rows_of(split.targets), groups, task.target_names)

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics of the task, the one that validation goes by first."""
        return names_of(self.kind, self.target_names)

    @property
    def primary(self) -> float:
        """The metric that validation goes by."""
        return self._value(self.names[0])

    def values(self) -> dict[str, float]:
        """All metrics."""
        return {name: self._value(name) for name in self.names}

    def with_intervals(
        self, *, resamples: int = 1000, confidence: float = 0.95, seed: int = 0
    ) -> dict[str, MetricValue]:
        """All metrics with intervals: Wilson's for the accuracy of samples, a percentile bootstrap's for others."""
        generator, resampled = np.random.default_rng(seed), np.empty((resamples, len(self.names)))
        for number in range(resamples):
            drawn = generator.integers(self._samples, size=self._samples)
            rows = drawn if self._members is None else np.concatenate([self._members[sample] for sample in drawn])
            resampled[number] = [self._value(name, drawn, rows) for name in self.names]
        ends = [(1 - confidence) / 2, (1 + confidence) / 2]
        found = {}
        for name, column in zip(self.names, resampled.T, strict=True):
            point = self._value(name)
            low, high = np.quantile(column, ends) if resamples else (point, point)
            if name in SHARES and ((name == "accuracy" and self.groups is None) or low == high):
                # Samples that are all right are all right however they are drawn: a bootstrap would claim certainty.
                low, high = share_interval(point, self._samples, confidence)
            found[name] = MetricValue(point, float(low), float(high))
        return found

    def guessed(self, guess: np.ndarray) -> dict[str, float]:
        """All metrics if `guess`, (C,), were the prediction for every row: those of the null model.

        >>> of_four = Outcome("classification", np.empty(0), np.array([1, 0, 1, 1]))
        >>> of_four.guessed(np.array([0.25, 0.75]))["accuracy"]
        0.75
        """
        found = replace(self, predicted=np.broadcast_to(guess, (len(self.targets), len(guess)))).values()
        if "mean_average_precision" in found:
            # Of one and the same score for all it is that of a random order.
            frequency = (self.targets > 0).mean(axis=0)
            found["mean_average_precision"] = float(frequency[frequency > 0].mean()) if frequency.any() else 0.0
        return found

    def first(self, samples: int) -> Outcome:
        """That of the first so many samples."""
        rows = samples if self.groups is None else int(np.searchsorted(self.groups, samples))
        groups = None if self.groups is None else self.groups[:rows]
        return replace(self, predicted=self.predicted[:rows], targets=self.targets[:rows], groups=groups)

    def log_likelihoods(self, scale: np.ndarray | None = None) -> np.ndarray:
        """How well each sample was predicted, in nats; the higher the better.

        Classes and tags: the log probability of what is true, averaged over the words of a sentence (one without
        words is left out). Labels: the mean over them. Numbers: minus half the squared error in deviations of the
        train targets (`scale`).
        """
        kind, truth, predicted = kind_of(self.kind), np.asarray(self.targets), self.predicted
        if kind.is_real_valued:
            values = -0.5 * (((predicted - truth) / (1.0 if scale is None else scale)) ** 2).mean(axis=1)
        elif kind.has_label_sets:
            values = np.log(np.maximum(np.where(truth > 0, predicted, 1 - predicted), 1e-12)).mean(axis=1)
        else:
            values = np.log(np.maximum(predicted[np.arange(len(truth)), truth], 1e-12))
        values = np.maximum(values, FLOOR)
        if self.groups is None:
            return values
        words = np.bincount(self.groups)
        return np.bincount(self.groups, weights=values)[words > 0] / words[words > 0]

    @property
    def mean_log_likelihood(self) -> float:
        """The mean over the samples; what tells predictions apart that are right equally often."""
        return float(self.log_likelihoods().mean())

    @cached_property
    def _members(self) -> list[np.ndarray] | None:
        """The rows of each sample; None where a sample is a row."""
        if self.groups is None:
            return None
        return np.split(np.arange(len(self.targets)), np.flatnonzero(np.diff(self.groups)) + 1)

    @property
    def _samples(self) -> int:
        return len(self.targets) if self._members is None else len(self._members)

    @cached_property
    def _entities(self) -> np.ndarray:
        scheme = tag_scheme(self.target_names)
        assert scheme is not None
        if self.groups is None:
            raise InputError("groups must tell the sentence of each word: entities end where sentences end.")
        return count_entities(self.predicted.argmax(axis=1), self.targets, self.groups, scheme)

    def _value(self, name: str, samples: np.ndarray | None = None, rows: np.ndarray | None = None) -> float:
        """A metric, over everything or over the drawn samples, which have these rows."""
        if name == ENTITY_F1:
            return f1_of_counts(self._entities if samples is None else self._entities[samples])
        statistic = TASK_METRICS[kind_of(self.kind).name][name]
        if rows is None:
            return statistic(self.predicted, self.targets)
        return statistic(self.predicted[rows], self.targets[rows])
