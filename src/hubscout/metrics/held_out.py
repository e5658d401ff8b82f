"""Samples predicted without themselves: the linear probe and leave-one-out nearest neighbours."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hubscout.errors import InputError, check_choice
from hubscout.grouping import stratified_folds
from hubscout.metrics import inputs
from hubscout.metrics.metric_registry import KINDS, Score, metric
from hubscout.metrics.softmax_head import principal_axes

_NUMBERS_AT_ONCE = 1 << 22
"""Neighbours that are looked at together: each row has as many as the largest group has rows, and more."""
_FIRST_EXPONENTS = (0.0, -2.0, 2.0, -1.0, 1.0, -3.0, 3.0, -4.0, 4.0)


@metric("linear-probe", kinds=KINDS)
def linear_probe(
    features: Any,
    targets: Any,
    kind: str = "classification",
    *,
    groups: Any = None,
    trials: int = 5,
    folds: int = 5,
    seed: int = 0,
) -> Score:
    """Held-out performance of a linear head, with the best of a number of strengths of L2 regularisation.

    Classification: accuracy of logistic regression over `folds` stratified folds, in [0, 1]. Regression: leave-one-out
    R² of ridge regression averaged over the columns that vary, at most 1. Multilabel: leave-one-out ridge regression
    on the 0/1 columns ranks the samples; mean average precision, in [0, 1]. With `groups`, all three over folds of
    whole groups.

    `trials` is the number of hyper-parameters tried: the inverse strengths 1, 10⁻², 10², 10⁻¹, 10¹, 10⁻³, ... in this
    order, so that more trials contain the fewer and the score can only rise. It is the best one's: like every score of
    a search it flatters a little, the more the smaller the data (`details["each"]` has them all). The features are
    centred and brought to a mean variance of 1, so that it is invariant to shift, common scale and rotation, and, for
    leave-one-out, to the order of rows; the folds follow the order of rows and `seed`. Classes need not be in
    every fold: a class of one sample is never predicted rightly.

    The standard error is binomial for accuracy, that of the mean squared error for R²; with `groups`, that of a mean
    over groups. Cost: `folds` · `trials` fits
    of logistic regression, O(nDC) a step; for ridge regression one eigendecomposition, O(nD² + D³).

    Args:
        features: (n, D) features.
        targets: of the rows: class ids, a 0/1 matrix, or columns of numbers.
        kind: "classification", "multilabel" or "regression".
        groups: one number per row, such as of a patient: rows of a group are predicted from the other groups.
        trials: how many strengths are tried.
        folds: of the cross-validation of classes, and of all kinds with `groups`.
        seed: of the folds.

    Returns:
        The best strength's score; `details` has all of them.

    Raises:
        InputError: too few samples for the folds, or arrays that do not fit together or are not finite.

    Example:
        >>> import numpy as np
        >>> labels = np.repeat([0, 1], 20)
        >>> linear_probe(np.eye(2)[labels] + 0.1 * np.random.default_rng(0).normal(size=(40, 2)), labels).value
        1.0

    """
    features = inputs.real_matrix(features, "features")
    trials = inputs.whole_number(trials, "trials")
    folds = inputs.whole_number(folds, "folds", least=2)
    values, measure = _measured(kind, targets, len(features))
    together = _groups(groups, len(features))
    rows = inputs.centred(features)
    if rows.any():
        rows = rows / np.abs(rows).max()
        rows /= np.sqrt(np.mean(rows**2))
    strengths = inverse_strengths(trials)

    if kind == "classification":
        predicted = _logistic(rows, values, strengths, folds, seed, together)
    elif together is None:
        predicted = _ridge(rows, values, strengths)
    else:
        fold = stratified_folds(np.zeros(len(rows), dtype=np.int64), folds, seed, together)
        predicted = _ridge_by_fold(rows, values, strengths, fold)
    scores = [measure(each, values, together) for each in predicted]
    best = max(scores, key=lambda found: found.value)
    each = {float(strength): found.value for strength, found in zip(strengths, scores, strict=True)}
    return Score(best.value, best.standard_error, details={**best.details, "each": each})


Measure = Callable[[np.ndarray, np.ndarray, np.ndarray | None], Score]


def _groups(groups: Any, n: int) -> np.ndarray | None:
    """The group of each of n rows, 0, 1, …; None where there are none."""
    if groups is None:
        return None
    given = np.asarray(groups)
    if given.shape != (n,):
        raise InputError(f"groups must be {n} numbers, one per row of features; they have the shape {given.shape}.")
    names, numbers = np.unique(given, return_inverse=True)
    if len(names) < 2:
        raise InputError("groups has all rows in one group: none can be predicted from the others.")
    return numbers


def _measured(kind: str, targets: Any, n: int) -> tuple[np.ndarray, Measure]:
    """The targets of n rows, and how good predictions of them are."""
    if n < 2:
        raise InputError("features must have at least two rows: each sample is predicted from the others.")
    measures = {"classification": accuracy, "multilabel": average_precision, "regression": explained_variance}
    return inputs.values_of(targets, n, kind), measures[kind]


def inverse_strengths(trials: int) -> np.ndarray:
    """The first `trials` of an endless list: powers of ten from 1 outwards, then ever finer between 10⁻⁴ and 10⁴.

    >>> inverse_strengths(3).tolist()
    [1.0, 0.01, 100.0]
    """
    exponents = list(_FIRST_EXPONENTS)
    step = 0.5
    while len(exponents) < trials:
        exponents += list(np.arange(-4.0, 4.0, 2 * step) + step)
        step /= 2
    return 10.0 ** np.array(exponents[:trials])


def _logistic(
    rows: np.ndarray, ids: np.ndarray, strengths: np.ndarray, folds: int, seed: int, groups: np.ndarray | None
) -> list[np.ndarray]:
    """Predicted class of every sample by the model of the folds it is not in, for each strength."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    most = int(np.bincount(ids).max())
    if most < 2:
        raise InputError("targets have one sample in every class: none can be predicted from the others.")
    if rows.any() and len(rows) <= rows.shape[1]:
        rows = principal_axes(rows).rows
    predicted = [np.zeros(len(ids), dtype=np.int64) for _ in strengths]
    with warnings.catch_warnings():
        # Small classes are allowed, and a fit that stops at the limit is good enough to be compared.
        warnings.filterwarnings("ignore", message="The least populated class")
        warnings.simplefilter("ignore", ConvergenceWarning)
        if groups is None:
            splits = list(StratifiedKFold(min(folds, most), shuffle=True, random_state=seed).split(rows, ids))
        else:
            splits = list(_splits(stratified_folds(ids, folds, seed, groups)))
        for train, test in splits:
            if len(np.unique(ids[train])) < 2:
                for each in predicted:
                    each[test] = ids[train][0]
                continue
            for each, strength in zip(predicted, strengths, strict=True):
                model = LogisticRegression(C=strength, tol=1e-3, max_iter=200)
                each[test] = model.fit(rows[train], ids[train]).predict(rows[test])
    return predicted


def _splits(fold: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows to fit and rows to predict, fold by fold."""
    for k in range(int(fold.max()) + 1):
        yield np.flatnonzero(fold != k), np.flatnonzero(fold == k)


def _ridge_by_fold(rows: np.ndarray, columns: np.ndarray, strengths: np.ndarray, fold: np.ndarray) -> list[np.ndarray]:
    """Prediction of every sample by ridge regression on the folds that it is not in, for each strength."""
    predicted = [np.empty(columns.shape) for _ in strengths]
    for train, test in _splits(fold):
        centre, means = rows[train].mean(axis=0), columns[train].mean(axis=0)
        axes = principal_axes(rows[train] - centre)
        projected, seen = axes.rows.T @ (columns[train] - means), (rows[test] - centre) @ axes.directions
        for each, strength in zip(predicted, strengths, strict=True):
            each[test] = means + seen @ (projected / (axes.squares + 1.0 / strength)[:, None])
    return predicted


def _ridge(rows: np.ndarray, columns: np.ndarray, strengths: np.ndarray) -> list[np.ndarray]:
    """Prediction of every sample by ridge regression on the others, for each strength: y − e / (1 − h)."""
    means, axes = columns.mean(axis=0), principal_axes(rows)
    basis, squares = axes.rows / np.sqrt(axes.squares), axes.squares
    projected = basis.T @ (columns - means)
    predictions = []
    for strength in strengths:
        shrunk = squares / (squares + 1.0 / strength)
        residuals = columns - means - basis @ (shrunk[:, None] * projected)
        leverage = (basis**2 @ shrunk)[:, None] + 1.0 / len(rows)
        predictions.append(columns - residuals / np.maximum(1.0 - leverage, 1e-12))
    return predictions


def accuracy(predicted: np.ndarray, ids: np.ndarray, groups: np.ndarray | None = None) -> Score:
    """Share of right predictions, with the binomial standard error."""
    value = float(np.mean(predicted == ids))
    error = float(np.sqrt(value * (1.0 - value) / len(ids)))
    return Score(value, standard_error=error if groups is None else error_of_mean(predicted == ids, groups))


def error_of_mean(values: np.ndarray, groups: np.ndarray) -> float:
    """The standard error of the mean of values that are alike within a group: that of a ratio of sums of groups.

    >>> error_of_mean(np.array([1.0, 1.0, 0.0, 0.0]), np.array([0, 0, 1, 1]))
    0.5
    """
    sums = np.bincount(groups, weights=values - values.mean())
    return float(np.sqrt((sums**2).sum() * len(sums) / (len(sums) - 1)) / len(values))


def average_precision(scores: np.ndarray, labels: np.ndarray, groups: np.ndarray | None = None) -> Score:
    """Mean over labels of the average precision; labels that are the same for all samples are left out."""
    from sklearn.metrics import average_precision_score

    columns = np.flatnonzero(inputs.varying(labels))
    each = [float(average_precision_score(labels[:, column], scores[:, column])) for column in columns]
    return Score(float(np.mean(each)), details={"per_target": np.array(each), "columns": columns})


def explained_variance(predicted: np.ndarray, targets: np.ndarray, groups: np.ndarray | None = None) -> Score:
    """R² averaged over the columns that vary; the standard error is the delta method's for the mean squared error."""
    kept = inputs.varying(targets)
    residual = (predicted[:, kept] - targets[:, kept]) ** 2
    total = targets[:, kept].var(axis=0)
    value = 1.0 - residual.mean(axis=0) / total
    # One number per sample: columns of one sample share their noise, so they must not be counted as independent.
    losses = (residual / total).mean(axis=1)
    error = losses.std(ddof=1) / np.sqrt(len(losses)) if groups is None else error_of_mean(losses, groups)
    return Score(float(value.mean()), standard_error=float(error), details={"per_target": value})


DISTANCES = ("cosine", "euclidean")


@metric("knn", kinds=KINDS)
def knn(
    features: Any,
    targets: Any,
    kind: str = "classification",
    *,
    groups: Any = None,
    neighbours: int = 5,
    distance: str = "cosine",
) -> Score:
    """Leave-one-out prediction of each sample from its nearest neighbours.

    Classification: accuracy of the vote of the k nearest other samples; of classes with equally many votes the one
    with the nearest voter wins. Range [0, 1]. Multilabel: the share of neighbours with the label ranks the samples;
    the mean over labels of the average precision, in [0, 1]. Regression: the mean of the neighbours' targets; R²
    averaged over columns, at most 1 and below 0 where the overall mean predicts better. Constant columns are left
    out.

    `distance="cosine"` is invariant to rotation and to the scale of each sample, `"euclidean"` to rotation, shift and
    one common scale. Both are invariant to the order of rows (but for exactly equal distances) and to relabelling.
    `neighbours` is capped at the samples that there are besides; with `groups`, they are of other groups. The standard
    error of an accuracy is binomial, with `groups` that of a mean over groups. Cost: O(n²D).

    Args:
        features: (n, D) features.
        targets: of the rows: class ids, a 0/1 matrix, or columns of numbers.
        kind: "classification", "multilabel" or "regression".
        groups: one number per row, such as of a patient: rows of a group are not each other's neighbours.
        neighbours: k, at least 1.
        distance: "cosine" or "euclidean".

    Returns:
        The score.

    Raises:
        InputError: another distance, fewer than two samples, or arrays that do not fit together or are not finite.

    Example:
        >>> import numpy as np
        >>> knn(np.array([[0.0, 1], [0.1, 1], [1, 0], [1, 0.1]]), np.array([0, 0, 1, 1]), neighbours=1).value
        1.0

    """
    features = inputs.real_matrix(features, "features")
    neighbours = inputs.whole_number(neighbours, "neighbours")
    check_choice("distance", distance, DISTANCES)
    values, measure = _measured(kind, targets, len(features))
    together = _groups(groups, len(features))
    found = values[_others(features, neighbours, distance, together)]
    return measure(_vote(found) if kind == "classification" else found.mean(axis=1), values, together)


def _others(features: np.ndarray, neighbours: int, distance: str, groups: np.ndarray | None) -> np.ndarray:
    """Indices of the nearest samples of other groups, nearest first; without groups each is one."""
    from sklearn.neighbors import NearestNeighbors

    n = len(features)
    groups = np.arange(n) if groups is None else groups
    largest = int(np.bincount(groups).max())
    k = min(neighbours, n - largest)
    if distance == "euclidean":
        # The fast distances are differences of large numbers when the mean is far from the origin.
        features = features - features.mean(axis=0)
    index = NearestNeighbors(n_neighbors=k + largest, metric=distance, algorithm="brute").fit(features)
    result, size = np.empty((n, k), dtype=np.int64), max(_NUMBERS_AT_ONCE // (k + largest), 1)
    for part in (slice(start, start + size) for start in range(0, n, size)):
        found = index.kneighbors(return_distance=False, X=features[part])
        # A sample is not always its own first neighbour: duplicates tie with it, and may push it off the list.
        own = groups[found] == groups[part, None]
        result[part] = np.take_along_axis(found, np.argsort(own, axis=1, kind="stable")[:, :k], axis=1)
    return result


def _vote(votes: np.ndarray) -> np.ndarray:
    n, k = votes.shape
    counts = np.zeros((n, votes.max() + 1))
    # A vote counts 1 and a trifle that falls with its rank, so that ties go to the nearest voter.
    trifle = 0.5 ** np.arange(1, k + 1) / (2 * k)
    np.add.at(counts, (np.arange(n)[:, None], votes), 1.0 + trifle)
    return counts.argmax(axis=1)
