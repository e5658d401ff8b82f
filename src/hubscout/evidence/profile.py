"""The evidence of one target as a function of t = α/β alone, and its derivatives in log t.

For a given t the best β is n / q(t), which leaves (σ² and z as in `spectrum`, w = σ²/(t + σ²)):

    q(t)      = Δ + Σ z² (1 - w)
    2 L(t)/n  = log(n / q) - Σ log(1 + σ²/t) / n - 1 - log 2π

The number of dimensions has cancelled: padding or duplicating features changes nothing, and n < D, n > D and rank
deficiency are one case. Both σ² and z² are standardised (by the largest σ², by ‖y‖²), so that the scale of features
and labels leaves every intermediate number alone.

Section 4.1 of the paper asks when MacKay's iteration converges. His update of α and β is, for t alone, t' = f(t)
(Theorem 1), and a fixed point is a stationary point of the evidence. Theorem 2 is a sufficient condition for one: r <
n, and Σ_ij (z_i² - z_j²)(σ_i² - σ_j²) > 0. The sum is 2 (n Σ z²σ² - ‖y‖² Σ σ²), which is the slope of the evidence at
t = ∞ in 1/t: the condition says that the null model is not even a local maximum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hubscout.errors import InputError
from hubscout.evidence.array_backend import Array, fetched, is_torch, namespace, to_device_of, to_host
from hubscout.evidence.eigenvectors import Reduced, Tridiagonal
from hubscout.evidence.spectrum import Spectrum, kept

if TYPE_CHECKING:
    from hubscout.evidence.evidence import Evidence

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
    unreachable: np.ndarray
    """Δ / ‖y‖², (C,)."""
    multiplicities: np.ndarray | None = None
    """As in `Spectrum`."""
    level: float = 0.0
    """What Σ log(1 + σ²/t) has beside that sum, where there are multiplicities."""

    @classmethod
    def of(cls, spectrum: Spectrum) -> Profile:
        """Standardise a spectrum. Every ‖y‖² must be positive."""
        values = spectrum.squared_singular_values
        scale = float(values[-1]) if spectrum.rank else 1.0
        squares = spectrum.projections**2 / spectrum.target_squares[:, None]
        unreachable = to_host(spectrum.unreachable_squares / spectrum.target_squares)
        return cls(spectrum.n, scale, values / scale, squares, unreachable)

    @property
    def targets(self) -> Array:
        """What the methods are given of some of the targets, a row each."""
        return self.squares

    def on_grid(self, log_t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """2L/n less its null value, and its derivative in log t: for all targets at all of the given log t, (C, G)."""
        odds = self.values[:, None] * to_device_of(np.exp(-log_t), self.values)[None, :]
        shrunk = 1 / (1 + odds)
        kept = odds * shrunk
        found = (
            self.squares @ shrunk,
            self.squares @ (kept * shrunk),
            self._total(kept),
            self._total(namespace(odds).log1p(odds)),
        )
        left, change, rise, logs = fetched(*found)
        q, rise, logs = self.unreachable[:, None] + left, rise / self.n, logs + self.level
        slope = rise - change / q
        # What is left of two equal numbers is rounding: as t goes to 0 with n independent features, for one.
        return -np.log(q) - logs / self.n, np.where(np.abs(slope) > SLOPE_ROUNDING * rise, slope, 0.0)

    def _total(self, terms: Array) -> Array:
        """Their sum over all directions, which are the rows."""
        return terms.sum(0) if self.multiplicities is None else self.multiplicities @ terms

    def gain(self, ratio: np.ndarray, squares: Array, unreachable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """2L/n less its null value, and q, at one t a target, (P,), which may be ∞; for these squares and Δ."""
        return _in_parts(self._gain, ratio, squares, unreachable)

    def slopes(self, log_t: np.ndarray, squares: Array, unreachable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first and the second derivative of 2L/n in log t at one log t a target, (P,) each."""
        return _in_parts(self._slopes, log_t, squares, unreachable)

    def _gain(self, ratio: np.ndarray, squares: Array, unreachable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        odds = self.values[None, :] / to_device_of(ratio, self.values)[:, None]
        left, logs = fetched((squares / (1 + odds)).sum(1), self._total(namespace(odds).log1p(odds).T))
        q = np.where(np.isinf(ratio), 1.0, unreachable + left)  # z² and Δ add up to one, but for rounding
        return -np.log(q) - np.where(np.isinf(ratio), 0.0, logs + self.level) / self.n, q

    def _slopes(self, log_t: np.ndarray, squares: Array, unreachable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        odds = self.values[None, :] * to_device_of(np.exp(-log_t), self.values)[:, None]
        shrunk = 1 / (1 + odds)
        kept = odds * shrunk
        change = kept * shrunk
        weighted = squares * change
        found = [one.sum(1) for one in (squares * shrunk, weighted, weighted * (shrunk - kept))]
        left, first, second, rise, bend = fetched(*found, self._total(kept.T), self._total(change.T))
        q = unreachable + left
        relative = first / q
        return rise / self.n - relative, second / q + relative**2 - bend / self.n


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
    function: Callable[[np.ndarray, Array, np.ndarray], tuple[np.ndarray, np.ndarray]],
    place: np.ndarray,
    squares: Array,
    unreachable: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Run over a few targets at a time, so that on a processor the intermediate arrays stay in its cache."""
    count, width = (int(size) for size in squares.shape)
    rows = count if is_torch(squares) else max(PART_NUMBERS // max(width, 1), 1)
    if rows >= count:
        return function(place, squares, unreachable)
    parts = [slice(start, start + rows) for start in range(0, count, rows)]
    found = [function(place[part], squares[part], unreachable[part]) for part in parts]
    return np.concatenate([first for first, _ in found]), np.concatenate([second for _, second in found])


def fixed_point_map(evidence: Evidence, t: float | np.ndarray) -> np.ndarray:
    """Evaluate f(t) of Theorem 1 for every scored target.

    Args:
        evidence: fitted with its spectrum.
        t: positive ratios α/β, of any shape.

    Returns:
        An array of shape (C, *shape of t).

    Raises:
        InputError: a `t` that is not positive and finite, or an evidence without a spectrum.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from hubscout.evidence import logme
        >>> result = logme(*load_iris(return_X_y=True))
        >>> bool(np.allclose(np.diag(fixed_point_map(result, result.ratio)), result.ratio))
        True

    """
    spectrum = kept(evidence.spectrum)
    points = np.asarray(t, dtype=np.float64)
    if not (np.isfinite(points).all() and (points > 0).all()):
        raise InputError("t must be positive and finite.")
    values, projections = to_host(spectrum.squared_singular_values), to_host(spectrum.projections)
    odds = values[:, None] / points.ravel()[None, :]
    shrunk = 1 / (1 + odds)
    gamma = (odds * shrunk).sum(0)
    squares = projections**2
    errors = squares @ shrunk**2 + to_host(spectrum.unreachable_squares)[:, None]
    mean_squares = (squares @ (odds * shrunk**2)) / points.ravel()
    with np.errstate(divide="ignore"):
        mapped = gamma / mean_squares * (errors / (spectrum.n - gamma))
    return mapped.reshape(len(squares), *points.shape)


def convergence_margin(evidence: Evidence) -> np.ndarray:
    """N Σ z²σ² / (‖y‖² Σ σ²) - 1 of every scored target, (C,): positive where Theorem 2's sum is.

    It is 0 for targets that have nothing to do with the features, and at most n σ₁²/Σσ² - 1.

    Args:
        evidence: fitted with its spectrum.

    Returns:
        (C,), the margin of every scored target.

    Raises:
        InputError: the evidence has no spectrum.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from hubscout.evidence import logme
        >>> convergence_margin(logme(*load_iris(return_X_y=True))).round(2).tolist()
        [29.67, 48.39, 67.54]

    """
    spectrum = kept(evidence.spectrum)
    values = to_host(spectrum.squared_singular_values)
    weighted = to_host(spectrum.projections) ** 2 @ values
    total = values.sum() * to_host(spectrum.target_squares)
    return np.divide(spectrum.n * weighted, total, out=np.ones(len(total)), where=total > 0) - 1


def convergence_guaranteed(evidence: Evidence) -> np.ndarray:
    """Theorem 2 for every scored target, (C,): True where a fixed point must exist. It is sufficient, not necessary.

    Args:
        evidence: fitted with its spectrum.

    Returns:
        (C,) truth values.

    Raises:
        InputError: the evidence has no spectrum.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from hubscout.evidence import logme
        >>> convergence_guaranteed(logme(*load_iris(return_X_y=True))).tolist()
        [True, True, True]

    """
    return (convergence_margin(evidence) > 0) & (evidence.rank < kept(evidence.spectrum).n)
