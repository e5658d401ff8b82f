"""Fisher's discriminant with a shrunk within-class covariance; shared by `sfda`, `ncti` and `etran`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from hubscout.metrics.inputs import class_means, principal_components


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
    means = class_means(rows, ids)
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

    residuals = features - class_means(features, ids)[ids]
    size = np.abs(residuals).max()
    return float(ledoit_wolf_shrinkage(residuals / size, assume_centered=True)) if size > 0 else 1.0


def span(features: np.ndarray) -> np.ndarray:
    """Centred features; where n ≤ D, their coordinates in the few directions that they span, which loses nothing."""
    if len(features) > features.shape[1]:
        return features - features.mean(axis=0)
    return principal_components(features)[0]
