"""What a linear head promises: Laplace's approximation to its evidence, and PACTran's bound on its loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hubscout.errors import InputError, check_choice
from hubscout.metrics import inputs
from hubscout.metrics.metric_registry import KINDS, Score, metric
from hubscout.metrics.softmax_head import Axes, fit_head, negative_log_likelihood, principal_axes

CURVATURES = ("kronecker", "full")
MOST_FULL_WEIGHTS = 2000


@metric("laplace", kinds=KINDS)
def laplace(
    features: Any,
    targets: Any,
    kind: str = "classification",
    *,
    intercept: bool = True,
    curvature: str = "kronecker",
) -> Score:
    """Log evidence of a linear head per sample, by Laplace's approximation, with the best prior precision α.

        log p(y | F) ≈ max_α  log p(y | F, W*) − (α/2) ‖W*‖² + (P/2) log α − ½ log det(H + αI)

    W* is the mode for the prior N(0, α⁻¹) on all P weights, the intercept among them; H the Gauss-Newton Hessian of
    the loss there. Classification: softmax likelihood. H = Σ_i z_i z_iᵀ ⊗ (diag p_i − p_i p_iᵀ) has (CD)² entries, so
    that by default its Kronecker factors stand for it, ZᵀZ ⊗ (1/n) Σ_i (diag p_i − p_i p_iᵀ), as the paper's baseline
    does; `curvature="full"` takes all of it, up to 2000 weights. Multilabel: a logistic likelihood a label, divided
    by the number of labels. Regression: Gaussian likelihood with one noise and one prior precision for all columns,
    both at their best; the approximation is then exact, and with one column and no intercept it is LogME.

    Range: at most 0 for classes and labels; not bounded for regression. Invariant to rotation and one common scale of
    the features (they are brought to a mean square of 1), to columns of zeros but for that scale, to the order of
    rows and to relabelling. Cost: O(nD² + D³), then about 20 fits of tens of steps of O(nDC).

    Immer et al., Scalable Marginal Likelihood Estimation for Model Selection in Deep Learning, ICML 2021.

    Args:
        features: (n, D) features.
        targets: of the rows: class ids, a 0/1 matrix, or columns of numbers.
        kind: "classification", "multilabel" or "regression".
        intercept: whether the head has one.
        curvature: "kronecker" or "full".

    Returns:
        The score, in nats per sample.

    Raises:
        InputError: another curvature, too many weights for the full one, or arrays that do not fit together or are not
            finite.

    Example:
        >>> import numpy as np
        >>> labels = np.repeat([0, 1], 50)
        >>> noise = np.random.default_rng(0).normal(size=(100, 2))
        >>> laplace(np.eye(2)[labels] + 0.1 * noise, labels).value > laplace(noise, labels).value
        True

    """
    features = inputs.real_matrix(features, "features")
    check_choice("curvature", curvature, CURVATURES)
    size = np.abs(features).max()
    scale = size * np.sqrt(np.mean((features / size) ** 2)) if size > 0 else 1.0
    rows = features / scale
    if intercept:
        rows = np.column_stack([rows, np.ones(len(rows))])
    if not rows.any():
        raise InputError("features are all 0: without an intercept there is nothing to fit.")

    values, axes = inputs.values_of(targets, len(features), kind), principal_axes(rows)
    if kind == "regression":
        return _gaussian(axes, values)
    softmax = kind == "classification"
    labels = inputs.one_hot(values) if softmax else values
    if curvature == "full" and len(axes.squares) * labels.shape[1] > MOST_FULL_WEIGHTS:
        raise InputError(
            f"curvature='full' would need a matrix of {len(axes.squares) * labels.shape[1]} rows; "
            f"at most {MOST_FULL_WEIGHTS}. Use curvature='kronecker'."
        )
    divisor = len(features) * (1 if softmax else labels.shape[1])
    best, precision = _maximise(_evidence(axes, labels, softmax=softmax, full=curvature == "full"))
    return Score(best / divisor, details={"alpha": precision})


def _evidence(axes: Axes, labels: np.ndarray, *, softmax: bool, full: bool) -> Callable[[float], float]:
    """The approximate log evidence as a function of log α; each fit starts from the last one."""
    start: np.ndarray | None = None

    def evidence(log_precision: float) -> float:
        nonlocal start
        precision = float(np.exp(log_precision))
        start = fit_head(
            axes.rows,
            axes.squares,
            labels,
            np.full(len(axes.squares), precision),
            softmax=softmax,
            start=start,
        )
        loss, residual = negative_log_likelihood(axes.rows @ start, labels, softmax=softmax)
        probabilities = residual + labels
        eigenvalues = (_full if full else _kronecker)(axes, probabilities, softmax=softmax)
        # P log α and the directions without data cancel against the determinant.
        complexity = 0.5 * float(np.log1p(np.maximum(eigenvalues, 0.0) / precision).sum())
        return -loss - 0.5 * precision * float((start**2).sum()) - complexity

    return evidence


def _kronecker(axes: Axes, probabilities: np.ndarray, *, softmax: bool) -> np.ndarray:
    if softmax:
        outputs = np.diag(probabilities.mean(axis=0)) - probabilities.T @ probabilities / len(probabilities)
        curvatures = np.linalg.eigvalsh(outputs)
    else:
        curvatures = (probabilities * (1.0 - probabilities)).mean(axis=0)
    return np.outer(axes.squares, np.maximum(curvatures, 0.0))


def _full(axes: Axes, probabilities: np.ndarray, *, softmax: bool) -> np.ndarray:
    classes, width = probabilities.shape[1], len(axes.squares)
    hessian = np.zeros((classes, width, classes, width))
    for first in range(classes):
        for second in range(first, classes if softmax else first + 1):
            same = 1.0 if first == second else 0.0
            weights = probabilities[:, first] * (same - probabilities[:, second])
            block = axes.rows.T @ (weights[:, None] * axes.rows)
            hessian[first, :, second] = block
            hessian[second, :, first] = block
    return np.linalg.eigvalsh(hessian.reshape(classes * width, classes * width))


def _gaussian(axes: Axes, columns: np.ndarray) -> Score:
    """The exact evidence of a Gaussian head, with t = α/β shared by all columns: see `hubscout.evidence`."""
    n, count = columns.shape
    squared = ((axes.rows.T @ columns) ** 2).sum(axis=1) / axes.squares
    residual = max(float((columns**2).sum() - squared.sum()), 0.0)
    floor = np.finfo(np.float64).tiny

    def evidence(log_ratio: float) -> float:
        shrunk = 1.0 / (1.0 + axes.squares * np.exp(-log_ratio))
        fitted = max(residual + float((squared * shrunk).sum()), floor)
        complexity = float(np.log1p(axes.squares * np.exp(-log_ratio)).sum()) / n
        return 0.5 * (np.log(n * count / fitted) - complexity - 1.0 - np.log(2.0 * np.pi))

    centre = float(np.log(axes.squares.mean()))
    best, ratio = _maximise(evidence, low=centre - 28.0, high=centre + 28.0)
    return Score(best, details={"alpha_over_beta": ratio})


def _maximise(evidence: Callable[[float], float], *, low: float = -7.0, high: float = 21.0) -> tuple[float, float]:
    """The maximum over a coarse grid from the strongest prior to the weakest, refined between its neighbours."""
    from scipy.optimize import minimize_scalar

    grid = np.linspace(high, low, 9)
    values = [evidence(point) for point in grid]
    place = int(np.argmax(values))
    around = grid[min(place + 1, len(grid) - 1)], grid[max(place - 1, 0)]
    found = minimize_scalar(lambda point: -evidence(point), bounds=around, method="bounded", options={"xatol": 1e-2})
    if -found.fun < values[place]:
        return float(values[place]), float(np.exp(grid[place]))
    return float(-found.fun), float(np.exp(found.x))


@metric("pactran")
def pactran(features: Any, targets: Any, *, regularisation: float = 1.0, prior_variance: float | None = None) -> Score:
    """Minus the PAC-Bayesian bound on the cross-entropy of a linear head, with Gaussian prior and posterior.

        bound  = min_W { L(W) + ‖W‖² / (2βσ₀²) } + (CD / 2β) log( 1 + (βσ₀² / CD) tr ∇²L )
        PACTran = −bound

    L is the mean cross-entropy of a softmax head with weights W and an intercept b that is free, on centred features;
    tr ∇²L the trace of its Hessian by W at the minimum. βσ₀² = `regularisation` · n, σ₀² = `prior_variance`, 10/D
    where None. Range: at most 0. Invariant to shifts and rotations, to columns of zeros only through D, to the order
    of rows and to relabelling; it does depend on the scale of the features, which the prior is about.

    The authors' code tries σ₀² of 10/D and of 100/D for this regularisation. The second term grows with σ₀²: at 100/D
    and few samples (90 in the tests) it outweighs the first, and constant features score best; hence the default.

    The Hessian is that of the mean loss, which the bound is about; the authors' code takes that of the sum, and the
    intercept's with it. Constant features give −H(Y). Cost: O(nD² + D³), then O(nDC) a step of at most 200.

    Ding et al., PACTran: PAC-Bayesian Metrics for Estimating the Transferability of Pretrained Models to
    Classification Tasks, ECCV 2022.

    Args:
        features: (n, D) features.
        targets: n class ids.
        regularisation: βσ₀²/n, above 0.
        prior_variance: σ₀², above 0; None is 10/D.

    Returns:
        The score.

    Raises:
        InputError: an option that is not above 0, or arrays that do not fit together or are not finite.

    Example:
        >>> import numpy as np
        >>> labels = np.repeat([0, 1], 50)
        >>> noise = np.random.default_rng(0).normal(size=(100, 2))
        >>> pactran(np.eye(2)[labels] + 0.1 * noise, labels).value > pactran(noise, labels).value
        True

    """
    features, ids, classes = inputs.with_classes(features, targets)
    n, dimension = features.shape
    if not regularisation > 0:
        raise InputError(f"regularisation must be greater than 0; got {regularisation!r}.")
    variance = 10.0 / dimension if prior_variance is None else prior_variance
    if not variance > 0:
        raise InputError(f"prior_variance must be greater than 0; got {prior_variance!r}.")

    centred = inputs.centred(features)
    axes = principal_axes(centred)
    labels = inputs.one_hot(ids)
    weight_precision = 1.0 / regularisation
    rows = np.column_stack([axes.rows, np.ones(n)])
    weights = fit_head(
        rows,
        np.append(axes.squares, float(n)),
        labels,
        np.append(np.full(len(axes.squares), weight_precision), 0.0),
        tolerance=1e-6,
    )
    loss, residual = negative_log_likelihood(rows @ weights, labels, softmax=True)
    fitted = (loss + 0.5 * weight_precision * float((weights[:-1] ** 2).sum())) / n

    probabilities = residual + labels
    curvature = float(((centred**2).sum(axis=1) * (probabilities * (1.0 - probabilities)).sum(axis=1)).sum()) / n
    size, scaled = classes * dimension, regularisation * n
    flatness = 0.5 * size * variance / scaled * float(np.log1p(scaled / size * curvature))
    return Score(-(fitted + flatness), details={"fitted": fitted, "flatness": flatness})
