"""`logme`: the score of features that are in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from hubscout.evidence.array_backend import (
    Array,
    add_product,
    chunks,
    is_torch,
    less,
    namespace,
    sums_by_id,
    to_device_of,
    to_float64,
    to_host,
    upper_zeros,
    zeros_like_device,
)
from hubscout.evidence.block import check_scored, observations
from hubscout.evidence.checks import Targets, check_features, check_finite, check_targets, default_center
from hubscout.evidence.eigenvectors import Deferred
from hubscout.evidence.evidence import Evidence
from hubscout.evidence.jackknife import RowsInBlocks, assign_blocks, contributions_from_rows, error_from_contributions
from hubscout.evidence.maximize import MOST_ROUNDING, Jackknife, Settings, assemble, fit, warned
from hubscout.evidence.offset import is_far, mean_direction
from hubscout.evidence.posterior import dual_residuals, mean_weights
from hubscout.evidence.solvers import SOLVERS
from hubscout.evidence.spectrum import Spectrum, dual_spectrum, kept, score_rounding, score_without, singular_spectra
from hubscout.evidence.statistics import may_be_rounded, sums_of_rows

MISSING_TOLERANCE = 1e-8
"""The same for directions that were left out: in features of less than float64 some of them hold rounding."""
PROBES = 16
"""Random vectors by which they are looked at."""


def logme(
    features: object,
    targets: object,
    *,
    kind: str = "auto",
    classes: Sequence[object] | None = None,
    target_names: Sequence[str] | None = None,
    center: bool | None = None,
    blocks: int | Sequence[int] | np.ndarray = 10,
    solver: str = "newton",
    jackknife: Jackknife = "linear",
    tolerance: float | None = None,
    max_iterations: int | None = None,
    keep_spectrum: bool = True,
    most_rounding: float = MOST_ROUNDING,
) -> Evidence:
    """LogME: the logarithm of the maximum evidence of the targets given the features, per sample and per target.

    A Bayesian linear model y = Fw + noise, with w ~ N(0, I/α) and noise ~ N(0, 1/β), is given the α and β that make
    the targets most probable (You et al., JMLR 23, 2022). Classes become one 0/1 column each. The score has no upper
    bound, does not depend on the scale, rotation, padding or duplication of features, and moves by -log c when the
    targets are multiplied by c. `Evidence.gain` counts over base rates and does not depend on the scale of targets.
    An offset common to all features costs no digits, up to 1e8 times their deviations.

    Args:
        features: (n, D) numbers: an array, a nested list or a torch tensor on any device. They are not changed.
        targets: n classes (text or numbers), an (n, C) matrix of 0 and 1, or n or (n, C) real numbers.
        kind: "classification" (a vector of classes), "multilabel" (a 0/1 matrix) or "regression" (a vector or a matrix
            of numbers). "auto" takes a vector of integers, booleans or strings for classes, a matrix of integers or
            booleans for multi-label, and floats for regression, even where every float is whole.
        classes: all classes, if some may not occur; those are not scored (`Evidence.unscored`). Without the list the
            classes are those that occur.
        target_names: what to call the targets.
        center: take the means of features and targets away first, as a model with an intercept does. That spends one
            observation, so the score is then over n - 1 (without this, n ≤ D centred labels would always be fitted
            without noise, and their evidence would have no maximum). None centres for regression and not for classes
            and labels: the rule of `rank` and of `LogMERegressor`.
        blocks: the number of random blocks of the jackknife, or the block of every row.
        solver: "newton" (the global maximum, all targets at once) or one of the paper's "naive", "mackay" and
            "fixed-point", which start at α = β = 1 and find a local one.
        jackknife: over the blocks: "linear" (nearly free), "exact" (re-fits without each block) or "none".
        tolerance: on log t; each solver has a default of its own.
        max_iterations: the same.
        keep_spectrum: without it the result is small, but has no predictive variances.
        most_rounding: nats per sample. Where squaring the features may have cost the score more, it is computed again
            without squaring, in several times the time; with `math.inf` never, as from sums.

    Returns:
        The evidence: score, weights, α and β of every target.

    Raises:
        InputError: features or targets that are not numbers of the right shape, or leave nothing to explain.
        UnknownSolverError: there is no such solver.

    Warns with `UnboundedEvidenceWarning` where features fit a target without noise (`Evidence.unbounded`), and with
    `RoundingWarning` where digits are missing (`Evidence.rounding`).

    Example:
        >>> from sklearn.datasets import load_iris
        >>> flowers = load_iris()
        >>> result = logme(flowers.data, flowers.target, target_names=flowers.target_names)
        >>> round(result.score, 4), round(result.gain, 4), result.targets
        (-0.1601, 0.549, ('setosa', 'versicolor', 'virginica'))

    """
    rows = check_features(features)
    n, dim = (int(size) for size in rows.shape)
    labels = check_targets(targets, n, kind=kind, classes=classes, target_names=target_names)
    centred = default_center(labels.kind) if center is None else center
    settings = Settings(solver, centred, jackknife, tolerance, max_iterations, keep_spectrum, most_rounding)
    block_of_row = assign_blocks(n, blocks)
    check_finite(rows)
    if n < dim and jackknife != "exact" and not SOLVERS[solver].needs_sums:
        return warned(_dual(rows, labels, block_of_row, settings))
    return warned(_primal(rows, labels, block_of_row, settings))


def _primal(rows: Array, labels: Targets, block_of_row: np.ndarray, settings: Settings) -> Evidence:
    """Sums by block, then as from any other sums."""
    settled = replace(settings, keep_spectrum=True)
    one, linear, again = np.zeros_like(block_of_row), settings.jackknife == "linear", None
    blocks = one if settings.jackknife == "none" else block_of_row
    # An accelerator needs no sums by block, but for fits without one.
    by_row = linear and is_torch(rows)
    together = linear and may_be_rounded(rows, labels)
    statistics, running = sums_of_rows(rows, labels, one if by_row else blocks, together=together)
    if by_row:
        shifts = statistics.blocks[0].shift, statistics.blocks[0].target_shift
        again = RowsInBlocks(rows, to_device_of(labels.values, rows), blocks, *shifts)
    fitted = fit(statistics, settled, running, again)
    if len(again or running) > 1 and fitted.standard_error is None:
        statistics, _ = sums_of_rows(rows, labels, blocks, together=False)
        fitted = fit(statistics, settled)
    checked = not math.isinf(settings.most_rounding)
    if checked and settings.jackknife != "exact" and not SOLVERS[settings.solver].needs_sums:
        shift = next(iter(statistics.blocks.values())).shift

        def product(weights: Array) -> Array:
            return namespace(weights).concat([less(rows[part], shift) @ weights for part in chunks(*rows.shape)])

        rounding = fitted.rounding
        if fitted.spectrum is not None and fitted.spectrum.cut:
            rounding = _looked_into(fitted, labels, product)
        if rounding > settings.most_rounding or fitted.unbounded:
            return _decomposed(rows, labels, block_of_row, settings)
        fitted = replace(fitted, rounding=rounding)
    return fitted if settings.keep_spectrum else fitted.without_spectrum()


def _looked_into(fitted: Evidence, labels: Targets, product: Callable[[Array], Array]) -> float:
    """How much of the score is rounding, once the directions that were left out have been looked at.

    From squares nobody can say whether they hold anything. The `product` of the features with random vectors in them
    can, since it is not made of squares: it has the sum of their σ² on average, and it shows if they explain targets.
    """
    spectrum = kept(fitted.spectrum)
    xp, vectors = namespace(spectrum.squared_singular_values), spectrum.vectors
    scored = fitted.scored
    ratio, beta = fitted.ratio[scored], fitted.beta[scored]
    drawn = np.random.default_rng(0).normal(size=(min(PROBES, fitted.feature_dim - fitted.rank), fitted.feature_dim))
    drawn = to_device_of(drawn, spectrum.squared_singular_values)
    seen = product((drawn - vectors.combine(vectors.coordinates(drawn))).T)
    seen = seen - seen.mean(0)
    held = float((seen**2).sum()) / drawn.shape[0]
    missing = score_without(held, spectrum, ratio, beta)
    left = to_host(xp.linalg.qr(seen)[0])
    if labels.kind == "classification":
        found = sums_by_id(left, labels.values, len(labels.names))[scored]
    else:
        found = to_host(to_float64(labels.values)).T[scored] @ left
    # Of targets that have nothing to do with them, directions explain one part in n each, on average.
    share = (found**2).sum(1) * spectrum.n / to_host(spectrum.target_squares)
    if (share > 30 + 2 * left.shape[1]).any():
        return math.inf
    return score_rounding(spectrum, ratio, beta) + (missing if missing > MISSING_TOLERANCE else 0.0)


def _dual(rows: Array, labels: Targets, block_of_row: np.ndarray, settings: Settings) -> Evidence:
    """For fewer samples than dimensions: an n × n eigenproblem, and no D × D matrix anywhere."""
    n, dim = (int(size) for size in rows.shape)
    means = _column_means(rows)
    if not settings.center and is_far(means @ means, n, _spread(rows, means)):
        return _decomposed(rows, labels, block_of_row, settings)
    targets, target_means, squares, scored = _dense_targets(rows, labels, settings)
    taken = means if settings.center else None
    inner = upper_zeros(rows, n)
    for columns in chunks(dim, n):
        inner = add_product(inner, _column_part(rows, columns, taken).T)
    spectrum = dual_spectrum(inner, targets, observations(n, settings.center), dim)
    solution = settings.solve(spectrum, None)
    residuals = dual_residuals(spectrum, solution.ratio)
    coefficients = residuals / to_device_of(solution.ratio, residuals)
    weights = zeros_like_device(rows, targets.shape[1], dim)
    for columns in chunks(dim, n):
        weights[:, columns] = coefficients.T @ _column_part(rows, columns, taken)
    kept = replace(spectrum, vectors=_right_vectors(rows, taken, spectrum)) if settings.keep_spectrum else spectrum
    ones = to_device_of(np.ones((1, n)), targets)
    if spectrum.reduced is None:
        constant = to_host(spectrum.vectors.coordinates(ones))[0]
    else:
        constant = spectrum.reduced.vectors.reflect(ones.T, transposed=True)[:, 0]
    assembled = (labels.kind, labels.names, scored, kept, solution, weights, (means, target_means), squares)
    fitted = assemble(*assembled, settings, constant=constant)
    if fitted.rounding > settings.most_rounding or (fitted.unbounded and not math.isinf(settings.most_rounding)):
        return _decomposed(rows, labels, block_of_row, settings)
    return _with_row_error(fitted, spectrum, inner, targets, residuals, scored, block_of_row, settings)


def _right_vectors(rows: Array, means: Array | None, spectrum: Spectrum) -> Deferred:
    """V = FᵀU/σ, for whoever asks for predictive variances. The rows may change until then, so they are copied."""
    kept = namespace(rows).asarray(rows, copy=True)

    def write() -> Array:
        dim, basis = int(kept.shape[1]), spectrum.basis
        result = zeros_like_device(kept, dim, spectrum.rank)
        for columns in chunks(dim, int(kept.shape[0])):
            result[columns] = _column_part(kept, columns, means).T @ basis
        return result / namespace(result).sqrt(spectrum.squared_singular_values)

    return Deferred(write)


def _decomposed(rows: Array, labels: Targets, block_of_row: np.ndarray, settings: Settings) -> Evidence:
    """From the singular values of the features themselves: slower, but small ones keep all their digits."""
    samples = int(rows.shape[0])
    targets, target_means, squares, scored = _dense_targets(rows, labels, settings)
    means = _column_means(rows)
    features = less(rows, means)
    features -= features.mean(0)  # what rounding left in the means
    direction = None
    if not settings.center:
        if is_far(means @ means, samples, float((features**2).sum())):
            direction = mean_direction(lambda vector: features.T @ (features @ vector), means, samples)
        else:
            features = to_float64(rows)
    left, right = singular_spectra(features, targets, observations(samples, settings.center), direction)
    solution = settings.solve(right, None)
    weights = mean_weights(right, solution.ratio)
    apart = None
    if direction is not None and (squares > 0).all():
        centred = _decomposed(rows, labels, block_of_row, replace(settings, center=True, jackknife="none"))
        apart = centred.over_base_rates
    assembled = (labels.kind, labels.names, scored, right, solution, weights, (means, target_means), squares)
    fitted = assemble(*assembled, settings, apart, to_host(left.basis.sum(0)))
    residuals = dual_residuals(left, solution.ratio)
    return _with_row_error(fitted, left, None, targets, residuals, scored, block_of_row, settings)


def _dense_targets(rows: Array, labels: Targets, settings: Settings) -> tuple[Array, Array, Array, np.ndarray]:
    """The scored columns of the targets, centred if asked for; means and squares of all of them; what is scored."""
    targets = _target_matrix(labels, rows)
    means = targets.mean(0)
    squares = ((targets - means) ** 2).sum(0)
    if settings.center:
        constant = (targets == targets[:1]).all(0)
        targets = namespace(targets).where(constant, 0.0 * means, targets - means)
    scored = to_host((targets**2).sum(0) > 0)
    check_scored(labels.kind, labels.names, scored)
    return targets[:, np.flatnonzero(scored)], means, squares, scored


def _with_row_error(
    fitted: Evidence,
    spectrum: Spectrum,
    inner: Array | None,
    targets: Array,
    residuals: Array,
    scored: np.ndarray,
    block_of_row: np.ndarray,
    settings: Settings,
) -> Evidence:
    """Add the jackknife, from what every row adds to the evidence; `spectrum` has U as its basis, `inner` is FFᵀ."""
    if settings.jackknife == "none" or block_of_row.max() == 0:
        return fitted
    ratio, beta = fitted.ratio[scored], fitted.beta[scored]
    contributions = contributions_from_rows(spectrum, inner, targets, residuals, ratio, beta, block_of_row)
    return replace(fitted, **vars(error_from_contributions(fitted.score, contributions, np.bincount(block_of_row))))


def _column_part(rows: Array, columns: slice, means: Array | None) -> Array:
    return to_float64(rows[:, columns]) if means is None else less(rows[:, columns], means[columns])


def _column_means(rows: Array) -> Array:
    total = zeros_like_device(rows, rows.shape[1])
    for part in chunks(*rows.shape):
        total += to_float64(rows[part]).sum(0)
    return total / rows.shape[0]


def _spread(rows: Array, means: Array) -> float:
    """The sum of squares about the means."""
    return sum(float((less(rows[part], means) ** 2).sum()) for part in chunks(*rows.shape))


def _target_matrix(labels: Targets, reference: Array) -> Array:
    if labels.kind != "classification":
        return to_float64(to_device_of(labels.values, reference))
    matrix = np.zeros((len(labels.values), len(labels.names)))
    matrix[np.arange(len(labels.values)), labels.values] = 1
    return to_device_of(matrix, reference)
