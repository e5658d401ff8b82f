"""The paper's three algorithms, kept as they are: what the default solver is tested and timed against.

All start at α = β = 1, and repeat α ← γ / mᵀm, β ← (n - γ) / ‖Fm - y‖² until t = α/β stands still. They differ in what
a repetition costs: "naive" inverts A = αI + βFᵀF, "mackay" (optimised by the conference paper) works in the
eigenvectors of FᵀF, and "fixed-point" needs σ² and z only. They find a local maximum; where t grows without end, that
is the null model.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hubscout.evidence.array_backend import to_host
from hubscout.evidence.solution import SOLVERS, Problem, Solution, Solver

TOLERANCE = 1e-10
MAX_ITERATIONS = 20_000
NULL_RATIO = 1e8
"""A t that is larger than the largest σ² by this much is on its way to ∞."""
SMALLEST_RATIO = 1e-100
"""And one that is smaller by this much has no noise left."""

Step = Callable[[float, float], tuple[float, float]]


def naive(problem: Problem, *, tolerance: float = TOLERANCE, max_iterations: int = MAX_ITERATIONS) -> Solution:
    """MacKay's algorithm with a matrix inverse in every repetition: O(D³) each."""
    assert problem.block is not None
    gram, cross = to_host(problem.block.gram), to_host(problem.block.cross)
    squares = to_host(problem.block.target_squares)
    n, dim = problem.block.n, gram.shape[0]

    def step_for(target: int) -> Step:
        def step(alpha: float, beta: float) -> tuple[float, float]:
            inverse = np.linalg.inv(alpha * np.eye(dim) + beta * gram)
            mean = beta * (inverse @ cross[target])
            gamma = beta * float((inverse * gram).sum())
            error = squares[target] - 2 * mean @ cross[target] + mean @ gram @ mean
            return gamma / float(mean @ mean), (n - gamma) / float(error)

        return step

    return _repeat(problem, step_for, tolerance, max_iterations)


def mackay(problem: Problem, *, tolerance: float = TOLERANCE, max_iterations: int = MAX_ITERATIONS) -> Solution:
    """MacKay's algorithm in the eigenvectors of FᵀF: O(D²) a repetition."""
    assert problem.block is not None
    gram, cross = to_host(problem.block.gram), to_host(problem.block.cross)
    squares = to_host(problem.block.target_squares)
    values, vectors = to_host(problem.spectrum.squared_singular_values), to_host(problem.spectrum.basis)
    n = problem.block.n

    def step_for(target: int) -> Step:
        def step(alpha: float, beta: float) -> tuple[float, float]:
            eigenvalues = alpha + beta * values
            mean = beta * (vectors @ ((vectors.T @ cross[target]) / eigenvalues))
            gamma = float((beta * values / eigenvalues).sum())
            error = squares[target] - 2 * mean @ cross[target] + mean @ gram @ mean
            return gamma / float(mean @ mean), (n - gamma) / float(error)

        return step

    return _repeat(problem, step_for, tolerance, max_iterations)


def fixed_point(problem: Problem, *, tolerance: float = TOLERANCE, max_iterations: int = MAX_ITERATIONS) -> Solution:
    """The paper's fixed-point iteration on t: O(r) a repetition."""
    spectrum = problem.spectrum
    values, projections = to_host(spectrum.squared_singular_values), to_host(spectrum.projections)
    unreachable = to_host(spectrum.unreachable_squares)
    n = spectrum.n

    def step_for(target: int) -> Step:
        squares = projections[target] ** 2

        def step(alpha: float, beta: float) -> tuple[float, float]:
            t = alpha / beta
            odds = values / t
            shrunk = 1 / (1 + odds)
            gamma = float((odds * shrunk).sum())
            mean_squared = float((squares * odds * shrunk**2).sum()) / t
            error = float((squares * shrunk**2).sum() + unreachable[target])
            return gamma / mean_squared, (n - gamma) / error

        return step

    return _repeat(problem, step_for, tolerance, max_iterations)


def _repeat(problem: Problem, step_for: Callable[[int], Step], tolerance: float, max_iterations: int) -> Solution:
    """Repeat the step of every target until log t stands still."""
    spectrum = problem.spectrum
    targets = int(spectrum.projections.shape[0])
    ratios, converged, most = np.full(targets, math.inf), np.ones(targets, dtype=bool), 0
    if spectrum.rank == 0:
        return Solution(ratios, 0, converged)
    largest = NULL_RATIO * float(spectrum.squared_singular_values[-1])
    smallest = SMALLEST_RATIO * largest
    for target in range(targets):
        step, alpha, beta = step_for(target), 1.0, 1.0
        converged[target] = False
        iteration = 0
        while iteration < max_iterations:
            iteration += 1
            before = alpha / beta
            try:
                new_alpha, new_beta = step(alpha, beta)
            except ZeroDivisionError:  # nothing left of the residual in float64
                break
            if not (0 < new_alpha < math.inf and 0 < new_beta < math.inf and new_alpha > smallest * new_beta):
                break  # Rounding took over (labels without noise); the last whole pair stands, not converged.
            alpha, beta = new_alpha, new_beta
            if alpha / beta > max(largest, before):
                converged[target] = True
                break
            if abs(math.log(alpha / beta / before)) <= tolerance:
                converged[target] = True
                break
        most = max(most, iteration)
        ratios[target] = math.inf if converged[target] and alpha / beta > largest else alpha / beta
    return Solution(ratios, most, converged)


SOLVERS.add("naive", Solver(naive, needs_sums=True))
SOLVERS.add("mackay", Solver(mackay, needs_sums=True))
SOLVERS.add("fixed-point", Solver(fixed_point, needs_sums=False))
