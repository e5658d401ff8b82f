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
from hubscout.evidence.spectrum import Spectrum

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
