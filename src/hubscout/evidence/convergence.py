"""Section 4.1 of the paper: when the fixed-point iteration converges.

MacKay's update of α and β is, for t = α/β alone, t' = f(t) (Theorem 1). A fixed point is a stationary point of the
evidence. Theorem 2 is a sufficient condition for one: r < n, and Σ_ij (z_i² - z_j²)(σ_i² - σ_j²) > 0. The sum is
2 (n Σ z²σ² - ‖y‖² Σ σ²), which is the slope of the evidence at t = ∞ in 1/t: the condition says that the null model
is not even a local maximum.
"""

from __future__ import annotations

import numpy as np

from hubscout.errors import InputError
from hubscout.evidence.array_backend import to_host
from hubscout.evidence.evidence import Evidence, kept_spectrum


def fixed_point_map(evidence: Evidence, t: float | np.ndarray) -> np.ndarray:
    """Evaluate f(t) of Theorem 1 for every scored target.

    Args:
        evidence: fitted with its spectrum.
        t: positive ratios α/β, of any shape.

    Returns:
        An array of shape (C, *shape of t).

    Raises:
        InputError: a `t` that is not positive and finite, or an evidence without a spectrum.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from hubscout.evidence import logme
        >>> result = logme(*load_iris(return_X_y=True))
        >>> bool(np.allclose(np.diag(fixed_point_map(result, result.ratio)), result.ratio))
        True

    """
    spectrum = kept_spectrum(evidence)
    points = np.asarray(t, dtype=np.float64)
    if not (np.isfinite(points).all() and (points > 0).all()):
        raise InputError("t must be positive and finite.")
    values, projections = to_host(spectrum.squared_singular_values), to_host(spectrum.projections)
    odds = values[:, None] / points.ravel()[None, :]
    shrunk = 1 / (1 + odds)
    gamma = (odds * shrunk).sum(0)
    squares = projections**2
    errors = squares @ shrunk**2 + to_host(spectrum.unreachable_squares)[:, None]
    mean_squares = (squares @ (odds * shrunk**2)) / points.ravel()
    with np.errstate(divide="ignore"):
        mapped = gamma / mean_squares * (errors / (spectrum.n - gamma))
    return mapped.reshape(len(squares), *points.shape)


def convergence_margin(evidence: Evidence) -> np.ndarray:
    """N Σ z²σ² / (‖y‖² Σ σ²) - 1 of every scored target, (C,): positive where Theorem 2's sum is.

    It is 0 for targets that have nothing to do with the features, and at most n σ₁²/Σσ² - 1.

    Args:
        evidence: fitted with its spectrum.

    Returns:
        (C,), the margin of every scored target.

    Raises:
        InputError: the evidence has no spectrum.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from hubscout.evidence import logme
        >>> convergence_margin(logme(*load_iris(return_X_y=True))).round(2).tolist()
        [29.67, 48.39, 67.54]

    """
    spectrum = kept_spectrum(evidence)
    values = to_host(spectrum.squared_singular_values)
    weighted = to_host(spectrum.projections) ** 2 @ values
    total = values.sum() * to_host(spectrum.target_squares)
    return np.divide(spectrum.n * weighted, total, out=np.ones(len(total)), where=total > 0) - 1


def convergence_guaranteed(evidence: Evidence) -> np.ndarray:
    """Theorem 2 for every scored target, (C,): True where a fixed point must exist. It is sufficient, not necessary.

    Args:
        evidence: fitted with its spectrum.

    Returns:
        (C,) truth values.

    Raises:
        InputError: the evidence has no spectrum.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from hubscout.evidence import logme
        >>> convergence_guaranteed(logme(*load_iris(return_X_y=True))).tolist()
        [True, True, True]

    """
    return (convergence_margin(evidence) > 0) & (evidence.rank < kept_spectrum(evidence).n)
