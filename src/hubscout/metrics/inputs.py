"""What the metrics are given, made ready: checked as in `hubscout.evidence`, in float64 on the host, and reduced.

No input is ever changed; a copy is made only where the type changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hubscout.errors import InputError
from hubscout.evidence.array_backend import sums_by_id, to_host
from hubscout.evidence.checks import check_features, check_finite, check_targets

RELATIVE_TOLERANCE = 1e-12
"""A component with less than this share of the largest variance is rounding, not data."""


def real_matrix(value: Any, argument: str) -> np.ndarray:
    """A finite float64 matrix of at least one row and column."""
    array = to_host(check_features(value, argument)).astype(np.float64, copy=False)
    check_finite(array, argument)
    return array


def values_of(targets: Any, rows: int, kind: str) -> np.ndarray:
    """Class ids 0..C-1 of the classes that are present: absent ones leave no trace, and one class is an error. Of other
    kinds a float64 matrix, one column per label (0 and 1) or number, of which at least one varies.

    >>> values_of(["cat", "dog", "cat"], 3, "classification"), values_of([0.5, 2], 2, "regression").tolist()
    (array([0, 1, 0]), [[0.5], [2.0]])
    """
    found = to_host(check_targets(targets, rows, kind=kind).values)
    if kind == "classification":
        return found
    if not varying(columns := found.astype(np.float64)).any():
        raise InputError(f"targets must vary: each of the {columns.shape[1]} columns is the same for all samples.")
    return columns


def with_classes(value: Any, targets: Any, argument: str = "features") -> tuple[np.ndarray, np.ndarray, int]:
    """A matrix, the class of each of its rows, and how many classes there are."""
    array = real_matrix(value, argument)
    ids = values_of(targets, len(array), "classification")
    return array, ids, int(ids.max()) + 1


def one_hot(ids: np.ndarray) -> np.ndarray:
    """(n, C) 0 and 1."""
    return np.eye(int(ids.max()) + 1)[ids]


def varying(columns: np.ndarray) -> np.ndarray:
    """Which columns are not constant."""
    return np.ptp(columns, axis=0) > 0


def class_means(features: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The mean of each class, (C, D)."""
    counts = np.bincount(ids)
    return sums_by_id(features, ids, len(counts)) / counts[:, None]


def centred(features: np.ndarray) -> np.ndarray:
    """The features less their means; exactly 0 where what is left is rounding, as of constant features."""
    rows = features - features.mean(axis=0)
    if np.abs(rows).max() <= 4 * np.finfo(np.float64).eps * np.abs(features).max():
        rows[:] = 0.0
    return rows


def principal_components(
    features: np.ndarray, *, at_most: int | None = None, energy: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Centred coordinates (n, k) and variances (k,) of the leading principal components, largest first.

    Kept are as few as hold the share `energy` of the variance, `at_most` so many, never one that is only rounding.
    Constant features have no component: k is 0. Exact solvers, so that the result does not depend on a seed.

    >>> coordinates, variances = principal_components(np.array([[0.0, 0], [2, 0], [4, 0]]))
    >>> coordinates.shape, variances.tolist()
    ((3, 1), [4.0])
    """
    from sklearn.decomposition import PCA

    n, width = features.shape
    spread = np.abs(centred(features)).max()
    if n < 2 or spread == 0:
        return np.zeros((n, 0)), np.zeros(0)
    # Unit spread keeps squares of very small or very large features in range.
    model = PCA(svd_solver="covariance_eigh" if n > width else "full").fit(features / spread)
    variances = np.maximum(model.explained_variance_, 0.0)
    kept = int((variances > RELATIVE_TOLERANCE * variances[0]).sum())
    share = np.cumsum(variances) / variances.sum()
    kept = min(kept, int(np.searchsorted(share, energy - 1e-12)) + 1, at_most or kept)
    coordinates = (features / spread - model.mean_) @ model.components_[:kept].T
    return coordinates * spread, variances[:kept] * spread**2


def whole_number(value: Any, argument: str, *, least: int = 1) -> int:
    """An integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{argument} must be a whole number from {least} up; got {value!r}.")
    return int(value)
