"""`maximize_evidence`: from sufficient statistics to `Evidence`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from hubscout.errors import InputError, RoundingWarning, UnboundedEvidenceWarning, check_choice, check_least
from hubscout.evidence.array_backend import Array, is_torch, to_host
from hubscout.evidence.base_rates import OverBaseRates, constant_of, over_base_rates
from hubscout.evidence.block import Block, observations, scored_targets
from hubscout.evidence.checks import Kind, default_center
from hubscout.evidence.condensed import Condensed, condense
from hubscout.evidence.evidence import Evidence, caveats
from hubscout.evidence.jackknife import (
    JackknifeError,
    RowsInBlocks,
    contributions_from_sums,
    error_from_contributions,
    error_from_refits,
    mean_leverages,
)
from hubscout.evidence.posterior import inverse_times, mean_coefficients, mean_weights
from hubscout.evidence.profile import LOG_TWO_PI, profile_of
from hubscout.evidence.solvers import SOLVERS, Problem, Solution
from hubscout.evidence.spectrum import Spectrum, by_observations, primal_spectrum, score_rounding, score_without
from hubscout.evidence.statistics import Statistics

MOST_ROUNDING = 1e-9
"""Nats per sample of a score of rows that squaring them may cost."""
HIGH_LEVERAGE = 0.5
"""Above this mean leverage the linear jackknife is too small, and blocks are left out and re-fitted."""

Jackknife = Literal["linear", "exact", "none"]


@dataclass(frozen=True)
class Settings:
    """How to maximise: the arguments of `maximize_evidence` and `logme`, checked."""

    solver: str = "newton"
    center: bool = False
    jackknife: str = "linear"
    tolerance: float | None = None
    max_iterations: int | None = None
    keep_spectrum: bool = True
    most_rounding: float = MOST_ROUNDING

    def __post_init__(self) -> None:
        SOLVERS[self.solver]
        check_choice("jackknife", self.jackknife, get_args(Jackknife))
        if self.tolerance is not None and not self.tolerance > 0:
            raise InputError(f"tolerance must be positive; got {self.tolerance!r}.")
        if not self.most_rounding >= 0:
            raise InputError(f"most_rounding must be 0 or more; got {self.most_rounding!r}.")
        check_least("max_iterations", 1 if self.max_iterations is None else self.max_iterations)

    @property
    def by_default(self) -> bool:
        """Whether the solver is the default one, and stops where it does by itself."""
        return self.solver == "newton" and self.tolerance is None and self.max_iterations is None

    def solve(self, spectrum: Spectrum, block: Block | None) -> Solution:
        """Run the solver. Each has defaults of its own for what is None here."""
        given = {"tolerance": self.tolerance, "max_iterations": self.max_iterations}
        options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        solver = SOLVERS[self.solver]
        if isinstance(spectrum, Condensed):
            return spectrum.solution
        if solver.needs_sums:
            return solver.solve(Problem(spectrum, block), **options)
        ratio, converged, iterations = np.empty(len(spectrum.repeated)), np.empty(len(spectrum.repeated), dtype=bool), 0
        for chosen, part in by_observations(spectrum):
            found = solver.solve(Problem(part, block), **options)
            ratio[chosen], converged[chosen] = found.ratio, found.converged
            iterations = max(iterations, found.iterations)
        return Solution(ratio, iterations, converged)


def maximize_evidence(
    statistics: Statistics,
    *,
    solver: str = "newton",
    center: bool | None = None,
    jackknife: Jackknife = "linear",
    tolerance: float | None = None,
    max_iterations: int | None = None,
    keep_spectrum: bool = True,
) -> Evidence:
    """Maximise the evidence of every target from sufficient statistics.

    Args:
        statistics: the sums over all samples.
        solver: "newton" (the global maximum, all targets at once) or one of the paper's "naive", "mackay" and
            "fixed-point", which start at α = β = 1 and find a local one.
        center: whether the means of features and targets are taken away first, as in `logme`; None does so for
            regression.
        jackknife: the standard error over the blocks: "linear" (nearly free), "exact" (re-fits without each block) or
            "none".
        tolerance: of the solver, on log t; None is its own.
        max_iterations: of the solver; None is its own.
        keep_spectrum: False makes the result small, without predictive variances.

    Returns:
        Score, null score, posterior and standard error.

    Raises:
        InputError: empty statistics, labels that are all alike, or an argument out of its range.
        UnknownSolverError: there is no such solver.

    Example:
        >>> generator = np.random.default_rng(0)
        >>> features, ids = generator.normal(size=(100, 5)), np.arange(100) % 2
        >>> result = maximize_evidence(Statistics("classification", ["no", "yes"]).update(features, ids))
        >>> result.n, result.rank, result.targets, result.converged
        (100, 5, ('no', 'yes'), True)

    """
    centred = default_center(statistics.kind) if center is None else center
    return warned(fit(statistics, Settings(solver, centred, jackknife, tolerance, max_iterations, keep_spectrum)))


def fit(
    statistics: Statistics, settings: Settings, running: Sequence[Block] = (), rows: RowsInBlocks | None = None
) -> Evidence:
    """Maximise the evidence from sums.

    Where the statistics hold all samples in one, the blocks are those of `rows`, or what the sums were after each block
    of samples (`running`). There is no error bar then if blocks would have to be left out and re-fitted.
    """
    total = statistics.total()
    step, target_step = total.feature_sum / total.n, total.target_sum / total.n
    means = (total.shift + step, total.target_shift + target_step)
    scored = scored_targets(statistics.kind, statistics.target_names, total, settings.center)
    squares = total.target_squares - total.n * target_step**2
    part = total.select(scored)
    sums = _sums(part, settings)
    spectrum = primal_spectrum(part, center=settings.center, condense=condense if settings.by_default else None)
    solution = settings.solve(spectrum, sums)
    weights = mean_weights(spectrum, solution.ratio)
    assembled = (statistics.kind, statistics.target_names, scored, spectrum, solution, weights, means, squares)
    apart = None
    if spectrum.mean_coordinates is not None and (squares > 0).all():
        # So far from zero that the features say "one" by themselves: what they add to it needs the centred ones.
        apart = fit(statistics, replace(settings, center=True, jackknife="none")).over_base_rates
    fitted = assemble(*assembled, settings, apart)
    blocks = running or [statistics.blocks[index] for index in sorted(statistics.blocks)]
    if settings.jackknife == "none" or len(rows or blocks) < 2:
        return fitted
    if settings.jackknife == "exact" or mean_leverages(spectrum, solution.ratio).max() > HIGH_LEVERAGE:
        return (
            fitted
            if running or rows
            else replace(fitted, **vars(_refits(statistics, fitted, blocks, scored, settings)))
        )
    # What the sums of a block are about, and the residual there.
    constant = (-target_step if settings.center else total.target_shift)[np.flatnonzero(scored)]
    far, origin = spectrum.mean_coordinates, -step if settings.center else total.shift
    if far is None:
        constant = constant - weights @ origin
    else:  # in the coordinates of the spectrum, where the mean keeps its digits
        origin = spectrum.vectors.coordinates(-step[None, :])[0] + far
        constant = constant - mean_coefficients(spectrum, solution.ratio) @ origin

    def resolved(t: float, times: float, kernel: Array) -> tuple[Array, float]:
        if far is None and not bool(origin.any()):
            return 0 * origin, 0.0
        if far is None:
            found = kernel @ origin if is_torch(kernel) else times * inverse_times(spectrum, origin, t)
            return found, float(origin @ found)
        moved = times * origin / (spectrum.squared_singular_values + t)
        return spectrum.vectors.combine(moved[None, :])[0], float(origin @ moved)

    parts = rows.select(scored) if rows else [block.select(scored) for block in blocks]
    gram = part.upper_gram if far is None else None
    contributions = contributions_from_sums(
        parts, spectrum, gram, solution.ratio, fitted.beta[scored], weights, resolved, constant
    )
    sizes = rows.sizes if rows else np.array([block.n for block in blocks])
    if running:
        contributions, sizes = np.diff(contributions, prepend=0.0), np.diff(sizes, prepend=0)
    return replace(fitted, **vars(error_from_contributions(fitted.score, contributions, sizes)))


def _sums(block: Block, settings: Settings) -> Block | None:
    """The sums of the features as the solver sees them, if it asked for them."""
    if not SOLVERS[settings.solver].needs_sums:
        return None
    sums = block.about_mean() if settings.center else block.about_zero()
    return replace(sums, n=observations(block.n, settings.center))


def _refits(
    statistics: Statistics, fitted: Evidence, blocks: Sequence[Block], scored: np.ndarray, settings: Settings
) -> JackknifeError:
    """Scores without each block. A target that only that block holds keeps its score: nothing is known without it."""
    scores = []
    for index in sorted(statistics.blocks):
        # The others are added up: taking a block away from the whole leaves rounding where it held what is largest.
        rest = statistics.total(without=index)
        per_target = fitted.per_target.copy()
        present = scored & rest.has_labels(settings.center)
        if present.any() and observations(rest.n, settings.center) > 0:
            part = rest.select(present)
            sums = _sums(part, settings)
            spectrum = primal_spectrum(part, center=settings.center)
            per_target[present] = log_evidence(spectrum, settings.solve(spectrum, sums).ratio)[0]
        scores.append(per_target[scored].mean())
    return error_from_refits(fitted.score, np.array(scores), np.array([block.n for block in blocks]))


def log_evidence(spectrum: Spectrum, ratio: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log evidence per sample at the given t, the same of the null model, and β: (C,) each."""
    squares = to_host(spectrum.target_squares)
    null = 0.5 * (np.log(spectrum.n / squares) - 1 - LOG_TWO_PI)
    gain, beta = np.empty_like(null), np.empty_like(null)
    for chosen, part in by_observations(spectrum):
        profile = part.profile if isinstance(part, Condensed) else profile_of(part)
        gain[chosen], q = profile.gain(ratio[chosen] / profile.scale, profile.targets, profile.unreachable)
        beta[chosen] = part.n / squares[chosen] / q
    return null + 0.5 * gain, null, beta


def assemble(
    kind: Kind,
    names: Sequence[str],
    scored: np.ndarray,
    spectrum: Spectrum,
    solution: Solution,
    weights: Array,
    means: tuple[Array, Array],
    squares: Array,
    settings: Settings,
    apart: OverBaseRates | None = None,
    constant: np.ndarray | None = None,
) -> Evidence:
    """An `Evidence` without an error bar, from the solution for the scored targets.

    `means` are those of features and of all targets, `squares` the targets' about them. `apart` is the fit with an
    intercept where it was made by itself, `constant` Uᵀ1 where it is known better than from the mean.
    """
    per_target, null, beta = log_evidence(spectrum, solution.ratio)
    target_mean = to_host(means[1])

    def spread(values: np.ndarray, otherwise: float) -> np.ndarray:
        whole = np.full((len(names), *values.shape[1:]), otherwise, dtype=values.dtype)
        whole[scored] = values
        return whole

    whole_weights = spread(to_host(weights), 0.0)
    intercept = np.zeros(len(names))
    feature_mean = None
    if settings.center:
        feature_mean = to_host(means[0])
        intercept = target_mean - whole_weights @ feature_mean
    if apart is None:
        if settings.center:
            gains, ratios, constant = per_target - null, solution.ratio, np.zeros(spectrum.rank)
        else:
            constant = constant_of(spectrum, means[0]) if constant is None else constant
            found = spectrum.base_rates if isinstance(spectrum, Condensed) else None
            asked = (constant, target_mean[scored], to_host(squares)[scored])
            gains, ratios = found or over_base_rates(spectrum, *asked)
        kept = spectrum if settings.keep_spectrum else None
        apart = OverBaseRates(spread(gains, 0.0), spread(ratios, np.inf), target_mean, constant, feature_mean, kept)
    score = float(per_target.mean())
    samples = spectrum.n + settings.center
    alpha = solution.ratio * beta
    if not all(np.isfinite(found).all() for found in (beta, alpha[np.isfinite(solution.ratio)], whole_weights, null)):
        raise InputError(
            "features and targets differ so much in scale that α, β or the weights leave the range of float64. "
            "Rescale them: the gain does not depend on the scale of either."
        )
    return Evidence(
        kind=kind,
        targets=tuple(names),
        n=samples,
        feature_dim=spectrum.feature_dim,
        score=score,
        null_score=float(null.mean()),
        per_target=spread(per_target, 0.0),
        per_target_null=spread(null, 0.0),
        alpha=spread(alpha, np.inf),
        beta=spread(beta, np.inf),
        ratio=spread(solution.ratio, np.inf),
        weights=whole_weights,
        intercept=intercept,
        rank=spectrum.rank,
        standard_error=None,
        block_scores=np.array([score]),
        block_sizes=np.array([samples]),
        solver=settings.solver,
        center=settings.center,
        iterations=solution.iterations,
        per_target_converged=spread(solution.converged, True),
        unscored=tuple(name for name, is_scored in zip(names, scored, strict=True) if not is_scored),
        unbounded=tuple(np.array(names)[scored][to_host(spectrum.noise_free)].tolist()),
        rounding=score_rounding(spectrum, solution.ratio, beta)
        + score_without(spectrum.cut, spectrum, solution.ratio, beta),
        feature_mean=feature_mean,
        over_base_rates=apart,
        spectrum=spectrum if settings.keep_spectrum else None,
    )


_quiet = ContextVar("quiet", default=False)


@contextmanager
def unwarned() -> Iterator[None]:
    """No warnings of evidence meanwhile, in this thread alone; Python's own filters are those of all threads."""
    before = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(before)


def warned(evidence: Evidence) -> Evidence:
    """The same evidence, after warnings of what its notes say."""
    for line in () if _quiet.get() else caveats(evidence):
        warnings.warn(line, UnboundedEvidenceWarning if evidence.unbounded else RoundingWarning, stacklevel=3)
    return evidence
