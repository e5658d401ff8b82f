"""PACTran-Gauss: a PAC-Bayesian bound on the loss after transfer."""

from __future__ import annotations

from typing import Any

import numpy as np

from hubscout.errors import InputError
from hubscout.metrics import inputs
from hubscout.metrics.metric_registry import Score, metric
from hubscout.metrics.softmax_head import fit_head, negative_log_likelihood, principal_axes


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
    features = inputs.real_matrix(features, "features")
    ids, classes = inputs.class_ids(targets, len(features))
    n, dimension = features.shape
    if not regularisation > 0:
        raise InputError(f"regularisation must be greater than 0; got {regularisation!r}.")
    variance = 10.0 / dimension if prior_variance is None else prior_variance
    if not variance > 0:
        raise InputError(f"prior_variance must be greater than 0; got {prior_variance!r}.")

    centred = inputs.centred(features)
    axes = principal_axes(centred)
    labels = np.eye(classes)[ids]
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
