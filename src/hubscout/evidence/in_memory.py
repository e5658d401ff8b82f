"""`logme`: the score of features that are in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hubscout.errors import InputError
from hubscout.evidence.arrays import (
    Array,
    add_product,
    chunks,
    namespace,
    to_device_of,
    to_float64,
    to_host,
    upper_zeros,
    zeros_like_device,
)
from hubscout.evidence.checks import Targets, check_features, check_finite, check_targets
from hubscout.evidence.convergence import kept_spectrum
from hubscout.evidence.doubt import contributions_from_rows, doubt_from_contributions
from hubscout.evidence.eigenvectors import WrittenOut
from hubscout.evidence.evidence import Evidence
from hubscout.evidence.maximize import (
    Jackknife,
    Settings,
    assemble,
    fit,
    observations,
    scored_targets,
    with_doubt,
)
from hubscout.evidence.posterior import dual_coefficients, mean_weights
from hubscout.evidence.solution import SOLVERS
from hubscout.evidence.spectrum import Spectrum, dual_spectrum, score_rounding, singular_spectra
from hubscout.evidence.statistics import Statistics

ROUNDING_TOLERANCE = 1e-10
"""If squaring the features may have cost the score more than this, it is computed again without squaring."""


def logme(
    features: object,
    targets: object,
    *,
    kind: str = "auto",
    classes: Sequence[object] | None = None,
    target_names: Sequence[str] | None = None,
    center: bool = False,
    blocks: int | Sequence[int] | np.ndarray = 10,
    solver: str = "newton",
    jackknife: Jackknife = "linear",
    tolerance: float | None = None,
    max_iterations: int | None = None,
    keep_spectrum: bool = True,
) -> Evidence:
    """LogME: the logarithm of the maximum evidence of the targets given the features, a sample and a target.

    A Bayesian linear model y = Fw + noise, with w ~ N(0, I/α) and noise ~ N(0, 1/β), is given the α and β that make
    the targets most probable (You et al., JMLR 23, 2022). Classes become one 0/1 column each. The score has no upper
    bound, does not depend on the scale, rotation, padding or duplication of features, and moves by -log c when the
    targets are multiplied by c; `Evidence.gain` does not depend on the scale of targets either.

    `kind` is "classification" (a vector of classes), "multilabel" (a 0/1 matrix) or "regression" (a vector or a
    matrix of numbers). "auto" takes a vector of integers, booleans or strings for classes, a matrix of integers or
    booleans for multi-label, and floats for regression, even where every float is whole.

    `classes` lists all classes, if some may not occur; those are not scored (`Evidence.unscored`), and without the
    list the classes are those that occur. `center` takes the means of features and targets away first, as a model with
    an intercept does; that spends one observation, so the score is then over n - 1 (without this, n ≤ D centred labels
    would always be fitted without noise, and their evidence would have no maximum). `blocks` is the
    number of random blocks of the jackknife, or the block of every row. The other arguments are those of
    `maximize_evidence`.

    >>> from sklearn.datasets import load_iris
    >>> flowers = load_iris()
    >>> result = logme(flowers.data, flowers.target, target_names=flowers.target_names)
    >>> round(result.score, 4), round(result.gain, 4), result.targets
    (-0.1601, 0.7096, ('setosa', 'versicolor', 'virginica'))
    """
    settings = Settings(solver, center, jackknife, tolerance, max_iterations, keep_spectrum)
    rows = check_features(features)
    n, dim = (int(size) for size in rows.shape)
    labels = check_targets(targets, n, kind=kind, classes=classes, target_names=target_names)
    block_of_row = assign_blocks(n, blocks)
    check_finite(rows)
    if n < dim and jackknife != "exact" and not SOLVERS[solver].needs_sums:
        return _dual(rows, labels, block_of_row, settings)
    return _primal(rows, labels, block_of_row, settings)


def assign_blocks(n: int, blocks: int | Sequence[int] | np.ndarray) -> np.ndarray:
    """The block of every row, (n,), from 0 on: given, or drawn at random in the same way for every n."""
    if not isinstance(blocks, int | np.integer):
        given = np.asarray(blocks)
        if given.shape != (n,) or given.dtype.kind not in "iu":
            raise InputError(f"blocks must be a whole number or {n} block ids; got {given.dtype} of {given.shape}.")
        return np.unique(given, return_inverse=True)[1]
    if blocks < 1:
        raise InputError(f"blocks must be at least 1; got {blocks}.")
    count = min(int(blocks), n)
    positions = np.random.default_rng(0).permutation(n)
    return positions * count // n


def _primal(rows: Array, labels: Targets, block_of_row: np.ndarray, settings: Settings) -> Evidence:
    """Sums by block, then as from any other sums. Means are taken away before squaring, which loses no digits."""
    statistics = Statistics(labels.kind, labels.names)
    values = labels.values
    offsets = None
    if settings.center:
        offsets = (_column_means(rows), zeros_like_device(rows, len(labels.names)))
        if labels.kind == "regression":  # sums of zeros and ones lose no digits
            values, target_means = _centred_columns(to_float64(to_device_of(values, rows)))
            offsets = (offsets[0], target_means)
    count = int(block_of_row.max()) + 1 if settings.jackknife != "none" else 1
    for block in range(count):
        chosen = slice(None) if count == 1 else to_device_of(np.flatnonzero(block_of_row == block), rows)
        part = rows[chosen] if offsets is None else to_float64(rows[chosen]) - offsets[0]
        on_host = isinstance(values, np.ndarray) and not isinstance(chosen, slice)
        statistics.add_checked(part, values[to_host(chosen) if on_host else chosen], block=block)
    fitted = fit(statistics, settings if settings.keep_spectrum else replace(settings, keep_spectrum=True), offsets)
    scored = [index for index, name in enumerate(fitted.targets) if name not in fitted.unscored]
    spectrum = kept_spectrum(fitted)
    exact_digits = score_rounding(spectrum, fitted.ratio[scored]) <= ROUNDING_TOLERANCE
    if not exact_digits and settings.jackknife != "exact" and not SOLVERS[settings.solver].needs_sums:
        return _decomposed(rows, labels, block_of_row, settings)
    return fitted if settings.keep_spectrum else fitted.without_spectrum()


def _dual(rows: Array, labels: Targets, block_of_row: np.ndarray, settings: Settings) -> Evidence:
    """For fewer samples than dimensions: an n × n eigenproblem, and no D × D matrix anywhere."""
    n, dim = (int(size) for size in rows.shape)
    targets, means, scored = _dense_targets(rows, labels, settings)
    inner = upper_zeros(rows, n)
    for columns in chunks(dim, n):
        inner = add_product(inner, _column_part(rows, columns, means).T)
    spectrum = dual_spectrum(inner, targets, observations(n, settings), dim)
    solution = settings.solve(spectrum, None)
    if score_rounding(spectrum, solution.ratio) > ROUNDING_TOLERANCE:
        return _decomposed(rows, labels, block_of_row, settings)
    coefficients = dual_coefficients(spectrum, solution.ratio)
    weights = zeros_like_device(rows, targets.shape[1], dim)
    basis = zeros_like_device(rows, dim, spectrum.rank) if settings.keep_spectrum else None
    for columns in chunks(dim, n):
        part = _column_part(rows, columns, means)
        weights[:, columns] = coefficients.T @ part
        if basis is not None:
            basis[columns] = part.T @ spectrum.basis
    if basis is not None:
        basis /= namespace(basis).sqrt(spectrum.squared_singular_values)
    kept = spectrum if basis is None else replace(spectrum, vectors=WrittenOut(basis))
    fitted = assemble(labels.kind, labels.names, scored, kept, solution, weights, means, settings)
    return _with_row_doubt(fitted, spectrum, targets, scored, block_of_row, settings)


def _decomposed(rows: Array, labels: Targets, block_of_row: np.ndarray, settings: Settings) -> Evidence:
    """From the singular values of the features themselves: slower, but small ones keep all their digits."""
    targets, means, scored = _dense_targets(rows, labels, settings)
    n = observations(int(rows.shape[0]), settings)
    left, right = singular_spectra(_column_part(rows, slice(None), means), targets, n)
    solution = settings.solve(right, None)
    weights = mean_weights(right, solution.ratio)
    fitted = assemble(labels.kind, labels.names, scored, right, solution, weights, means, settings)
    return _with_row_doubt(fitted, left, targets, scored, block_of_row, settings)


def _dense_targets(
    rows: Array, labels: Targets, settings: Settings
) -> tuple[Array, tuple[Array, Array] | None, np.ndarray]:
    """The scored columns of the targets, centred if asked for; the means of features and targets; what is scored."""
    targets = _target_matrix(labels, rows)
    means = None
    if settings.center:
        targets, target_means = _centred_columns(targets)
        means = (_column_means(rows), target_means)
    squares = (targets**2).sum(0)
    scored = scored_targets(labels.kind, labels.names, squares, squares, n=int(rows.shape[0]))
    return targets[:, np.flatnonzero(scored)], means, scored


def _with_row_doubt(
    fitted: Evidence,
    spectrum: Spectrum,
    targets: Array,
    scored: np.ndarray,
    block_of_row: np.ndarray,
    settings: Settings,
) -> Evidence:
    """Add the jackknife, from what every row adds to the evidence; `spectrum` has U as its basis."""
    if settings.jackknife == "none" or block_of_row.max() == 0:
        return fitted
    ratio, beta = fitted.ratio[scored], fitted.beta[scored]
    contributions = contributions_from_rows(spectrum, targets, ratio, beta, block_of_row)
    return with_doubt(fitted, doubt_from_contributions(fitted.score, contributions, np.bincount(block_of_row)))


def _column_part(rows: Array, columns: slice, means: tuple[Array, Array] | None) -> Array:
    part = to_float64(rows[:, columns])
    return part if means is None else part - means[0][columns]


def _column_means(rows: Array) -> Array:
    total = zeros_like_device(rows, rows.shape[1])
    for part in chunks(*rows.shape):
        total += to_float64(rows[part]).sum(0)
    return total / rows.shape[0]


def _centred_columns(columns: Array) -> tuple[Array, Array]:
    """Columns less their means, and the means; a constant column becomes zero exactly."""
    means = columns.mean(0)
    constant = (columns == columns[:1]).all(0)
    return namespace(columns).where(constant, 0.0 * means, columns - means), means


def _target_matrix(labels: Targets, reference: Array) -> Array:
    if labels.kind != "classification":
        return to_float64(to_device_of(labels.values, reference))
    matrix = np.zeros((len(labels.values), len(labels.names)))
    matrix[np.arange(len(labels.values)), labels.values] = 1
    return to_device_of(matrix, reference)
