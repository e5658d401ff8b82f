"""A linear head fitted by penalised maximum likelihood; shared by `laplace`, `pactran` and `linear-probe`.

The inputs are rotated to their principal axes first, which changes nothing for a rotation-invariant penalty, and each
weight is measured in the units of its expected curvature: L-BFGS then needs tens of steps where it would need hundreds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy


@dataclass(frozen=True)
class Axes:
    """Rows in the basis of their (uncentred) principal axes: `rows` = Z V, with `squares` the eigenvalues of ZᵀZ."""

    rows: np.ndarray
    squares: np.ndarray
    directions: np.ndarray
    """V, (D, r): weights in the original basis are V times those in this one."""


def principal_axes(rows: np.ndarray) -> Axes:
    """Rotate; directions without data are dropped, because a penalised weight is 0 there."""
    n, width = rows.shape
    dual = n < width
    squares, vectors = np.linalg.eigh(rows @ rows.T if dual else rows.T @ rows)
    kept = squares > max(n, width) * np.finfo(np.float64).eps * squares[-1]
    squares, vectors = squares[kept], vectors[:, kept]
    directions = rows.T @ (vectors / np.sqrt(squares)) if dual else vectors
    return Axes(rows @ directions, squares, directions)


def fit_head(
    rows: np.ndarray,
    squares: np.ndarray,
    labels: np.ndarray,
    precisions: np.ndarray,
    *,
    softmax: bool = True,
    start: np.ndarray | None = None,
    tolerance: float = 1e-5,
) -> np.ndarray:
    """Weights (r, C) that minimise −log p(labels | rows · weights) + ½ Σ_j precisions_j ‖weights_j‖².

    `labels` are (n, C): one-hot with `softmax`, else any 0/1 matrix, each column a logistic regression. `precisions`
    (r,) may be 0, for an intercept. `squares` (r,) are the sums of squares of the columns. `tolerance` is the largest
    derivative at the end, per sample and in the units of the curvature.
    """
    from scipy.optimize import minimize

    n, classes = labels.shape
    typical = max(1.0 / classes * (1.0 - 1.0 / classes), 0.01) if softmax else 0.25
    units = (1.0 / np.sqrt(squares * typical + precisions))[:, None]

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(len(squares), classes) * units
        loss, residual = negative_log_likelihood(rows @ weights, labels, softmax=softmax)
        penalised = precisions[:, None] * weights
        gradient = (rows.T @ residual + penalised) * units
        return (loss + 0.5 * float((penalised * weights).sum())) / n, gradient.ravel() / n

    first = np.zeros((len(squares), classes)) if start is None else start / units
    found = minimize(
        objective,
        first.ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 200, "gtol": tolerance / np.sqrt(n), "ftol": 1e-10, "maxcor": 20},
    )
    return found.x.reshape(len(squares), classes) * units


def negative_log_likelihood(logits: np.ndarray, labels: np.ndarray, *, softmax: bool) -> tuple[float, np.ndarray]:
    """The loss summed over samples, and its derivative by the logits."""
    if softmax:
        normaliser = scipy.special.logsumexp(logits, axis=1, keepdims=True)
        loss = float(normaliser.sum() - (labels * logits).sum())
        return loss, np.exp(logits - normaliser) - labels
    loss = -float((labels * scipy.special.log_expit(logits) + (1.0 - labels) * scipy.special.log_expit(-logits)).sum())
    return loss, scipy.special.expit(logits) - labels
