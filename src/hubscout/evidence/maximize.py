"""`maximize_evidence`: from sufficient statistics to `Evidence`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

import hubscout.evidence.newton
import hubscout.evidence.reference_solvers  # noqa: F401  (both enter their solvers under their names)
from hubscout.errors import InputError
from hubscout.evidence.arrays import Array, add_product, to_device_of, to_host
from hubscout.evidence.checks import Kind
from hubscout.evidence.convergence import kept_spectrum
from hubscout.evidence.doubt import (
    Doubt,
    contributions_from_sums,
    doubt_from_contributions,
    doubt_from_refits,
    mean_leverages,
)
from hubscout.evidence.evidence import Evidence
from hubscout.evidence.posterior import mean_weights
from hubscout.evidence.profile import LOG_TWO_PI, Profile
from hubscout.evidence.solution import SOLVERS, Problem, Solution
from hubscout.evidence.spectrum import EPSILON, Spectrum, primal_spectrum
from hubscout.evidence.statistics import Block, Statistics

HIGH_LEVERAGE = 0.5
"""Above this mean leverage the linear jackknife is too small, and blocks are left out and re-fitted."""

Jackknife = Literal["linear", "exact", "none"]


@dataclass(frozen=True)
class Settings:
    """How to maximise: the arguments that `maximize_evidence` and `logme` share, checked."""

    solver: str = "newton"
    center: bool = False
    jackknife: str = "linear"
    tolerance: float | None = None
    max_iterations: int | None = None
    keep_spectrum: bool = True

    def __post_init__(self) -> None:
        SOLVERS[self.solver]
        if self.jackknife not in ("linear", "exact", "none"):
            raise InputError(f"jackknife must be 'linear', 'exact' or 'none'; got {self.jackknife!r}.")
        if self.tolerance is not None and not self.tolerance > 0:
            raise InputError(f"tolerance must be positive; got {self.tolerance!r}.")
        if self.max_iterations is not None and self.max_iterations < 1:
            raise InputError(f"max_iterations must be at least 1; got {self.max_iterations!r}.")

    def solve(self, spectrum: Spectrum, block: Block | None) -> Solution:
        """Run the solver. Each has defaults of its own for what is None here."""
        given = {"tolerance": self.tolerance, "max_iterations": self.max_iterations}
        options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return SOLVERS[self.solver].solve(Problem(spectrum, block), **options)


def maximize_evidence(
    statistics: Statistics,
    *,
    solver: str = "newton",
    center: bool = False,
    jackknife: Jackknife = "linear",
    tolerance: float | None = None,
    max_iterations: int | None = None,
    keep_spectrum: bool = True,
) -> Evidence:
    """Maximise the evidence of every target from sufficient statistics.

    `solver` is "newton" (the global maximum, all targets at once) or one of the paper's "naive", "mackay" and
    "fixed-point", which start at α = β = 1 and find a local one. `center` takes the means of features and targets
    away first, as in `logme`; where means are large beside deviations, this loses digits that `logme` keeps.
    `jackknife` over the blocks is "linear" (nearly free), "exact" (re-fits without each block) or "none". `tolerance`
    is on log t. Without `keep_spectrum` the result is small, but has no predictive variances.

    >>> generator = np.random.default_rng(0)
    >>> features, ids = generator.normal(size=(100, 5)), np.arange(100) % 2
    >>> result = maximize_evidence(Statistics("classification", ["no", "yes"]).update(features, ids))
    >>> result.n, result.rank, result.targets, result.converged
    (100, 5, ('no', 'yes'), True)
    """
    return fit(statistics, Settings(solver, center, jackknife, tolerance, max_iterations, keep_spectrum))


def fit(statistics: Statistics, settings: Settings, offsets: tuple[Array, Array] | None = None) -> Evidence:
    """Maximise the evidence from sums. `offsets`, if any, were taken away from features and targets before summing."""
    total = statistics.total()
    means, uncentred_squares = None, total.target_squares
    if settings.center:
        means = (total.feature_sum / total.n, total.target_sum / total.n)
        total = total.centred(*means)
    scored = scored_targets(
        statistics.kind, statistics.target_names, total.target_squares, uncentred_squares, n=total.n
    )
    part = replace(select(total, scored), n=observations(total.n, settings))
    needs_sums = SOLVERS[settings.solver].needs_sums
    spectrum = primal_spectrum(part, overwrite=not needs_sums)
    solution = settings.solve(spectrum, part if needs_sums else None)
    weights = mean_weights(spectrum, solution.ratio)
    original_means = means
    if means is not None and offsets is not None:
        original_means = (means[0] + offsets[0], means[1] + offsets[1])
    fitted = assemble(
        statistics.kind, statistics.target_names, scored, spectrum, solution, weights, original_means, settings
    )
    blocks = [statistics.blocks[index] for index in sorted(statistics.blocks)]
    if settings.jackknife == "none" or len(blocks) < 2:
        return fitted
    if settings.jackknife == "exact" or mean_leverages(spectrum, solution.ratio).max() > HIGH_LEVERAGE:
        return with_doubt(fitted, _refits(statistics, fitted, blocks, scored, settings))
    parts = (select(block.centred(*means) if means else block, scored) for block in blocks)
    contributions = contributions_from_sums(parts, spectrum, solution.ratio, fitted.beta[scored], weights)
    sizes = np.array([block.n for block in blocks])
    return with_doubt(fitted, doubt_from_contributions(fitted.score, contributions, sizes))


def _refits(
    statistics: Statistics, fitted: Evidence, blocks: Sequence[Block], scored: np.ndarray, settings: Settings
) -> Doubt:
    """Scores without each block. A target that only that block holds keeps its score: nothing is known without it."""
    whole = statistics.total()
    scores = []
    for block in blocks:
        rest = whole.minus(block)
        if settings.center:
            rest = rest.centred(rest.feature_sum / rest.n, rest.target_sum / rest.n)
        present = scored & ~_is_rounding(rest.target_squares, whole.target_squares, whole.n)
        part = replace(select(rest, present), n=observations(rest.n, settings))
        spectrum = primal_spectrum(part)
        per_target = fitted.per_target.copy()
        per_target[present] = log_evidence(spectrum, settings.solve(spectrum, part).ratio)[0]
        scores.append(per_target[scored].mean())
    return doubt_from_refits(fitted.score, np.array(scores), np.array([block.n for block in blocks]))


def observations(n: int, settings: Settings) -> int:
    """How many observations n samples are. Centring spends one: only n - 1 contrasts between samples are left.

    It is what integrating over an intercept with a flat prior gives.
    """
    return n - 1 if settings.center else n


def scored_targets(
    kind: Kind, names: Sequence[str], target_squares: Array, uncentred_squares: Array, *, n: int
) -> np.ndarray:
    """Which targets have any label to explain, (C,). A regression column without one is an error."""
    scored = ~_is_rounding(target_squares, uncentred_squares, n)
    missing = [name for name, is_scored in zip(names, scored, strict=True) if not is_scored]
    if kind == "regression" and missing:
        raise InputError(
            f"targets: the column {missing[0]!r} is zero everywhere (after centring, if that was asked for), so there "
            "is nothing to explain. Leave the column out."
        )
    if kind == "classification" and scored.sum() < 2:
        raise InputError("targets hold one class only; at least two are needed to compare features.")
    if not scored.any():
        raise InputError("targets: no label occurs in some samples and not in others, so there is nothing to explain.")
    return scored


def _is_rounding(squares: Array, whole_squares: Array, n: int) -> np.ndarray:
    """Whether a sum of squares is what subtraction leaves of equal numbers, as when a constant column is centred."""
    return to_host(squares) <= 8 * np.sqrt(n) * EPSILON * to_host(whole_squares)


def select(block: Block, scored: np.ndarray) -> Block:
    """The same sums for some of the targets."""
    if scored.all():
        return block
    rows = np.flatnonzero(scored)
    return replace(
        block, cross=block.cross[rows], target_squares=block.target_squares[rows], target_sum=block.target_sum[rows]
    )


def log_evidence(spectrum: Spectrum, ratio: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log evidence a sample at the given t, the same of the null model, and β: (C,) each."""
    profile = Profile.of(spectrum)
    gain, q = profile.gain(to_device_of(ratio / profile.scale, profile.squares), profile.squares, profile.unreachable)
    squares = to_host(spectrum.target_squares)
    null = 0.5 * (np.log(spectrum.n / squares) - 1 - LOG_TWO_PI)
    return null + 0.5 * to_host(gain), null, spectrum.n / squares / to_host(q)


def assemble(
    kind: Kind,
    names: Sequence[str],
    scored: np.ndarray,
    spectrum: Spectrum,
    solution: Solution,
    weights: Array,
    means: tuple[Array, Array] | None,
    settings: Settings,
) -> Evidence:
    """An `Evidence` without doubt, from the solution for the scored targets."""
    per_target, null, beta = log_evidence(spectrum, solution.ratio)

    def spread(values: np.ndarray, otherwise: float) -> np.ndarray:
        whole = np.full((len(names), *values.shape[1:]), otherwise, dtype=values.dtype)
        whole[scored] = values
        return whole

    whole_weights = spread(to_host(weights), 0.0)
    intercept = np.zeros(len(names))
    feature_mean = None
    if means is not None:
        feature_mean = to_host(means[0])
        intercept = to_host(means[1]) - whole_weights @ feature_mean
    score = float(per_target.mean())
    samples = spectrum.n + settings.center
    return Evidence(
        kind=kind,
        targets=tuple(names),
        n=samples,
        feature_dim=spectrum.feature_dim,
        score=score,
        null_score=float(null.mean()),
        per_target=spread(per_target, 0.0),
        per_target_null=spread(null, 0.0),
        alpha=spread(solution.ratio * beta, np.inf),
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
        feature_mean=feature_mean,
        spectrum=spectrum if settings.keep_spectrum else None,
    )


def statistics_of(evidence: Evidence) -> Statistics:
    """The sums that an evidence with a spectrum came from, to rounding, in one block; to add to.

    Without centring the sums of features and targets themselves are not known: they are zero here, so that the result
    is only good for another maximisation without centring.
    """
    spectrum = kept_spectrum(evidence)
    values, basis = to_host(spectrum.squared_singular_values), to_host(spectrum.basis)
    scored = np.array([name not in evidence.unscored for name in evidence.targets])
    statistics = Statistics(evidence.kind, evidence.targets, feature_dim=evidence.feature_dim)
    block = Block.empty(evidence.feature_dim, len(scored), values)
    block.n = evidence.n
    block.upper_gram = add_product(block.upper_gram, (basis * np.sqrt(values)).T)
    block.cross[scored] = (to_host(spectrum.projections) * np.sqrt(values)) @ basis.T
    block.target_squares[scored] = to_host(spectrum.target_squares)
    if evidence.feature_mean is not None:
        target_mean = evidence.intercept + evidence.weights @ evidence.feature_mean
        block = block.centred(-evidence.feature_mean, -target_mean)
    statistics.blocks[0] = block
    return statistics


def with_doubt(evidence: Evidence, doubt: Doubt) -> Evidence:
    """The same evidence with what the jackknife found."""
    return replace(
        evidence,
        standard_error=doubt.standard_error,
        block_scores=doubt.block_scores,
        block_sizes=doubt.block_sizes,
    )
