"""Leave-one-out nearest neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from hubscout.errors import InputError
from hubscout.metrics import inputs
from hubscout.metrics.linear_probe import accuracy, average_precision, explained_variance
from hubscout.metrics.metric_registry import KINDS, Score, metric

DISTANCES = ("cosine", "euclidean")


@metric("knn", kinds=KINDS)
def knn(
    features: Any,
    targets: Any,
    kind: str = "classification",
    *,
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
    `neighbours` is capped at n − 1. The standard error of an accuracy is binomial. Cost: O(n²D).

    Args:
        features: (n, D) features.
        targets: of the rows: class ids, a 0/1 matrix, or columns of numbers.
        kind: "classification", "multilabel" or "regression".
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
    if distance not in DISTANCES:
        raise InputError(f"distance must be one of {', '.join(DISTANCES)}; got {distance!r}.")
    if len(features) < 2:
        raise InputError("features must have at least two rows: each sample is predicted from the others.")

    if kind == "classification":
        ids, classes = inputs.class_ids(targets, len(features))
        return accuracy(_vote(ids[_others(features, neighbours, distance)], classes), ids)
    if kind == "multilabel":
        labels = inputs.label_matrix(targets, len(features))
        return average_precision(labels[_others(features, neighbours, distance)].mean(axis=1), labels)
    columns = inputs.real_columns(targets, len(features))
    return explained_variance(columns[_others(features, neighbours, distance)].mean(axis=1), columns)


def _others(features: np.ndarray, neighbours: int, distance: str) -> np.ndarray:
    """Indices of the nearest other samples, nearest first."""
    from sklearn.neighbors import NearestNeighbors

    n = len(features)
    k = min(neighbours, n - 1)
    if distance == "euclidean":
        # The fast distances are differences of large numbers when the mean is far from the origin.
        features = features - features.mean(axis=0)
    index = NearestNeighbors(n_neighbors=k + 1, metric=distance, algorithm="brute").fit(features)
    found = index.kneighbors(return_distance=False, X=features)
    # A sample is not always its own first neighbour: duplicates tie with it, and may push it off the list.
    itself = found == np.arange(n)[:, None]
    itself[~itself.any(axis=1), -1] = True
    return found[~itself].reshape(n, k)


def _vote(votes: np.ndarray, classes: int) -> np.ndarray:
    n, k = votes.shape
    counts = np.zeros((n, classes))
    # A vote counts 1 and a trifle that falls with its rank, so that ties go to the nearest voter.
    trifle = 0.5 ** np.arange(1, k + 1) / (2 * k)
    np.add.at(counts, (np.arange(n)[:, None], votes), 1.0 + trifle)
    return counts.argmax(axis=1)
