"""GBC: the Bhattacharyya coefficients of the classes as Gaussians."""

from __future__ import annotations

from typing import Any

import numpy as np

from hubscout.errors import InputError
from hubscout.metrics import inputs
from hubscout.metrics.metric_registry import metric

COVARIANCES = ("spherical", "diagonal")
VARIANCE_FLOOR = 1e-4
"""Least variance of a class, as a share of the mean variance of all features."""


@metric("gbc")
def gbc(features: Any, targets: Any, *, covariance: str = "spherical", components: int = 64) -> float:
    """How much the classes overlap when each is a Gaussian, counted over all pairs, negative.

        GBC = −Σ_{a≠b} exp(−B(a, b))
        B(a, b) = ⅛ (μ_a − μ_b)ᵀ Σ⁻¹ (μ_a − μ_b) + ½ log( det Σ / √(det Σ_a det Σ_b) ),      Σ = (Σ_a + Σ_b) / 2

    μ_a and Σ_a are the mean and covariance of class a in the leading principal components: `"spherical"`, one
    variance per class, or `"diagonal"`. Range: −C(C−1) ≤ GBC ≤ 0; 0 when no two classes overlap. Invariant to shifts,
    rotations and one common scale, to the order of rows and to relabelling. A class of one sample has no variance of
    its own: variances are at least 1e-4 of the mean variance of all features, a share of it and not a fixed number,
    which would make the score depend on the scale. The determinant of a spherical covariance is that of k
    dimensions; published code counts one. Constant features give −C(C−1), the value of no separation at all.
    Cost: O(nD² + D³) for the components, O(C²k) for the pairs.

    Pándy et al., Transferability Estimation using Bhattacharyya Class Separability, CVPR 2022.

    Args:
        features: (n, D) features.
        targets: n class ids.
        covariance: "spherical" or "diagonal".
        components: how many principal components at most.

    Returns:
        The score.

    Raises:
        InputError: another covariance, or arrays that do not fit together or are not finite.

    Example:
        >>> import numpy as np
        >>> gbc(np.array([[0.0], [0.1], [9.0], [9.1]]), np.array([0, 0, 1, 1])) > -1e-6
        True

    """
    features = inputs.real_matrix(features, "features")
    ids, classes = inputs.class_ids(targets, len(features))
    if covariance not in COVARIANCES:
        raise InputError(f"covariance must be one of {', '.join(COVARIANCES)}; got {covariance!r}.")
    reduced, variances = inputs.principal_components(features, at_most=inputs.whole_number(components, "components"))
    if not len(variances):
        return -float(classes * (classes - 1))

    counts = np.bincount(ids)[:, None]
    means = inputs.class_means(reduced, ids)
    squares = inputs.class_means((reduced - means[ids]) ** 2, ids) * counts / np.maximum(counts - 1, 1)
    if covariance == "spherical":
        squares = np.broadcast_to(squares.mean(axis=1, keepdims=True), squares.shape)
    squares = np.maximum(squares, VARIANCE_FLOOR * variances.mean())

    total = 0.0
    logs = 0.5 * np.log(squares).sum(axis=1)
    for label in range(classes):
        pooled = 0.5 * (squares + squares[label])
        distances = 0.125 * ((means - means[label]) ** 2 / pooled).sum(axis=1)
        distances += 0.5 * (np.log(pooled).sum(axis=1) - logs - logs[label])
        total += np.exp(-np.delete(np.maximum(distances, 0.0), label)).sum()
    return -float(total)
