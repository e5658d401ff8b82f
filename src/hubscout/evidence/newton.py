"""The default solver: the global maximum of the profile over log t, for all targets at once.

A grid over log t costs one matrix product and brackets every local maximum, since the profile is a sum of functions
that vary over a width of about one in log t; a safeguarded Newton then finishes all brackets together.
"""

from __future__ import annotations

import math

import array_api_compat
import numpy as np

from hubscout.evidence.array_backend import Array, namespace, to_host
from hubscout.evidence.profile import Profile, ReducedProfile, profile_of
from hubscout.evidence.solution import SOLVERS, Problem, Solution, Solver

GRID_STEP = 0.5
LARGEST_RATIO = 1e8
"""t in units of the largest σ². An optimum beyond differs from the null model by less than 1e-16."""
SMALLEST_RATIO = 1e-20
"""t in units of the smallest σ². Reached where n independent features interpolate the labels: the evidence then
tends to a finite limit as t goes to 0, from which it differs here by less than rounding."""
STEP_TOLERANCE = 1e-7
"""Newton squares the error: the step after one of this size is below rounding."""
TIE = 1e-14


def newton(problem: Problem, *, tolerance: float = STEP_TOLERANCE, max_iterations: int = 60) -> Solution:
    """Maximise the evidence over t for every target: the best of all local maxima and of the null limit t = ∞."""
    profile = profile_of(problem.spectrum)
    targets = int(profile.targets.shape[0])
    best = np.full(targets, math.inf)
    best_gain = np.full(targets, TIE)  # the null model has gain 0, and wins a tie
    converged = np.ones(targets, dtype=bool)
    if problem.spectrum.rank == 0:
        return Solution(best, 0, converged)

    log_t = _grid(profile)
    gain, slope = profile.on_grid(log_t)
    row, left = namespace(slope).nonzero((slope[:, :-1] > 0) & (slope[:, 1:] <= 0))
    falls_from_the_start = to_host(slope[:, 0] <= 0)
    first_gain = to_host(gain[:, 0])
    better = falls_from_the_start & (first_gain > best_gain)
    best[better], best_gain[better] = float(log_t[0]), first_gain[better]
    if not row.shape[0]:
        return Solution(profile.scale * np.exp(best), 0, converged)

    chosen = _rows(profile.targets, row)
    unreachable = profile.unreachable[row]
    found, finished, iterations = _refine(
        profile, chosen, unreachable, log_t, (slope[row, left], slope[row, left + 1]), left, tolerance, max_iterations
    )
    found_gain = to_host(profile.gain(namespace(found).exp(found), chosen, unreachable)[0])
    for target, place, value, done in zip(to_host(row), to_host(found), found_gain, to_host(finished), strict=True):
        if value > best_gain[target]:
            best[target], best_gain[target], converged[target] = place, value, done
    return Solution(profile.scale * np.exp(best), iterations, converged)


def _refine(
    profile: Profile | ReducedProfile,
    chosen: Array,
    unreachable: Array,
    log_t: Array,
    slopes: tuple[Array, Array],
    left: Array,
    tolerance: float,
    max_iterations: int,
) -> tuple[Array, Array, int]:
    """Newton on the slope inside each bracket [log_t[left], log_t[left + 1]], halving it where Newton would leave."""
    xp = namespace(chosen)
    low, high = log_t[left], log_t[left + 1]
    place = low + (high - low) * slopes[0] / (slopes[0] - slopes[1])
    finished = xp.zeros_like(place, dtype=xp.bool)
    for iteration in range(1, max_iterations + 1):
        slope, curvature = profile.slopes(place, chosen, unreachable)
        low, high = xp.where(slope > 0, place, low), xp.where(slope > 0, high, place)
        step = -slope / xp.where(curvature < 0, curvature, -xp.ones_like(curvature))
        tiny = (curvature < 0) & (abs(step) <= tolerance)
        inside = (curvature < 0) & (place + step >= low) & (place + step <= high)
        moved = xp.where(inside | tiny, place + step, (low + high) / 2)
        # A target that is done rests: rounding at its maximum must not throw it back into halving.
        place, finished = xp.where(finished, place, moved), finished | tiny
        if bool(finished.all()):
            return place, finished, iteration
    return place, finished, max_iterations


def _rows(matrix: Array, row: Array) -> Array:
    """matrix[row], without a copy in the usual case of one bracket a target."""
    count = int(matrix.shape[0])
    if int(row.shape[0]) == count and bool((row[1:] > row[:-1]).all()):
        return matrix
    return matrix[row]


def _grid(profile: Profile | ReducedProfile) -> Array:
    xp = namespace(profile.values)
    n, rank = profile.n, int(profile.values.shape[0])
    # Below this t the slope is positive for certain: q'/q ≤ t/(σ²Δ) there, and Σw ≥ r/2.
    certain = float(profile.unreachable.min()) * rank / (4 * n)
    low = math.log(float(profile.values[0]) * max(certain, SMALLEST_RATIO))
    high = math.log(LARGEST_RATIO)
    where = array_api_compat.device(profile.values)  # arrays of NumPy 1 have no attribute for it
    return xp.linspace(low, high, math.ceil((high - low) / GRID_STEP) + 1, dtype=xp.float64, device=where)


SOLVERS.add("newton", Solver(newton, needs_sums=False))
