"""What features add to base rates: the evidence of a model with an intercept over that of the intercept alone.

The null model of a person is the base rate: how frequent a class is, the mean of a number. LogME of the paper has no
intercept, so part of its score is that features can say "one" at all. The model y = b + Fw + noise with a flat prior
on b needs no second decomposition. With K = I + FFᵀ/t, s = t/(t + σ²), a = Uᵀ1 and the targets less their mean,

    N(t) = 1ᵀK⁻¹1 = n - ‖a‖² + Σ a²s        M(t) = 1ᵀK⁻¹y = -Σ a z (1 - s)
    q(t) = ‖y‖² - ‖z‖² + Σ z²s - M²/N       β = (n - 1) / q

    2 L(t)/(n - 1) = log((n - 1)/q) - [Σ log(1 + σ²/t) + log(N/n)] / (n - 1) - 1 - log 2π

which is the evidence of centred features and targets, at the price of one more target: the constant. At t = ∞ it is
that of the intercept alone. The gain is the difference, and never negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hubscout.evidence.array_backend import EPSILON, Array, fetched, is_torch, namespace, to_device_of, to_host
from hubscout.evidence.eigenvectors import Tridiagonal
from hubscout.evidence.profile import PART_NUMBERS
from hubscout.evidence.solvers import GRID_STEP, LARGEST_RATIO, TIE
from hubscout.evidence.spectrum import SMALLEST_REST, Spectrum

TINY = float(np.finfo(np.float64).tiny)
SMALLEST_RATIO = 1e-12
"""t in units of the smallest σ² that the search begins at."""
BEYOND = 1e-9
"""The share of the constant below which it is not beyond the features."""
STEPS = 40
"""Of the secant at most; it takes a handful."""
STEP_TOLERANCE = 1e-7
"""In log t. The gain is flat there: an error of this size changes it by its square."""


@dataclass(frozen=True)
class OverBaseRates:
    """The fit with an intercept. Arrays have one entry per target; an unscored one has gain 0 and ratio ∞."""

    gain: np.ndarray
    """In nats per sample, over the intercept alone."""
    ratio: np.ndarray
    """t = α/β of the fit with an intercept; ∞ where features add nothing."""
    target_mean: np.ndarray
    """The base rates."""
    constant_column: np.ndarray
    """The constant as one more target: as `constant`; as those of a spectrum with reduced targets; or Fᵀ1 beside a
    condensed one."""
    feature_mean: np.ndarray | None
    """What was taken away from the features of the spectrum."""
    spectrum: Spectrum | None

    @cached_property
    def constant(self) -> np.ndarray:
        """A = Uᵀ1, (r,); zero for centred features, which do not reach the constant."""
        return self.constant_column if self.spectrum is None else _projected(self.spectrum, self.constant_column)


def _projected(spectrum: Spectrum, column: np.ndarray) -> np.ndarray:
    """The z of a target that is given as those of the spectrum are."""
    if spectrum.multiplicities is not None:
        whole = spectrum.whole
        values, column = whole.squared_singular_values, to_device_of(column, whole.squared_singular_values)
        return to_host(whole.vectors.coordinates(column[None, :])[0] / namespace(values).sqrt(values))
    if spectrum.reduced is None or not len(column):
        return column
    return spectrum.reduced.projections(column[None, :], spectrum.squared_singular_values)[0]


def constant_of(spectrum: Spectrum, mean: Array) -> np.ndarray:
    """The constant as a target, from the features' mean: Fᵀ1 is n times that. See `OverBaseRates.constant_column`.

    With V, a = Uᵀ1 is that over σ: UᵀU Σ Vᵀ = Vᵀ Fᵀ 1.
    """
    if spectrum.multiplicities is not None:
        return to_host(spectrum.n * mean)
    if spectrum.reduced is not None:
        return spectrum.n * spectrum.reduced.vectors.reflect(mean[:, None], transposed=True)[:, 0]
    coordinates = spectrum.mean_coordinates
    if coordinates is None:
        coordinates = spectrum.vectors.coordinates(mean[None, :])[0]
    return spectrum.n * to_host(coordinates) / np.sqrt(to_host(spectrum.squared_singular_values))


def over_base_rates(
    spectrum: Spectrum, constant: np.ndarray, target_mean: np.ndarray, squares: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The gain over an intercept and its t, (C,) each, from the spectrum of features as they came.

    `target_mean` are the means of the targets of the spectrum, `squares` their sums of squares about these.
    """
    gain, ratio = np.zeros(len(squares)), np.full(len(squares), np.inf)
    varied = squares > 8 * np.sqrt(spectrum.n) * EPSILON * to_host(spectrum.target_squares)
    if spectrum.rank == 0 or spectrum.n < 2 or not varied.any():
        return gain, ratio
    # Samples that occur again leave the constant within the directions, as they leave the targets.
    repeated = to_host(spectrum.repeated) & (spectrum.rank > 1)
    if repeated.any():
        repeated &= 1 - float(np.sum(_projected(spectrum, constant) ** 2)) / spectrum.n < BEYOND
    for chosen, observations in ((varied & ~repeated, spectrum.n), (varied & repeated, spectrum.rank)):
        if chosen.any():
            asked = (spectrum, constant, target_mean, squares, chosen)
            profile = ReducedBaseRateProfile.of(*asked) or BaseRateProfile.of(*asked, observations)
            gain[chosen], ratio[chosen] = profile.maximize()
    return gain, ratio


Forms = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""q without the last term, M, N, and what was asked for beside them."""


@dataclass(frozen=True)
class _Search:
    """2L/(n - 1) less its value at t = ∞ as a function of log t; t in units of the largest σ², targets of ‖y‖ = 1."""

    n: float
    scale: float
    values: Array

    @property
    def ends(self) -> tuple[float, float]:
        """Between which log t is searched."""
        return np.log(float(self.values[0]) * SMALLEST_RATIO), np.log(LARGEST_RATIO)

    @property
    def level(self) -> float:
        """What Σ log(1 + σ²/t) has beside that sum."""
        return 0.0

    def total(self, terms: Array) -> Array:
        """Their sum over all directions, which are the rows."""
        return terms.sum(0)

    @property
    def least(self) -> float:
        """The least q that is not rounding: a part in n ε of ‖y‖², unless directions reach all of every target."""
        raise NotImplementedError

    def maximize(self) -> tuple[np.ndarray, np.ndarray]:
        """The largest gain and its t: the best point of a grid, then the zero of the slope beside it."""
        low, high = self.ends
        grid = np.linspace(low, high, int(np.ceil((high - low) / GRID_STEP)) + 1)
        gains = self.gain(grid)
        # A processor works on what its cache holds, an accelerator on everything at once.
        size = len(gains) if is_torch(self.values) else max(PART_NUMBERS // len(self.values), 1)
        parts = range(0, len(gains), size)
        found = [self._refine(slice(start, start + parts.step), grid, gains) for start in parts]
        gain, place = (np.concatenate(values) for values in zip(*found, strict=True))
        better = gain > TIE
        return np.where(better, gain / 2, 0.0), np.where(better, self.scale * np.exp(place), np.inf)

    def _refine(self, part: slice, grid: np.ndarray, gains: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The gain times two and its log t, for some targets: the secant of the slope, kept inside its bracket.

        It begins at the top of the parabola through the best point of the grid and its neighbours. Where the best point
        is an end of the grid, it stays there.
        """
        best, row, width = gains[part].argmax(1), np.arange(len(gains[part])), grid[1] - grid[0]
        running = (best > 0) & (best < len(grid) - 1)
        top = np.clip(best, 1, len(grid) - 2)
        before, here, after = (gains[part][row, top + step] for step in (-1, 0, 1))
        left, right = grid[top - 1], grid[top + 1]
        curvature = (before - 2 * here + after) / width**2
        place = np.where(running, grid[top] + _newton((after - before) / (2 * width), curvature), grid[best])
        last, last_slope = place, np.zeros_like(place)
        for step in range(STEPS):
            place = np.where(running & ~((place >= left) & (place <= right)), (left + right) / 2, place)
            rise, fall = self.rates(place, part)
            slope = rise - fall
            left, right = np.where(slope > 0, place, left), np.where(slope > 0, right, place)
            moved = place - last
            if step:
                curvature = np.where(moved == 0, curvature, (slope - last_slope) / np.where(moved == 0, 1.0, moved))
            last, last_slope = place, slope
            change = _newton(slope, curvature)
            # A slope without curvature sends it to infinity: it goes on, or ends, in the middle of what is left.
            change = np.where(np.isfinite(change), change, (left + right) / 2 - place)
            place = np.where(running, place + change, place)
            running &= (np.abs(change) > STEP_TOLERANCE) & (right - left > STEP_TOLERANCE)
            if not running.any():
                break
        place = np.clip(place, grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, len(grid) - 1)])
        return self.gain(place, part), place

    def gain(self, log_t: np.ndarray, part: slice | None = None) -> np.ndarray:
        """The gain times two: of all targets at all places, (C, G), or of a part of them at one place each."""
        t = to_device_of(np.exp(log_t), self.values)
        logs = self.total(namespace(self.values).log1p(self.values[:, None] / t)) + self.level
        (form, along, level, logs), _ = self._forms(t, part, logs)
        q = (form - along**2 / level).clip(self.least)
        return -np.log(q) - (logs + np.log(level)) / (self.n - 1)

    def rates(self, log_t: np.ndarray, part: slice) -> tuple[np.ndarray, np.ndarray]:
        """How it rises with log t by the determinant, and falls by q, at one place per target of the part."""
        t = to_device_of(np.exp(log_t), self.values)
        rise = self.total(1 / (1 + t / self.values[:, None]))
        (form, along, level, rise), (form_change, along_change, level_change) = self._forms(t, part, rise)
        ratio = along / level
        q = (form - ratio * along).clip(self.least)
        q_change = form_change - ratio * (2 * along_change - ratio * level_change)
        return (rise - level_change / level) / (self.n - 1), q_change / q

    def _forms(self, t: Array, part: slice | None, also: Array) -> tuple[Forms, Any]:
        """The forms of all targets at all t, without derivatives; or with a part, at one t per target of it.

        All of them on the host, and `also` with them, for which an accelerator is then not waited for once more.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class BaseRateProfile(_Search):
    """From z, on the device where it is."""

    squares: Array
    """z², (C, r)."""
    unreachable: np.ndarray
    crossed: Array
    """a z, (C, r)."""
    constant_squares: Array
    """a² / n, (r,)."""
    constant_rest: float
    """1 - ‖a‖²/n: zero where features reach the constant."""

    @property
    def least(self) -> float:
        return self.n * EPSILON if bool((self.unreachable > 0).any()) else TINY

    @classmethod
    def of(
        cls,
        spectrum: Spectrum,
        constant: np.ndarray,
        target_mean: np.ndarray,
        squares: np.ndarray,
        chosen: np.ndarray,
        observations: float | None = None,
    ) -> BaseRateProfile:
        """`observations` are those of `by_observations`; None is one per sample."""
        n, constant = spectrum.n, _projected(spectrum, constant)
        values, projections = spectrum.squared_singular_values, spectrum.projections
        level, mean, size, rows = (
            to_device_of(numbers, projections)
            for numbers in (constant, target_mean[chosen], np.sqrt(squares[chosen]), np.flatnonzero(chosen))
        )
        projections = (projections[rows] - mean[:, None] * level[None, :]) / size[:, None]
        unreachable = to_host(1 - (projections**2).sum(1)).clip(n * EPSILON)
        rest = 1 - float(constant @ constant) / n
        observations = n if observations is None else observations
        if spectrum.rank == observations:
            unreachable, rest = 0 * unreachable, 0.0
        crossed = projections * (level / n**0.5)[None, :]
        rest = 0.0 if rest < n * EPSILON else rest
        scale = float(values[-1])
        return cls(observations, scale, values / scale, projections**2, unreachable, crossed, level**2 / n, rest)

    def _forms(self, t: Array, part: slice | None, also: Array) -> tuple[Forms, Any]:
        odds = self.values[:, None] / t
        shrunk = 1 / (1 + odds)
        kept = odds * shrunk
        chosen = slice(None) if part is None else part
        squares, crossed = self.squares[chosen], self.crossed[chosen]

        def over(weights: Array, factors: Array) -> Array:
            return weights @ factors if part is None else (weights * factors.T).sum(1)

        # The two ways to write M are equal; where features reach the constant, only the first is not rounding.
        along = over(crossed, shrunk if self.constant_rest == 0 else -kept)
        found = [over(squares, shrunk), along, self.constant_squares @ shrunk, also]
        if part is not None:
            change = kept * shrunk
            found += [over(squares, change), over(crossed, change), self.constant_squares @ change]
        form, along, level, also, *changes = fetched(*found)
        unreachable = self.unreachable[:, None] if part is None else self.unreachable[part]
        return (unreachable + form, along, self.constant_rest + level, also), changes


@dataclass(frozen=True)
class ReducedBaseRateProfile(_Search):
    """From targets in the coordinates of T, with R = (T + tI)⁻¹ in place of sums over z."""

    matrix: Tridiagonal
    targets: np.ndarray
    """(D, C)."""
    constant: np.ndarray
    """The constant as one of them, over √n: (D,)."""
    dual: bool

    @property
    def least(self) -> float:
        return TINY if self.dual else self.n * EPSILON

    @classmethod
    def of(
        cls, spectrum: Spectrum, constant: np.ndarray, target_mean: np.ndarray, squares: np.ndarray, chosen: np.ndarray
    ) -> ReducedBaseRateProfile | None:
        """None where z is known, or where features reach the constant so nearly that the rest would be rounding."""
        reduced, scale = spectrum.reduced, float(spectrum.squared_singular_values[-1])
        if reduced is None:
            return None
        root = 1.0 if reduced.dual else scale**0.5
        targets = reduced.columns[:, chosen] - constant[:, None] * target_mean[chosen]
        targets = targets / (root * np.sqrt(squares[chosen]))
        one, matrix = constant / (root * spectrum.n**0.5), reduced.matrix
        if not reduced.dual and 1 - float(one @ matrix.solve_all(one[:, None])[:, 0]) < SMALLEST_REST:
            return None
        return cls(spectrum.n, scale, spectrum.squared_singular_values / scale, matrix, targets, one, reduced.dual)

    def _forms(self, t: np.ndarray, part: slice | None, also: np.ndarray) -> tuple[Forms, Any]:
        changes: list[np.ndarray] = []
        if part is None:
            form, _ = self.matrix.on_grid(self.targets, t)
            along, _ = self.matrix.on_grid(np.column_stack([self.targets, self.constant]), t, with_last=True)
            along, level = along[:-1], along[-1]
        else:
            targets = self.targets[:, part]
            solved, one = self.matrix.solve(t, targets, np.broadcast_to(self.constant[:, None], targets.shape))
            form, along, level = (targets * solved).sum(0), self.constant @ solved, self.constant @ one
            changes = [t * (first * second).sum(0) for first, second in ((solved, solved), (one, solved), (one, one))]
        if not self.dual:
            return (1 - form, -along, 1 - level, also), changes
        forms = t * form, t * along, t * level, also
        return forms, [whole - t * change for whole, change in zip(forms, changes, strict=False)]


def _newton(slope: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """Newton's step; infinite where the curvature is not that of a maximum."""
    return np.where(curvature < 0, -slope / np.where(curvature < 0, curvature, 1.0), np.inf)
