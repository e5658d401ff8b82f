"""Fisher's discriminant with a shrunk within-class covariance, and the scores that ask it: H-score and SFDA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from hubscout.errors import InputError
from hubscout.metrics import inputs
from hubscout.metrics.leep import mean_log
from hubscout.metrics.metric_registry import Score, metric


@dataclass(frozen=True)
class Discriminant:
    """Classes as Gaussians with one covariance S = (1−λ) S_W + λ (tr S_W / D) I, and their frequencies as priors."""

    means: np.ndarray
    priors: np.ndarray
    factor: np.ndarray
    """Lower Cholesky factor of S."""

    def log_probabilities(self, rows: np.ndarray) -> np.ndarray:
        """Log p(class | row), (n, C)."""
        directions = scipy.linalg.cho_solve((self.factor, True), self.means.T)
        offsets = np.log(self.priors) - 0.5 * np.einsum("cd,dc->c", self.means, directions)
        return scipy.special.log_softmax(rows @ directions + offsets, axis=1)

    def project(self, rows: np.ndarray) -> np.ndarray:
        """Coordinates in the discriminant space, in units of the deviation within classes, (n, at most C − 1)."""
        centre = self.priors @ self.means
        whitened_means = scipy.linalg.solve_triangular(self.factor, (self.means - centre).T, lower=True)
        left, sizes, _ = np.linalg.svd(whitened_means * np.sqrt(self.priors), full_matrices=False)
        directions = left[:, : len(self.priors) - 1][:, sizes[: len(self.priors) - 1] > 1e-10 * max(sizes[0], 1e-300)]
        return scipy.linalg.solve_triangular(self.factor, (rows - centre).T, lower=True).T @ directions


def fit_discriminant(rows: np.ndarray, ids: np.ndarray, shrinkage: float, *, dimension: int) -> Discriminant:
    """Fit to `rows`; `dimension` is D of the features, of which rows may be the coordinates within their span."""
    means = inputs.class_means(rows, ids)
    within = within_covariance(rows, ids, means)
    level = np.trace(within) / dimension
    if level <= 0.0:
        # Every class is one point: any covariance separates them alike, so take the scale of the data.
        level, shrinkage = max(rows.var(axis=0).sum() / dimension, np.finfo(np.float64).tiny) * 1e-6, 1.0
    covariance = (1.0 - shrinkage) * within
    covariance.flat[:: len(covariance) + 1] += shrinkage * level
    return Discriminant(means, np.bincount(ids) / len(ids), scipy.linalg.cho_factor(covariance, lower=True)[0])


def within_covariance(rows: np.ndarray, ids: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Mean over samples of (f − μ_y)(f − μ_y)ᵀ."""
    residuals = rows - means[ids]
    return residuals.T @ residuals / len(rows)


def within_shrinkage(features: np.ndarray, ids: np.ndarray) -> float:
    """The shrinkage of Ledoit and Wolf for the covariance within classes; 1 where every class is one point."""
    from sklearn.covariance import ledoit_wolf_shrinkage

    residuals = features - inputs.class_means(features, ids)[ids]
    size = np.abs(residuals).max()
    return float(ledoit_wolf_shrinkage(residuals / size, assume_centered=True)) if size > 0 else 1.0


def span(features: np.ndarray) -> np.ndarray:
    """Centred features; where n ≤ D, their coordinates in the few directions that they span, which loses nothing."""
    if len(features) > features.shape[1]:
        return features - features.mean(axis=0)
    return inputs.principal_components(features)[0]


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

    features, ids, _ = inputs.with_classes(features, targets)
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
    features, ids, classes = inputs.with_classes(features, targets)
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
