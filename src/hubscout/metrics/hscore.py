"""H-score with a shrunk covariance."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from hubscout.metrics import inputs
from hubscout.metrics.metric_registry import Score, metric


@metric("h-score")
def h_score(features: Any, targets: Any) -> Score:
    """How much of the features' variance lies between the classes, direction by direction.

        H = (1 − λ) tr(Σ_λ⁻¹ Σ_B),     Σ_λ = (1 − λ) Σ + λ (tr Σ / D) I,     Σ_B = Σ_c (n_c/n) (μ_c − μ)(μ_c − μ)ᵀ

    Σ is the covariance of the features, μ_c the mean of class c, λ the shrinkage of Ledoit and Wolf. Range:
    0 ≤ H ≤ C − 1, because Σ_λ − (1 − λ) Σ_B is positive semi-definite and Σ_B has rank C − 1 or less. Invariant to
    shifts, rotations and one common scale of the features, to the order of rows and to relabelling. Constant
    features give 0.

    The plain H-score inverts Σ itself: at n ≤ D it is C − 1 for every model. Both covariances are divided by n here;
    published code divides one by n and the other by n − 1, which breaks the bound. Cost: O(nD² + D³).

    Bao et al., An Information-Theoretic Approach to Transferability in Task Transfer Learning, ICIP 2019; with
    shrinkage: Ibrahim, Ponomareva, Mazumder, Newer is not always better, 2021.

    Args:
        features: (n, D) features.
        targets: n class ids.

    Returns:
        The score; `details` has the shrinkage λ.

    Raises:
        InputError: arrays that do not fit together or are not finite.

    Example:
        >>> import numpy as np
        >>> generator = np.random.default_rng(0)
        >>> labels = np.repeat([0, 1, 2], 50)
        >>> near = h_score(np.eye(3)[labels] + 0.1 * generator.normal(size=(150, 3)), labels)
        >>> far = h_score(np.eye(3)[labels] + 3.0 * generator.normal(size=(150, 3)), labels)
        >>> bool(0 < far.value < 0.2 and 1.9 < near.value < 2)
        True

    """
    from sklearn.covariance import ledoit_wolf

    features = inputs.real_matrix(features, "features")
    ids, _ = inputs.class_ids(targets, len(features))
    centred = features - features.mean(axis=0)
    scale = np.sqrt(np.mean(centred**2))
    if scale <= np.finfo(np.float64).eps * np.abs(features).max():
        return Score(0.0, details={"shrinkage": 1.0})
    centred /= scale
    means = inputs.class_means(centred, ids)
    covariance, shrinkage = ledoit_wolf(centred, assume_centered=True)
    # Without any shrinkage the covariance of dependent columns is singular.
    covariance.flat[:: len(covariance) + 1] += 1e-12 * np.trace(covariance) / len(covariance)
    solved = scipy.linalg.cho_solve(scipy.linalg.cho_factor(covariance, lower=True), means.T)
    value = float(1.0 - shrinkage) * float(np.einsum("c,cd,dc->", np.bincount(ids) / len(ids), means, solved))
    return Score(value, details={"shrinkage": float(shrinkage)})
