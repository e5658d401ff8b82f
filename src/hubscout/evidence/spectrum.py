"""The spectrum of the features, and the targets seen in it: from FᵀF (primal) or from FFᵀ (dual).

With F = U Σ Vᵀ, the evidence of a target y depends on σ², on z = Uᵀy, and on what of y no feature reaches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hubscout.evidence.arrays import Array, is_torch, namespace, to_host
from hubscout.evidence.eigenvectors import Eigenvectors, WrittenOut, symmetric_eigh
from hubscout.evidence.statistics import Block

EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Spectrum:
    """σ², z and the unreachable part Δ of every target. r is the numerical rank, C the number of targets."""

    n: int
    """How many observations the targets are: the samples, less one where centring spent one on the means."""
    feature_dim: int
    squared_singular_values: Array
    """σ², (r,), rising."""
    projections: Array
    """z, (C, r)."""
    unreachable_squares: Array
    """Δ = ‖y‖² - ‖z‖², (C,); zero where the rank is n, and never below what float64 can tell from zero otherwise."""
    target_squares: Array
    """‖y‖², (C,)."""
    vectors: Eigenvectors
    """V, (D, r): the right singular vectors. While a fit in the dual runs, U, (n, r)."""

    @property
    def basis(self) -> Array:
        """V (or U) as a matrix."""
        return self.vectors.matrix

    @property
    def rank(self) -> int:
        """r, the number of directions that the features really have."""
        return int(self.squared_singular_values.shape[0])


def rank_threshold(n: int, feature_dim: int) -> float:
    """Eigenvalues below this fraction of the largest are rounding. Relative, so that scale does not matter."""
    return max(n, feature_dim) * EPSILON


def primal_spectrum(block: Block, *, overwrite: bool = False) -> Spectrum:
    """The spectrum from the sufficient statistics: one D × D eigenproblem. It may `overwrite` the block's Gram."""
    dim = int(block.cross.shape[1])
    values, vectors = symmetric_eigh(block.upper_gram, overwrite=overwrite)
    start = _first_kept(values, block.n, dim)
    values, vectors = values[start:], vectors.since(start)
    projections = vectors.coordinates(block.cross) / namespace(values).sqrt(values)
    return _finish(block.n, dim, values, projections, block.target_squares, vectors)


def dual_spectrum(inner: Array, targets: Array, n: int, feature_dim: int) -> Spectrum:
    """The spectrum from FFᵀ, which may be overwritten, and targets with as many rows. `n` as in `Spectrum`."""
    values, vectors = symmetric_eigh(inner)
    start = _first_kept(values, n, feature_dim)
    squares = (targets**2).sum(0)
    values, vectors = values[start:], vectors.since(start)
    return _finish(n, feature_dim, values, vectors.coordinates(targets.T), squares, vectors)


def singular_spectra(features: Array, targets: Array, n: int) -> tuple[Spectrum, Spectrum]:
    """The spectrum with U and the spectrum with V as its basis, by singular value decomposition of (n, D) features."""
    dim = int(features.shape[1])
    if is_torch(features):
        left, singular, right = namespace(features).linalg.svd(features, full_matrices=False)
    else:
        from scipy.linalg import svd

        left, singular, right = svd(features, full_matrices=False, check_finite=False)
    xp = namespace(features)
    # Rising, as from the other decompositions. Rounding is a fraction of σ here, so of σ² it is the square of that.
    values, left, right = xp.flip(singular) ** 2, xp.flip(left, axis=(1,)), xp.flip(right, axis=(0,))
    start = _first_kept(values, n, dim, rank_threshold(n, dim) ** 2)
    values, left, right = values[start:], left[:, start:], right[start:]
    with_left = _finish(n, dim, values, targets.T @ left, (targets**2).sum(0), WrittenOut(left))
    return with_left, replace(with_left, vectors=WrittenOut(right.T))


def score_rounding(spectrum: Spectrum, ratio: np.ndarray) -> float:
    """About how much of the score is rounding, for a spectrum that came from squared features.

    Every σ² is wrong by about ε·σ₁², and the log determinant by that over t + σ²; the errors are independent.
    """
    finite = ratio[np.isfinite(ratio)]
    if not spectrum.rank or not len(finite):
        return 0.0
    values = to_host(spectrum.squared_singular_values)
    return 8 * EPSILON * float(np.linalg.norm(values[-1] / (values + finite.min()))) / spectrum.n


def _first_kept(values: Array, n: int, feature_dim: int, threshold: float | None = None) -> int:
    """Where the eigenvalues that are not rounding begin; no more of them than samples or dimensions can give."""
    size = int(values.shape[0])
    largest = float(values[-1])
    if largest <= 0:
        return size
    kept = int((values > largest * (rank_threshold(n, feature_dim) if threshold is None else threshold)).sum())
    return size - min(kept, n, feature_dim)


def _finish(
    n: int, feature_dim: int, values: Array, projections: Array, squares: Array, vectors: Eigenvectors
) -> Spectrum:
    xp = namespace(values)
    if int(values.shape[0]) == n:
        # n independent directions reach every target; what rounding leaves over is nothing.
        unreachable = xp.zeros_like(squares)
    else:
        # Below n·ε·‖y‖² the difference is rounding. The floor keeps noise-free labels finite: their evidence grows
        # without bound as the noise goes to zero, and float64 cannot tell such noise from none.
        unreachable = xp.maximum(squares - (projections**2).sum(1), n * EPSILON * squares)
    return Spectrum(n, feature_dim, values, projections, unreachable, squares, vectors)
