"""SFDA: self-challenging Fisher discriminant analysis."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from hubscout.errors import InputError
from hubscout.metrics import inputs
from hubscout.metrics.discriminant import fit_discriminant, span, within_covariance, within_shrinkage
from hubscout.metrics.leep import mean_log
from hubscout.metrics.metric_registry import Score, metric


@metric("sfda")
def sfda(features: Any, targets: Any, *, shrinkage: float | None = None) -> Score:
    """Mean log-probability of the labels under a discriminant, after each sample was made harder to tell.

        S_λ = (1 − λ) S_W + λ (tr S_W / D) I                    the covariance within classes, shrunk
        p(c | f) ∝ exp( fᵀ S_λ⁻¹ μ_c − ½ μ_cᵀ S_λ⁻¹ μ_c + log n_c/n )
        f̂ = q f + (1 − q) μ̄_{≠y},   q = softmax(p(· | f))_y     mixed with the mean of the other classes' means
        SFDA = (1/n) Σ_i log p̂(y_i | f̂_i)                       p̂ fitted to the mixed features

    The paper's λ = exp(−5 σ), σ the largest eigenvalue of S_W, is taken where it is larger than the shrinkage of
    Ledoit and Wolf, which is the least that is used here: published code lets λ fall to 1e-10, and at n ≤ D every
    model then fits its labels perfectly. `shrinkage` fixes λ. Range: at most 0. Invariant to shifts and rotations, to
    the order of rows and to relabelling, but by the definition of λ not to the scale of the features. The mean is
    over logarithms, as the paper has it; published code takes the mean probability, writes over its input, and
    solves an eigenproblem whose solution cancels. Constant features give −H(Y).

    The standard error is that of the mean with the discriminant taken as given. Cost: O(nD² + D³), with n in place
    of D for the cubic part where n ≤ D.

    Shao et al., Not All Models Are Equal: Predicting Model Transferability in a Self-challenging Fisher Space,
    ECCV 2022.

    Args:
        features: (n, D) features.
        targets: n class ids.
        shrinkage: λ, from 0 to 1; None chooses it.

    Returns:
        The score, in nats per sample.

    Raises:
        InputError: another shrinkage, or arrays that do not fit together or are not finite.

    Example:
        >>> import numpy as np
        >>> labels = np.repeat([0, 1], 50)
        >>> noise = np.random.default_rng(0).normal(size=(100, 2))
        >>> sfda(np.eye(2)[labels] + 0.1 * noise, labels).value > sfda(noise, labels).value
        True

    """
    features = inputs.real_matrix(features, "features")
    ids, classes = inputs.class_ids(targets, len(features))
    if shrinkage is not None and not 0 < shrinkage <= 1:
        raise InputError(f"shrinkage must be greater than 0 and at most 1; got {shrinkage!r}.")
    dimension = features.shape[1]
    rows = span(features)
    if not rows.shape[1] or not rows.any():
        priors = np.bincount(ids) / len(ids)
        return mean_log(np.log(priors)[ids], shrinkage=1.0)
    chosen = _shrinkage(features, rows, ids) if shrinkage is None else float(shrinkage)

    easy = fit_discriminant(rows, ids, chosen, dimension=dimension)
    confidence = scipy.special.softmax(np.exp(easy.log_probabilities(rows)), axis=1)[np.arange(len(ids)), ids, None]
    others = (easy.means.sum(axis=0) - easy.means) / (classes - 1)
    mixed = confidence * rows + (1.0 - confidence) * others[ids]
    hard = fit_discriminant(mixed, ids, chosen, dimension=dimension)
    return mean_log(hard.log_probabilities(mixed)[np.arange(len(ids)), ids], shrinkage=chosen)


def _shrinkage(features: np.ndarray, rows: np.ndarray, ids: np.ndarray) -> float:
    within = within_covariance(rows, ids, inputs.class_means(rows, ids))
    last = len(within) - 1
    largest = float(scipy.linalg.eigh(within, eigvals_only=True, subset_by_index=[last, last])[0])
    if largest <= 0.0:
        return 1.0
    # Never quite zero, so that columns that depend on one another leave the covariance invertible.
    return float(min(max(np.exp(-5.0 * largest), within_shrinkage(features, ids), 1e-10), 1.0))
