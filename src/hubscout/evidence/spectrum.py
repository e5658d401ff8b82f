"""The spectrum of the features, and the targets seen in it: from FᵀF (primal) or from FFᵀ (dual).

With F = U Σ Vᵀ, the evidence of a target y depends on σ², on z = Uᵀy, and on what of y no feature reaches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hubscout.errors import InputError
from hubscout.evidence.array_backend import EPSILON, Array, fetched, is_torch, namespace, to_host, upper_times
from hubscout.evidence.block import Block
from hubscout.evidence.eigenvectors import Eigenvectors, Reduced, WrittenOut, symmetric_eigh
from hubscout.evidence.offset import MeanDirection, is_far, mean_direction, without

SMALLEST_REST = 1e-4
"""Δ over ‖y‖², below which it is not found as a difference of forms."""

MOST_REPEATED = 2.0
"""Samples for each different one, up to which a perfect fit is laid to the repetitions and not to the labels."""


@dataclass(frozen=True)
class Spectrum:
    """σ², z and the unreachable part Δ of every target. r is the numerical rank, C the number of targets."""

    n: float
    """How many observations the targets are: the samples, less one where centring spent one on the means."""
    feature_dim: int
    squared_singular_values: Array
    """σ², (r,), rising."""
    projected: Array | None
    """z, (C, r), if it is known already."""
    unreachable_squares: Array
    """Δ = ‖y‖² - ‖z‖², (C,); zero where the rank is n, and never below what float64 can tell from zero otherwise."""
    target_squares: Array
    """‖y‖², (C,)."""
    vectors: Eigenvectors
    """V, (D, r): the right singular vectors. While a fit in the dual runs, U, (n, r)."""
    noise_free: Array
    """(C,): whether Δ is nothing that float64 can tell from zero, so that the evidence has no bound."""
    repeated: Array
    """(C,): whether Δ is zero because samples occur again where there are features enough to fit every other one."""
    magnitude: float
    """The largest square that σ² came from: σ² are wrong by about ε times this. Zero if they came from σ."""
    target_magnitude: Array
    """(C,): the largest square that Δ came from. Zero if it came from the residuals."""
    cut: float = 0.0
    """The σ² up to which directions were taken for rounding and left out; zero where none was."""
    mean_coordinates: Array | None = None
    """Vᵀμ, (r,), where the mean μ of uncentred features is so large that the product would be rounding."""

    reduced: Reduced | None = None
    """The targets where z is not known."""
    multiplicities: np.ndarray | None = None
    """How many directions every σ² stands for, (r,), where that is not one: see `condensed`."""

    @cached_property
    def projections(self) -> Array:
        """z, (C, r)."""
        if self.projected is not None:
            return self.projected
        assert self.reduced is not None
        return self.reduced.projections(self.reduced.columns.T, self.squared_singular_values)

    @property
    def whole(self) -> Spectrum:
        """The spectrum direction by direction: itself, unless it is condensed."""
        return self

    @property
    def basis(self) -> Array:
        """V (or U) as a matrix."""
        return self.vectors.matrix

    @property
    def rank(self) -> int:
        """r, the number of directions that the features really have."""
        return int(self.squared_singular_values.shape[0])


def by_observations(spectrum: Spectrum) -> Iterator[tuple[np.ndarray, Spectrum]]:
    """The targets whose observations are all samples, then those where repeated samples are no observations.

    U takes the n samples to r rows with targets z, and to n - r rows of zeros. Where samples occur again and the
    features fit all others, those zeros are no sign that there is no noise: they would be there with any labels. So
    the r rows are the data.
    """
    repeated = to_host(spectrum.repeated)
    for chosen, n in ((~repeated, spectrum.n), (repeated, spectrum.rank)):
        if chosen.all():
            yield chosen, replace(spectrum, n=n)
        elif chosen.any():
            rows = np.flatnonzero(chosen)
            names = ("projected", "unreachable_squares", "target_squares", "noise_free", "repeated", "target_magnitude")
            yield chosen, replace(spectrum, n=n, **{name: getattr(spectrum, name)[rows] for name in names})


def kept(spectrum: Spectrum | None) -> Spectrum:
    """The spectrum of a fit with all its directions, or an error that says how to keep it."""
    if spectrum is None:
        raise InputError("This evidence has no spectrum: fit with keep_spectrum=True.")
    return spectrum.whole


def rank_threshold(n: float, feature_dim: int) -> float:
    """Eigenvalues below this fraction of the largest are rounding. Relative, so that scale does not matter."""
    return max(n, feature_dim) * EPSILON


Condense = Callable[[Block, float, float], Spectrum | None]
"""From sums, n and drift as in `from_sums` to a spectrum without eigenvectors, where there is one."""


def primal_spectrum(block: Block, *, center: bool = False, condense: Condense | None = None) -> Spectrum:
    """The spectrum of features, as they came or centred, from their sums, which are overwritten.

    One D × D eigenproblem, unless the spectrum can be condensed.
    """
    n, step = block.n, block.feature_sum / block.n
    mean = block.shift + step
    drift, square, spread = (float(one) for one in fetched(step @ step, mean @ mean, block.upper_gram.diagonal().sum()))
    drift *= n
    if not center and not is_far(square, n, spread - drift):
        block.move(block.shift, block.target_shift)
        return (condense and condense(block, n, drift)) or from_sums(block, n, drift)
    target_step = block.target_sum / n
    target_mean = block.target_shift + target_step
    block.move(-step, -target_step)
    if center:
        return (condense and condense(block, n - 1, drift)) or from_sums(block, n - 1, drift)
    direction = mean_direction(lambda vector: upper_times(block.upper_gram, vector), mean, n)
    return _beside(direction, block, target_mean, drift)


def from_sums(block: Block, n: float, drift: float) -> Spectrum:
    """The spectrum of the features whose sums these are, which are overwritten: `drift` was lost from their squares."""
    dim = int(block.cross.shape[1])
    used = int((block.upper_gram.diagonal() > 0).sum())
    values, vectors = symmetric_eigh(block.upper_gram)
    magnitude = float(values[-1]) + drift
    rounding = magnitude * rank_threshold(n, dim)
    most = block.rows - round(block.n - n)  # less the one that centring spends
    start = _first_kept(values, most, dim, rounding)
    values, vectors = values[start:], vectors.since(start)
    reduced = Reduced.of(vectors, block.cross, values, dual=False) if dim < min(most, n) else None
    if reduced is not None:
        reached = (reduced.columns * reduced.vectors.middle.solve_all(reduced.columns)).sum(0)
        left = block.target_squares - reached
        if (left > SMALLEST_REST * block.target_squares).all():
            found = _finish(n, dim, values, None, block.target_squares, vectors, magnitude, left)
            return replace(found, reduced=reduced)
    projections = vectors.coordinates(block.cross) / namespace(values).sqrt(values)
    weighted = block.rows != block.n
    found = _finish(n, dim, values, projections, block.target_squares, vectors, magnitude, weighted=weighted, used=used)
    return replace(found, cut=rounding) if found.rank < min(most, used) else found


def _beside(direction: MeanDirection, centred: Block, target_mean: Array, drift: float) -> Spectrum:
    """The spectrum of uncentred features from centred sums: the direction of the mean, and what is beside it."""
    n, dim = centred.n, int(centred.cross.shape[1])
    xp = namespace(centred.cross)
    used = int((centred.upper_gram.diagonal() > 0).sum())
    inner = centred.cross @ direction.vector
    across = n * float(direction.across @ direction.across)
    rest = max(float(centred.upper_gram.diagonal().sum()), 0.0) + across + drift
    upper, cross = without(direction, centred, target_mean, 2 * rest or direction.square)
    values, vectors = symmetric_eigh(upper)
    # Where all rows are the same, what is beside their mean is rounding.
    magnitude = (float(values[-2]) if dim > 1 else 0.0) + drift if rest else direction.square
    rounding = magnitude * rank_threshold(n, dim)
    start = min(_first_kept(values[:-1], centred.rows - 1, dim - 1, rounding), dim - 1)
    values, vectors = values[start:], vectors.since(start)
    values[-1] = direction.square
    roots = xp.sqrt(values)
    projections = vectors.coordinates(cross) / roots
    sign = 1.0 if float(vectors.coordinates(direction.vector[None, :])[0, -1]) > 0 else -1.0
    projections[:, -1] = sign * (inner + (n * direction.along) * target_mean) / roots[-1]
    within = direction.left_over(centred.target_squares, target_mean, inner, n)
    squares = centred.target_squares + n * target_mean**2
    left = within - (projections[:, :-1] ** 2).sum(1)
    weighted = centred.rows != n
    parts = (squares, vectors, magnitude, left, within)
    found = _finish(n, dim, values, projections, *parts, weighted=weighted, used=used)
    if found.rank < min(centred.rows, used):
        found = replace(found, cut=rounding)
    coordinates = vectors.coordinates(direction.across[None, :])[0]
    coordinates[-1] = sign * direction.along
    return replace(found, mean_coordinates=coordinates)


def dual_spectrum(inner: Array, targets: Array, n: float, feature_dim: int) -> Spectrum:
    """The spectrum from FFᵀ, which may be overwritten, and targets with as many rows. `n` as in `Spectrum`."""
    values, vectors = symmetric_eigh(inner)
    magnitude = float(values[-1])
    rounding = magnitude * rank_threshold(n, feature_dim)
    start = _first_kept(values, n, feature_dim, rounding)
    squares = (targets**2).sum(0)
    values, vectors = values[start:], vectors.since(start)
    reduced = Reduced.of(vectors, targets.T, values, dual=True) if len(values) == n else None
    if reduced is not None:
        return replace(_finish(n, feature_dim, values, None, squares, vectors, magnitude, 0 * squares), reduced=reduced)
    found = _finish(n, feature_dim, values, vectors.coordinates(targets.T), squares, vectors, magnitude)
    return replace(found, cut=rounding) if found.rank < min(n, feature_dim) else found


def singular_spectra(
    features: Array, targets: Array, n: float, direction: MeanDirection | None = None
) -> tuple[Spectrum, Spectrum]:
    """The spectrum with U and the spectrum with V as its basis, by singular value decomposition of (n, D) features.

    With a `direction`, the features are the centred ones, and the spectrum is that of the uncentred.
    """
    dim = int(features.shape[1])
    xp = namespace(features)
    mean = targets.mean(0)
    squares, within = (targets**2).sum(0), ((targets - mean) ** 2).sum(0)
    rest, limit = targets, min(n, dim)
    if direction is not None:
        along = features @ direction.vector
        features = features - along[:, None] * direction.vector[None, :] + direction.across[None, :]
        first = ((along + direction.along) / direction.square**0.5)[:, None]
        top, rest = direction.split(targets - mean, mean, along)
        limit -= 1
    left, singular, right = _svd(features)
    # Rising, as from the other decompositions. Rounding is a fraction of σ here, so of σ² it is the square of that.
    values, left, right = xp.flip(singular) ** 2, xp.flip(left, axis=(1,)), xp.flip(right, axis=(0,))
    start = _first_kept(values, limit, dim, float(values[-1]) * rank_threshold(n, dim) ** 2)
    values, left, right = values[start:], left[:, start:], right[start:]
    projections = rest.T @ left
    rest = rest - left @ projections.T
    if direction is not None:
        values = xp.concat([values, xp.zeros_like(rest[:1, 0]) + direction.square])
        left, right = xp.concat([left, first], axis=1), xp.concat([right, direction.vector[None, :]])
        projections = xp.concat([projections, top[:, None]], axis=1)
    # The residuals are found here, so that Δ keeps its digits beside a mean that the features explain.
    within = xp.maximum(within, n * EPSILON * squares)
    with_left = _finish(
        n, dim, values, projections, squares, WrittenOut(left), 0.0, (rest**2).sum(0), within, 0 * within
    )
    return with_left, replace(with_left, vectors=WrittenOut(right.T))


def _svd(features: Array) -> tuple[Array, Array, Array]:
    if is_torch(features):
        return namespace(features).linalg.svd(features, full_matrices=False)
    from scipy.linalg import svd

    return svd(features, full_matrices=False, check_finite=False)


def score_rounding(spectrum: Spectrum, ratio: np.ndarray, beta: np.ndarray) -> float:
    """About how much of the score is rounding, in nats per sample.

    From squared features, every σ² is wrong by about ε times the largest square, and the log determinant by that over
    t + σ²; the errors are independent. So are the z², of which n/β holds what they leave over. Δ is wrong by ε times
    the squares that it is the difference of.
    """
    finite = np.isfinite(ratio)
    if not spectrum.rank or not finite.any():
        return 0.0
    n, smallest = spectrum.n, float(ratio[finite].min())
    values = to_host(spectrum.squared_singular_values)
    wrong = EPSILON * (spectrum.magnitude or np.sqrt(values * values[-1])) / (values + smallest)
    share = float((to_host(spectrum.target_magnitude) * beta / n)[finite].max())
    counted = wrong if spectrum.multiplicities is None else wrong * spectrum.multiplicities
    return (
        8 * math.sqrt(max(float(counted @ wrong), 0.0)) / n
        + 0.5 * max(share - 1, 0.0) * float(wrong.max())
        + 4 * EPSILON * share
    )


def score_without(square: float, spectrum: Spectrum, ratio: np.ndarray, beta: np.ndarray) -> float:
    """At most how much of the score may be missing, in nats per sample, without directions of this σ² in all."""
    finite = np.isfinite(ratio) & ~to_host(spectrum.repeated)  # between a sample and its copy nothing is missing
    if not square or not finite.any():
        return 0.0
    explained = np.maximum(to_host(spectrum.target_squares) * beta / spectrum.n, 1.0)
    return 0.5 * square * float((explained[finite] / ratio[finite]).max())


def _first_kept(values: Array, n: float, feature_dim: int, rounding: float) -> int:
    """Where the eigenvalues that are not rounding begin; no more of them than samples or dimensions can give."""
    size = int(values.shape[0])
    kept = int((values > max(rounding, 0.0)).sum())
    return size - int(min(kept, n, feature_dim))


def _finish(
    n: float,
    feature_dim: int,
    values: Array,
    projections: Array | None,
    squares: Array,
    vectors: Eigenvectors,
    magnitude: float,
    left: Array | None = None,
    within: Array | None = None,
    target_magnitude: Array | None = None,
    *,
    weighted: bool = False,
    used: int | None = None,
) -> Spectrum:
    """`left` is Δ, if it is not the difference of ‖y‖² and ‖z‖²; `within` are the squares that it is a part of.

    `used` is how many features are not zero throughout, where that is known.
    """
    xp = namespace(values)
    if left is None:
        assert projections is not None
        left = squares - (projections**2).sum(1)
    within = squares if within is None else within
    target_magnitude = within if target_magnitude is None else target_magnitude
    # Below n·ε·‖y‖² the difference is rounding. The floor keeps noise-free labels finite: their evidence grows
    # without bound as the noise goes to zero, and float64 cannot tell such noise from none.
    floor = n * EPSILON * within
    unreachable, noise_free = xp.maximum(left, floor), left <= floor
    if int(values.shape[0]) == n and not weighted:
        # n independent directions reach every target; what rounding leaves over is nothing.
        unreachable, target_magnitude = xp.zeros_like(squares), xp.zeros_like(squares)
        noise_free = unreachable > 0
    rank = int(values.shape[0])
    repeated = noise_free & (rank < (feature_dim if used is None else used)) & (rank < n <= MOST_REPEATED * rank)
    unreachable, target_magnitude = (xp.where(repeated, 0 * one, one) for one in (unreachable, target_magnitude))
    return Spectrum(
        n,
        feature_dim,
        values,
        projections,
        unreachable,
        squares,
        vectors,
        noise_free & ~repeated,
        repeated,
        magnitude,
        target_magnitude,
    )
