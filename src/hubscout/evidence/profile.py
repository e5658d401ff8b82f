"""The evidence of one target as a function of t = α/β alone, and its derivatives in log t.

For a given t the best β is n / q(t), which leaves (σ² and z as in `spectrum`, w = σ²/(t + σ²)):

    q(t)      = Δ + Σ z² (1 - w)
    2 L(t)/n  = log(n / q) - Σ log(1 + σ²/t) / n - 1 - log 2π

The number of dimensions has cancelled: padding or duplicating features changes nothing, and n < D, n > D and rank
deficiency are one case. Both σ² and z² are standardised (by the largest σ², by ‖y‖²), so that the scale of features
and labels leaves every intermediate number alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hubscout.evidence.array_backend import Array, is_torch, namespace
from hubscout.evidence.eigenvectors import Reduced
from hubscout.evidence.spectrum import Spectrum
from hubscout.evidence.tridiagonal import Tridiagonal

SLOPE_ROUNDING = 1e-13
PART_NUMBERS = 1 << 15
"""Targets times directions that are worked on at a time: a quarter of a megabyte an array."""
LOG_TWO_PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Profile:
    """The standardised profile of several targets."""

    n: float
    scale: float
    """The largest σ², by which t and σ² are divided; 1 if the features are all zero."""
    values: Array
    """σ² / scale, (r,)."""
    squares: Array
    """z² / ‖y‖², (C, r)."""
    unreachable: Array
    """Δ / ‖y‖², (C,)."""

    @classmethod
    def of(cls, spectrum: Spectrum) -> Profile:
        """Standardise a spectrum. Every ‖y‖² must be positive."""
        values = spectrum.squared_singular_values
        scale = float(values[-1]) if spectrum.rank else 1.0
        squares = spectrum.projections**2 / spectrum.target_squares[:, None]
        return cls(spectrum.n, scale, values / scale, squares, spectrum.unreachable_squares / spectrum.target_squares)

    @property
    def targets(self) -> Array:
        """What the methods are given of some of the targets, a row each."""
        return self.squares

    def on_grid(self, log_t: Array) -> tuple[Array, Array]:
        """2L/n less its null value, and its derivative in log t: for all targets at all of the given log t, (C, G)."""
        xp = namespace(self.values)
        odds = self.values[:, None] * xp.exp(-log_t)[None, :]
        shrunk = 1 / (1 + odds)
        kept = odds * shrunk
        q = self.unreachable[:, None] + self.squares @ shrunk
        gain = -xp.log(q) - xp.log1p(odds).sum(0)[None, :] / self.n
        rise = kept.sum(0)[None, :] / self.n
        slope = rise - (self.squares @ (kept * shrunk)) / q
        # What is left of two equal numbers is rounding: as t goes to 0 with n independent features, for one.
        return gain, xp.where(abs(slope) > SLOPE_ROUNDING * rise, slope, xp.zeros_like(slope))

    def gain(self, ratio: Array, squares: Array, unreachable: Array) -> tuple[Array, Array]:
        """2L/n less its null value, and q, at one t a target, (P,), which may be ∞; for these squares and Δ."""
        return _in_parts(self._gain, ratio, squares, unreachable)

    def slopes(self, log_t: Array, squares: Array, unreachable: Array) -> tuple[Array, Array]:
        """The first and the second derivative of 2L/n in log t at one log t a target, (P,) each."""
        return _in_parts(self._slopes, log_t, squares, unreachable)

    def _gain(self, ratio: Array, squares: Array, unreachable: Array) -> tuple[Array, Array]:
        xp = namespace(self.values)
        odds = self.values[None, :] / ratio[:, None]
        q = unreachable + (squares / (1 + odds)).sum(1)
        q = xp.where(xp.isinf(ratio), xp.ones_like(q), q)  # z² and Δ add up to one, but for rounding
        return -xp.log(q) - xp.log1p(odds).sum(1) / self.n, q

    def _slopes(self, log_t: Array, squares: Array, unreachable: Array) -> tuple[Array, Array]:
        xp = namespace(self.values)
        odds = self.values[None, :] * xp.exp(-log_t)[:, None]
        shrunk = 1 / (1 + odds)
        kept = odds * shrunk
        change = kept * shrunk
        weighted = squares * change
        q = unreachable + (squares * shrunk).sum(1)
        relative = weighted.sum(1) / q
        first = kept.sum(1) / self.n - relative
        second = (weighted * (shrunk - kept)).sum(1) / q + relative**2 - change.sum(1) / self.n
        return first, second


@dataclass(frozen=True)
class ReducedProfile:
    """The same from targets that are reduced, without z.

    With c as in `Reduced` and R = (T + tI)⁻¹, q is ‖y‖² - cᵀRc, or in the dual t cᵀRc, as long as features reach all
    of every target there, so that Δ = 0.
    """

    n: float
    scale: float
    values: np.ndarray
    matrix: Tridiagonal
    """T / scale."""
    targets: np.ndarray
    """c of targets of length one, (C, D)."""
    unreachable: np.ndarray
    dual: bool

    @classmethod
    def of(cls, spectrum: Spectrum, reduced: Reduced) -> ReducedProfile:
        """Standardise a spectrum."""
        scale = float(spectrum.squared_singular_values[-1])
        size = np.sqrt(spectrum.target_squares * (1.0 if reduced.dual else scale))
        return cls(
            spectrum.n,
            scale,
            spectrum.squared_singular_values / scale,
            reduced.matrix,
            (reduced.columns / size).T,
            spectrum.unreachable_squares / spectrum.target_squares,
            reduced.dual,
        )

    def on_grid(self, log_t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As in `Profile`."""
        t = np.exp(log_t)
        first, second = self.matrix.on_grid(self.targets.T, t)
        odds = self.values[:, None] / t
        shrunk = 1 / (1 + odds)
        logs = np.log1p(odds).sum(0) / self.n
        if self.dual:
            # Of both terms of the slope, one is taken away: as t goes to 0, what is left is their difference.
            level, slope = shrunk.sum(0) / self.n, t * second / first
            slope = slope - level
            gain = -np.log(t * first) - logs
        else:
            q = np.maximum(1 - first, self.unreachable[:, None])
            level = (odds * shrunk).sum(0) / self.n
            slope, gain = level - t * second / q, -np.log(q) - logs
        return gain, np.where(np.abs(slope) > SLOPE_ROUNDING * level, slope, 0.0)

    def gain(self, ratio: np.ndarray, targets: np.ndarray, unreachable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As in `Profile`."""
        gain, q = np.zeros(len(ratio)), np.ones(len(ratio))
        finite = np.isfinite(ratio)
        t, columns = ratio[finite], targets[finite].T
        (solved,) = self.matrix.solve(t, columns)
        first = (columns * solved).sum(0)
        q[finite] = t * first if self.dual else np.maximum(1 - first, unreachable[finite])
        odds = self.values[None, :] / t[:, None]
        gain[finite] = -np.log(q[finite]) - np.log1p(odds).sum(1) / self.n
        return gain, q

    def slopes(self, log_t: np.ndarray, targets: np.ndarray, unreachable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As in `Profile`."""
        t = np.exp(log_t)
        solved, again = self.matrix.solve(t, targets.T, repeats=2)
        first, second = (targets.T * solved).sum(0), t * (solved**2).sum(0)
        third = 2 * t**2 * (solved * again).sum(0)
        odds = self.values[None, :] / t[:, None]
        shrunk = 1 / (1 + odds)
        change = (odds * shrunk**2).sum(1) / self.n
        if self.dual:
            relative = second / first
            return relative - shrunk.sum(1) / self.n, relative + relative**2 - third / first - change
        q = np.maximum(1 - first, unreachable)
        relative = second / q
        return (odds * shrunk).sum(1) / self.n - relative, relative**2 - (second - third) / q - change


def profile_of(spectrum: Spectrum) -> Profile | ReducedProfile:
    """The profile of a spectrum, from what is known of its targets."""
    return Profile.of(spectrum) if spectrum.reduced is None else ReducedProfile.of(spectrum, spectrum.reduced)


def _in_parts(
    function: Callable[[Array, Array, Array], tuple[Array, Array]], place: Array, squares: Array, unreachable: Array
) -> tuple[Array, Array]:
    """Run over a few targets at a time, so that on a processor the intermediate arrays stay in its cache."""
    count, width = (int(size) for size in squares.shape)
    rows = count if is_torch(squares) else max(PART_NUMBERS // max(width, 1), 1)
    if rows >= count:
        return function(place, squares, unreachable)
    parts = [slice(start, start + rows) for start in range(0, count, rows)]
    found = [function(place[part], squares[part], unreachable[part]) for part in parts]
    return np.concatenate([first for first, _ in found]), np.concatenate([second for _, second in found])
