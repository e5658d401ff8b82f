"""The spectrum condensed into a few points: the evidence of many dimensions without eigenvectors.

An accelerator multiplies matrices so much faster than it finds eigenvectors that it pays to do without them: points
(`chebyshev`) stand for the directions at all t within reach of one t₀, and the targets are solved on the host.

Whether the maximum over all t is the one in reach is proved, not guessed. For x = 1/t, q is convex and log det(I + xG)
concave; with 2L/n less its null value called g, b = Fᵀy, c = dq/dlog t, γ = -dlog det/dlog t and Δ = q(0):

    t ≥ t₁:  g ≤ max[g(t₁), -log(q + c)]   and   g ≤ max[0, -log(1 - ‖b‖²/(t₁‖y‖²)) - log det(I + G/t₁)/n]
    t ≤ t₁:  q(t) ≥ max[q - c (t₁/t - 1), Δ + (q - Δ) t/t₁]
             log det(I + G/t) ≥ max[log det(I + G/t₁) + γ log t₁/t, log det G - D log t]

with q, c and γ at t₁. The fit with an intercept is that of centred features, and has the same bounds. A Cholesky factor
of G less what is rounding in σ² shows that the rank is full, and gives lower bounds of Δ and log det G. Features that
are zero throughout, as some are after a ReLU, are left out before: their weights are zero, and nothing else depends on
them. Where any of this fails, there is no condensed spectrum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from hubscout.evidence.array_backend import EPSILON, Array, fetched, is_torch, mirrored, to_host
from hubscout.evidence.base_rates import TINY, BaseRateProfile
from hubscout.evidence.block import Block
from hubscout.evidence.chebyshev import Points, numbers_at_once, points, reach, shifted_factor
from hubscout.evidence.eigenvectors import FEW, WrittenOut
from hubscout.evidence.profile import Profile
from hubscout.evidence.solvers import GRID_STEP, TIE, Solution, maximize_profile
from hubscout.evidence.spectrum import SMALLEST_REST, Spectrum, from_sums, rank_threshold, score_rounding

SMALLEST_DIM = 1024
"""Dimensions, below which an accelerator finds eigenvectors in the time."""
SMALLEST_SPARE = 1e-7
"""The share of the constant beyond the features, below which it is not found as a difference of forms."""
BENDS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""ℓ₁ that are tried."""
MOST_NUMBERS = 3 << 27
"""At a time: 3 GiB, which 4,096 dimensions take."""
LARGEST_CONDITION = 1e9
"""Of FᵀF + t₀I. Beyond, its inverse is too far from S."""
ROUNDING = 1e-9
"""In nats per sample, from where on eigenvectors have to tell how much of the score it is."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Condensed(Spectrum):
    """A spectrum of points with the maximum that was found with it. Arrays are on the host, but for the weights.

    Whoever asks for its directions (`kept`) gets them from the sums, by the eigenvectors that the fit did without.
    """

    block: Block
    """The sums that it came from."""
    live: int
    """Features that are not zero throughout."""
    drift: float
    """As in `from_sums`."""
    profile: Profile
    solution: Solution
    weights: Array
    """m at the solution, (C, D)."""
    base_rates: tuple[np.ndarray, np.ndarray] | None
    """Gain and ratio as `over_base_rates` finds them; None of centred features."""

    @property
    def rank(self) -> int:
        """All of the dimensions that are not zero throughout."""
        return self.live

    @cached_property
    def whole(self) -> Spectrum:
        """The spectrum direction by direction."""
        return from_sums(self.block.copy(), self.n, self.drift)

    def __getstate__(self) -> dict[str, Any]:
        """Pickled as NumPy arrays, as its sums are, and without what is found from them."""
        return {
            **{name: value for name, value in vars(self).items() if name != "whole"},
            "weights": to_host(self.weights),
        }

    def inverse(self, t: float) -> Array:
        """(FᵀF + tI)⁻¹, (D, D)."""
        import torch

        return torch.cholesky_inverse(shifted_factor(mirrored(self.block.upper_gram), t)[0])


@dataclass(frozen=True)
class CondensedBaseRates(BaseRateProfile):
    """The profile over base rates from points."""

    multiplicities: np.ndarray
    beside: float

    @property
    def ends(self) -> tuple[float, float]:
        return -reach(), reach()

    @property
    def level(self) -> float:
        return self.beside

    def total(self, terms: Array) -> Array:
        return self.multiplicities @ terms

    @classmethod
    def at(cls, found: Points, mean: np.ndarray, known: Known) -> CondensedBaseRates:
        """Standardised as by `of`, for targets with these means."""
        own, crossed, one, n = found.squares[:-1], found.crossed[:-1], found.squares[-1], known.n + 1
        centred = (own - mean[:, None] * (2 * crossed - mean[:, None] * one)) / known.squares[:, None]
        crossed = (crossed - mean[:, None] * one) / np.sqrt(n * known.squares)[:, None]
        parts = (centred, 1 - centred.sum(1), crossed, one / n, 1 - float(one.sum()) / n)
        return cls(n, found.middle, found.values, *parts, found.multiplicities, found.level)

    def end(self, log_t: float) -> End:
        """What bounds the gain beyond this t."""
        every, place = slice(None), np.full(len(self.squares), log_t)
        (form, along, level, _), _ = self._forms(np.exp(place), every, place)
        fit, rates = -np.log(form - along**2 / level), self.rates(place, every)
        return End(self.gain(place, every), fit, *rates, log_t + math.log(self.scale))


@dataclass(frozen=True)
class End:
    """A profile at an end of its range, (C,) each, for targets of length one."""

    gain: np.ndarray
    fit: np.ndarray
    """-log q."""
    rise: np.ndarray
    """γ / n."""
    fall: np.ndarray
    """c / q."""
    log_t: float

    @classmethod
    def of(cls, profile: Profile, log_t: float) -> End:
        """Of a profile from points."""
        place = np.full(len(profile.squares), log_t)
        gain, q = profile.gain(np.exp(place), profile.squares, profile.unreachable)
        slope, _ = profile.slopes(place, profile.squares, profile.unreachable)
        rise = np.full(len(q), profile.multiplicities @ (1 / (1 + math.exp(log_t) / profile.values)) / profile.n)
        return cls(gain, -np.log(q), rise, rise - slope, log_t + math.log(profile.scale))


@dataclass(frozen=True)
class Known:
    """What is known of the targets before any t: of all (C,), as they are or about their means."""

    n: float
    squares: np.ndarray
    """‖y‖²."""
    rest: np.ndarray
    """A lower bound of Δ."""
    pull: np.ndarray
    """‖Fᵀy‖² / ‖y‖²."""
    log_det: float
    """A lower bound of log det FᵀF."""
    dim: int

    def most_beyond(self, low: End, high: End) -> np.ndarray:
        """At least the largest gain at any t that is not between the ends, at log t, (C,)."""
        tangent = np.maximum(high.gain, high.fit - np.log1p(high.fall))
        from_null = high.gain - high.fit - np.log1p(-np.minimum(self.pull / math.exp(high.log_t), 1 - EPSILON))
        return np.maximum(self._most_below(low), np.minimum(tangent, np.maximum(from_null, 0)))

    def _most_below(self, low: End) -> np.ndarray:
        """The same at any lower t.

        With ℓ = log t₁/t, the bound by the tangent of q is convex in ℓ, and so largest at an end of [0, ℓ₁], whatever
        ℓ₁ is; from there on the bound by the chord is concave, with either line for the penalty.
        """
        left = np.minimum(self.rest / self.squares * np.exp(low.fit), 1 - EPSILON)
        # The penalty as lines in ℓ, level + slope ℓ: the tangent of log det, and what it tends to.
        lines = (low.fit - low.gain, low.rise), ((self.log_det - self.dim * low.log_t) / self.n, self.dim / self.n)
        (first, slope), (second, steeper) = lines
        crossing = np.maximum((first - second) / (steeper - slope), 0)
        peaks = [np.log((1 - left) * np.maximum(1 - b, EPSILON) / (left * b)) for _, b in lines]
        best = np.full(len(left), np.inf)
        for start in BENDS:
            place = np.maximum(np.where(peaks[0] < crossing, peaks[0], np.maximum(peaks[1], crossing)), start)
            penalty = np.maximum(first + slope * place, second + steeper * place)
            chord = low.fit - np.log(left + (1 - left) * np.exp(-place)) - penalty
            remains = 1 - low.fall * math.expm1(start)
            bend = low.fit - np.log(np.maximum(remains, TINY)) - first - slope * start
            best = np.minimum(best, np.maximum(np.maximum(chord, bend), low.gain))
        return best


def condense(block: Block, n: float, drift: float) -> Spectrum | None:
    """The condensed spectrum of sums on an accelerator, as in `from_sums`; None where eigenvectors have to be found."""
    targets, dim = (int(size) for size in block.cross.shape)
    if not is_torch(block.cross) or dim < max(SMALLEST_DIM, FEW * targets):
        return None
    if numbers_at_once(targets, dim) > MOST_NUMBERS:
        return None
    import torch

    gram, rows = mirrored(block.upper_gram), torch.cat([block.cross, block.feature_sum[None]])
    live = torch.nonzero(gram.diagonal())[:, 0]
    if len(live) < dim:
        gram, rows, dim = gram[live][:, live], rows[:, live], len(live)
    if dim >= min(block.rows - round(block.n - n), n):
        return None
    size = torch.linalg.matrix_norm(gram)  # at least the largest σ²
    factor, failed = shifted_factor(gram, -rank_threshold(n, dim) * (size + drift))
    reached = torch.linalg.solve_triangular(factor, rows.T, upper=False)
    status, norm, trace, squares, sums, log_det, *forms = fetched(
        *(failed.double(), size, gram.diagonal().sum(), block.target_squares, block.target_sum),
        *(
            2 * factor.diagonal().log().sum(),
            (reached**2).sum(0),
            reached.T @ reached[:, -1],
            (rows**2).sum(1),
            rows @ rows[-1],
        ),
    )
    if status != 0:
        return None
    mean, centred = sums / block.n, n < block.n
    within = squares - sums * mean
    own, crossed, pulled, pulled_crossed = (one[:-1] for one in forms)
    spare = block.n - float(forms[0][-1])  # of the constant, beyond the features
    plain = Known(n, squares, squares - own, pulled / squares, float(log_det), dim)
    if spare < SMALLEST_SPARE * block.n or (within < SMALLEST_REST * squares).any():
        return None
    pulled_within = pulled - 2 * mean * pulled_crossed + mean**2 * float(forms[2][-1])
    beyond = Known(
        block.n - 1,
        within,
        plain.rest - (sums - crossed) ** 2 / spare,
        pulled_within / within,
        plain.log_det + math.log(spare / block.n),
        dim,
    )
    if any((known.rest < SMALLEST_REST * known.squares).any() for known in (plain, beyond)):
        return None
    t = _guess(beyond, dim, float(trace) - float(forms[2][-1]) / block.n)
    if not float(norm) / LARGEST_CONDITION < t < math.inf:
        return None
    try:
        around = points(gram, rows, t)
    except torch.OutOfMemoryError:  # eigenvectors take less
        around = None
    if around is None:
        return None
    found = _maximum(block, drift, norm, around, plain, None if centred else (beyond, mean))
    if found is not None and dim < found.feature_dim:
        weights = found.weights.new_zeros(targets, found.feature_dim)
        weights[:, live] = found.weights
        found = replace(found, weights=weights)
    return found


def _maximum(
    block: Block, drift: float, norm: np.ndarray, around: Points, plain: Known, beyond: tuple[Known, np.ndarray] | None
) -> Condensed | None:
    """The maximum by these points, if it is one of all t."""
    low, high = -reach(), reach()
    squares = around.squares[:-1] / plain.squares[:, None]
    standard = (squares, 1 - squares.sum(1), around.multiplicities, around.level)
    profile = Profile(plain.n, around.middle, around.values, *standard)
    solution = maximize_profile(profile, np.linspace(low, high, math.ceil(2 * high / GRID_STEP) + 1))
    rates = None
    gain, q = profile.gain(solution.ratio / around.middle, profile.squares, profile.unreachable)
    sure = plain.most_beyond(End.of(profile, low), End.of(profile, high)) <= np.maximum(gain, 0) + TIE
    if beyond is not None:
        search = CondensedBaseRates.at(around, beyond[1], beyond[0])
        rates = search.maximize()
        sure &= beyond[0].most_beyond(search.end(low), search.end(high)) <= 2 * rates[0] + TIE
    if not sure.all():
        return None
    none = np.zeros(len(q), dtype=bool)
    spectrum = Condensed(
        n=plain.n,
        feature_dim=int(block.cross.shape[1]),
        squared_singular_values=around.middle * around.values,
        projected=None,
        unreachable_squares=plain.rest,
        target_squares=plain.squares,
        vectors=WrittenOut(np.empty((int(block.cross.shape[1]), 0))),
        noise_free=none,
        repeated=none,
        magnitude=float(norm) + drift,
        target_magnitude=plain.squares,
        multiplicities=around.multiplicities,
        block=block,
        live=plain.dim,
        drift=drift,
        profile=profile,
        solution=solution,
        weights=around.weights(solution.ratio),
        base_rates=rates,
    )
    rounding = score_rounding(spectrum, solution.ratio, plain.n / plain.squares / q)
    return spectrum if rounding < ROUNDING else None


def _guess(known: Known, dim: int, trace: float) -> float:
    """A t in the middle of the targets: what n - D residuals say of the noise, and all z² of the signal.

    ∞ where it is so different from target to target that no t₀ reaches all of them.
    """
    noise = known.rest / (known.n - dim)
    signal = known.squares - known.rest - dim * noise
    there = signal > 0
    if not there.any():
        return math.inf
    places = np.log(trace * noise[there] / signal[there])
    return math.exp(np.median(places)) if np.ptp(places) < 2 * reach() else math.inf
