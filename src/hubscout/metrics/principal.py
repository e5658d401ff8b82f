"""Principal components, for the metrics whose papers reduce the features first."""

from __future__ import annotations

import numpy as np

RELATIVE_TOLERANCE = 1e-12
"""A component with less than this share of the largest variance is rounding, not data."""


def principal_components(
    features: np.ndarray, *, at_most: int | None = None, energy: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Centred coordinates (n, k) and variances (k,) of the leading principal components, largest first.

    Kept are as few as hold the share `energy` of the variance, `at_most` so many, never one that is only rounding.
    Constant features have no component: k is 0. Exact solvers, so that the result does not depend on a seed.

    >>> import numpy as np
    >>> coordinates, variances = principal_components(np.array([[0.0, 0], [2, 0], [4, 0]]))
    >>> coordinates.shape, variances.tolist()
    ((3, 1), [4.0])
    """
    from sklearn.decomposition import PCA

    n, width = features.shape
    spread = np.abs(features - features.mean(axis=0)).max()
    if n < 2 or spread <= 4 * np.finfo(np.float64).eps * np.abs(features).max():
        return np.zeros((n, 0)), np.zeros(0)
    # Unit spread keeps squares of very small or very large features in range.
    model = PCA(svd_solver="covariance_eigh" if n > width else "full").fit(features / spread)
    variances = np.maximum(model.explained_variance_, 0.0)
    kept = int((variances > RELATIVE_TOLERANCE * variances[0]).sum())
    share = np.cumsum(variances) / variances.sum()
    kept = min(kept, int(np.searchsorted(share, energy - 1e-12)) + 1, at_most or kept)
    coordinates = (features / spread - model.mean_) @ model.components_[:kept].T
    return coordinates * spread, variances[:kept] * spread**2
