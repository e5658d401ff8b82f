"""The solvers: a way each to find the best t = α/β of every target.

The default, "newton", finds the global maximum of the profile over log t, for all targets at once. A grid over log t
costs one matrix product and brackets every local maximum, since the profile is a sum of functions that vary over a
width of about one in log t; a safeguarded Newton then finishes all brackets together.

The paper's three algorithms are kept as they are: they are what the default is tested and timed against. All start at
α = β = 1, and repeat α ← γ / mᵀm, β ← (n - γ) / ‖Fm - y‖² until t = α/β stands still. They differ in what a repetition
costs: "naive" inverts A = αI + βFᵀF, "mackay" (optimised by the conference paper) works in the eigenvectors of FᵀF, and
"fixed-point" needs σ² and z only. They find a local maximum; where t grows without end, that is the null model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hubscout.errors import UnknownSolverError
from hubscout.evidence.array_backend import Array, to_device_of, to_host
from hubscout.evidence.block import Block
from hubscout.evidence.profile import Profile, ReducedProfile, profile_of
from hubscout.evidence.spectrum import Spectrum
from hubscout.registry import Registry

GRID_STEP = 0.5
LARGEST_RATIO = 1e8
"""t in units of the largest σ². An optimum beyond differs from the null model by less than 1e-16."""
SMALLEST_RATIO = 1e-20
"""t in units of the smallest σ². Reached where n independent features interpolate the labels: the evidence then
tends to a finite limit as t goes to 0, from which it differs here by less than rounding."""
STEP_TOLERANCE = 1e-7
"""Newton squares the error: the step after one of this size is below rounding."""
TIE = 1e-14
TOLERANCE = 1e-10
"""On log t, of the paper's solvers."""
MAX_ITERATIONS = 20_000
NULL_RATIO = 1e8
"""A t of theirs that is larger than the largest σ² by this much is on its way to ∞."""
NOISELESS_RATIO = 1e-100
"""And one that is smaller by this much has no noise left."""

Step = Callable[[int, float, float], tuple[float, float]]
"""From a target, its α and its β to the next α and β."""


@dataclass(frozen=True)
class Problem:
    """One data set: its spectrum, and its sums where the solver asked for them."""

    spectrum: Spectrum
    block: Block | None


@dataclass(frozen=True)
class Solution:
    """The best t = α/β of every target, (C,): ∞ for the null model."""

    ratio: np.ndarray
    iterations: int
    """The most that any target took."""
    converged: np.ndarray


@dataclass(frozen=True)
class Solver:
    """A way to find t. `needs_sums` is whether it works on FᵀF itself and not only on its spectrum."""

    solve: Callable[..., Solution]
    needs_sums: bool


def newton(problem: Problem, *, tolerance: float = STEP_TOLERANCE, max_iterations: int = 60) -> Solution:
    """Maximise the evidence over t for every target: the best of all local maxima and of the null limit t = ∞."""
    profile = profile_of(problem.spectrum)
    if problem.spectrum.rank == 0:
        targets = int(profile.targets.shape[0])
        return Solution(np.full(targets, math.inf), 0, np.ones(targets, dtype=bool))
    return maximize_profile(profile, _grid(profile), tolerance, max_iterations)


def maximize_profile(
    profile: Profile | ReducedProfile,
    log_t: np.ndarray,
    tolerance: float = STEP_TOLERANCE,
    max_iterations: int = 60,
) -> Solution:
    """The same within a grid of log t, (G,), rising, or at t = ∞."""
    targets = int(profile.targets.shape[0])
    best = np.full(targets, math.inf)
    best_gain = np.full(targets, TIE)  # the null model has gain 0, and wins a tie
    converged = np.ones(targets, dtype=bool)
    gain, slope = profile.on_grid(log_t)
    row, left = np.nonzero((slope[:, :-1] > 0) & (slope[:, 1:] <= 0))
    better = (slope[:, 0] <= 0) & (gain[:, 0] > best_gain)
    best[better], best_gain[better] = log_t[0], gain[better, 0]
    if not len(row):
        return Solution(profile.scale * np.exp(best), 0, converged)

    chosen = _rows(profile.targets, row)
    unreachable = profile.unreachable[row]
    found, finished, iterations = _refine(
        profile, chosen, unreachable, log_t, (slope[row, left], slope[row, left + 1]), left, tolerance, max_iterations
    )
    found_gain, _ = profile.gain(np.exp(found), chosen, unreachable)
    for target, place, value, done in zip(row, found, found_gain, finished, strict=True):
        if value > best_gain[target]:
            best[target], best_gain[target], converged[target] = place, value, done
    return Solution(profile.scale * np.exp(best), iterations, converged)


def _refine(
    profile: Profile | ReducedProfile,
    chosen: Array,
    unreachable: np.ndarray,
    log_t: np.ndarray,
    slopes: tuple[np.ndarray, np.ndarray],
    left: np.ndarray,
    tolerance: float,
    max_iterations: int,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Newton on the slope inside each bracket [log_t[left], log_t[left + 1]], halving it where Newton would leave."""
    low, high = log_t[left], log_t[left + 1]
    place = low + (high - low) * slopes[0] / (slopes[0] - slopes[1])
    finished = np.zeros(len(place), dtype=bool)
    for iteration in range(1, max_iterations + 1):
        slope, curvature = profile.slopes(place, chosen, unreachable)
        low, high = np.where(slope > 0, place, low), np.where(slope > 0, high, place)
        step = -slope / np.where(curvature < 0, curvature, -1.0)
        tiny = (curvature < 0) & (np.abs(step) <= tolerance)
        inside = (curvature < 0) & (place + step >= low) & (place + step <= high)
        moved = np.where(inside | tiny, place + step, (low + high) / 2)
        # A target that is done rests: rounding at its maximum must not throw it back into halving.
        place, finished = np.where(finished, place, moved), finished | tiny
        if finished.all():
            return place, finished, iteration
    return place, finished, max_iterations


def _rows(matrix: Array, row: np.ndarray) -> Array:
    """matrix[row], without a copy in the usual case of one bracket a target."""
    return matrix if np.array_equal(row, np.arange(len(matrix))) else matrix[to_device_of(row, matrix)]


def _grid(profile: Profile | ReducedProfile) -> np.ndarray:
    n, rank = profile.n, int(profile.values.shape[0])
    # Below this t the slope is positive for certain: q'/q ≤ t/(σ²Δ) there, and Σw ≥ r/2.
    certain = float(profile.unreachable.min()) * rank / (4 * n)
    low = math.log(float(profile.values[0]) * max(certain, SMALLEST_RATIO))
    high = math.log(LARGEST_RATIO)
    return np.linspace(low, high, math.ceil((high - low) / GRID_STEP) + 1)


def naive(problem: Problem, *, tolerance: float = TOLERANCE, max_iterations: int = MAX_ITERATIONS) -> Solution:
    """MacKay's algorithm with a matrix inverse in every repetition: O(D³) each."""

    def posterior(gram: np.ndarray, cross: np.ndarray, alpha: float, beta: float) -> tuple[np.ndarray, float]:
        inverse = np.linalg.inv(alpha * np.eye(len(gram)) + beta * gram)
        return beta * (inverse @ cross), beta * float((inverse * gram).sum())

    return _repeat(problem, _step_from_sums(problem, posterior), tolerance, max_iterations)


def mackay(problem: Problem, *, tolerance: float = TOLERANCE, max_iterations: int = MAX_ITERATIONS) -> Solution:
    """MacKay's algorithm in the eigenvectors of FᵀF: O(D²) a repetition."""
    values, vectors = to_host(problem.spectrum.squared_singular_values), to_host(problem.spectrum.basis)

    def posterior(gram: np.ndarray, cross: np.ndarray, alpha: float, beta: float) -> tuple[np.ndarray, float]:
        eigenvalues = alpha + beta * values
        mean = beta * (vectors @ ((vectors.T @ cross) / eigenvalues))
        return mean, float((beta * values / eigenvalues).sum())

    return _repeat(problem, _step_from_sums(problem, posterior), tolerance, max_iterations)


def fixed_point(problem: Problem, *, tolerance: float = TOLERANCE, max_iterations: int = MAX_ITERATIONS) -> Solution:
    """The paper's fixed-point iteration on t: O(r) a repetition."""
    spectrum = problem.spectrum
    values, squares = to_host(spectrum.squared_singular_values), to_host(spectrum.projections) ** 2
    unreachable = to_host(spectrum.unreachable_squares)

    def step(target: int, alpha: float, beta: float) -> tuple[float, float]:
        t = alpha / beta
        odds = values / t
        shrunk = 1 / (1 + odds)
        gamma = float((odds * shrunk).sum())
        mean_squared = float((squares[target] * odds * shrunk**2).sum()) / t
        error = float((squares[target] * shrunk**2).sum() + unreachable[target])
        return gamma / mean_squared, (spectrum.n - gamma) / error

    return _repeat(problem, step, tolerance, max_iterations)


def _step_from_sums(problem: Problem, posterior: Callable[..., tuple[np.ndarray, float]]) -> Step:
    """MacKay's step, where `posterior` gives m and γ for FᵀF, Fᵀy, α and β."""
    block = problem.block
    assert block is not None
    gram, cross, squares = to_host(block.gram), to_host(block.cross), to_host(block.target_squares)

    def step(target: int, alpha: float, beta: float) -> tuple[float, float]:
        mean, gamma = posterior(gram, cross[target], alpha, beta)
        error = squares[target] - 2 * mean @ cross[target] + mean @ gram @ mean
        return gamma / float(mean @ mean), (block.n - gamma) / float(error)

    return step


def _repeat(problem: Problem, step: Step, tolerance: float, max_iterations: int) -> Solution:
    """Repeat the step of every target until log t stands still."""
    spectrum = problem.spectrum
    targets = int(spectrum.projections.shape[0])
    ratios, converged, most = np.full(targets, math.inf), np.ones(targets, dtype=bool), 0
    if spectrum.rank == 0:
        return Solution(ratios, 0, converged)
    largest = NULL_RATIO * float(spectrum.squared_singular_values[-1])
    smallest = NOISELESS_RATIO * largest
    for target in range(targets):
        alpha = beta = 1.0
        converged[target] = False
        for iteration in range(1, max_iterations + 1):
            most = max(most, iteration)
            before = alpha / beta
            try:
                new_alpha, new_beta = step(target, alpha, beta)
            except ZeroDivisionError:  # nothing left of the residual in float64
                break
            if not (0 < new_alpha < math.inf and 0 < new_beta < math.inf and new_alpha > smallest * new_beta):
                break  # Rounding took over (labels without noise); the last whole pair stands, not converged.
            alpha, beta = new_alpha, new_beta
            if alpha / beta > max(largest, before) or abs(math.log(alpha / beta / before)) <= tolerance:
                converged[target] = True
                break
        ratios[target] = math.inf if converged[target] and alpha / beta > largest else alpha / beta
    return Solution(ratios, most, converged)


SOLVERS: Registry[Solver] = Registry("solver", UnknownSolverError)
SOLVERS.add("newton", Solver(newton, needs_sums=False))
SOLVERS.add("naive", Solver(naive, needs_sums=True))
SOLVERS.add("mackay", Solver(mackay, needs_sums=True))
SOLVERS.add("fixed-point", Solver(fixed_point, needs_sums=False))
