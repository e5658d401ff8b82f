"""How sure a score is: a block jackknife that costs next to nothing.

At its maximum the evidence does not change to first order when α or β do, so what a sample adds to it is its log
density given all the others, at the same α and β. With h_i the leverage f_iᵀ(FᵀF + tI)⁻¹f_i and m the posterior mean,

    ℓ_i = ½ log(β (1 - h_i) / 2π) - ½ β (y_i - f_iᵀm)² / (1 - h_i)

Rows in memory with fewer samples than dimensions are treated so, one by one. From the sums of a block only what is
linear in them can be had: the leverages are expanded around their mean h = Σh_i / n,

    ℓ_i ≈ ½ log(β (1 - h) / 2π) - ½ [β (y_i - f_iᵀm)² + h_i - h] / (1 - h)

so that no block is left out and re-fitted, unless the mean leverage of some target is above one half: the expansion is
no good then, and with as many features as samples nothing at all is left of the residuals. With centring the means
count as fixed. Where only a handful of samples have a leverage near one (a feature that nobody else has) the expansion
is too small, and `jackknife="exact"` re-fits always.

Every target has a t of its own, and so leverages of its own; their mean over the samples needs no more than σ². The
leverages themselves are found once, at a t in the middle, by one Cholesky factorisation and without eigenvectors, and
are then brought to the mean that they have at the t of each target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hubscout.errors import InputError, check_least
from hubscout.evidence.array_backend import (
    Array,
    add_product,
    chunks,
    fetched,
    is_torch,
    less,
    long_inner,
    namespace,
    packed_inners,
    to_device_of,
    to_host,
    upper_inners,
    upper_zeros,
)
from hubscout.evidence.block import Block
from hubscout.evidence.condensed import Condensed
from hubscout.evidence.eigenvectors import WrittenOut
from hubscout.evidence.spectrum import Spectrum

SINGLE_PRECISION = 1e5
"""The condition number up to which float32 gives leverages to better than a hundredth, at half the cost."""
DOUBLE_PRECISION = 1e12
"""The same for float64. Beyond, only eigenvectors can tell what is rounding."""


@dataclass(frozen=True)
class JackknifeError:
    """The jackknife of a score over B blocks: fields of `Evidence`."""

    standard_error: float | None
    """None with fewer than two blocks."""
    block_scores: np.ndarray
    """(B,), pseudo-values around the score."""
    block_sizes: np.ndarray
    """(B,), samples in each."""


def assign_blocks(n: int, blocks: int | Sequence[int] | np.ndarray) -> np.ndarray:
    """The block of every row, (n,), from 0 on: given, or drawn at random in the same way for every n."""
    if not isinstance(blocks, int | np.integer):
        given = np.asarray(blocks)
        if given.shape != (n,) or given.dtype.kind not in "iu":
            raise InputError(f"blocks must be a whole number or {n} block ids; got {given.dtype} of {given.shape}.")
        return np.unique(given, return_inverse=True)[1]
    check_least("blocks", blocks)
    count = min(int(blocks), n)
    return np.random.default_rng(0).permutation(n) * count // n


def error_from_contributions(score: float, contributions: np.ndarray, sizes: np.ndarray) -> JackknifeError:
    """The jackknife to first order: a pseudo-value is what a block's samples add to the evidence, on average."""
    return _jackknife(score, contributions / sizes, sizes)


def error_from_refits(score: float, without_block: np.ndarray, sizes: np.ndarray) -> JackknifeError:
    """The jackknife from the scores without each block."""
    shares = sizes.sum() / sizes
    return _jackknife(score, shares * score - (shares - 1) * without_block, sizes)


def _jackknife(score: float, pseudo: np.ndarray, sizes: np.ndarray) -> JackknifeError:
    """The delete-m jackknife for blocks of unequal size (Busing, Meijer & van der Leeden, 1999).

    The pseudo-values are moved to have the score as their mean: the jackknife's correction of bias is not wanted,
    since the score is the evidence of these very samples and not an estimate of another number.
    """
    weights = sizes / sizes.sum()
    deviations = pseudo - weights @ pseudo
    if len(sizes) < 2:
        return JackknifeError(None, np.full(len(sizes), score), sizes)
    shares = sizes.sum() / sizes
    variance = float((deviations**2 / (shares - 1)).mean())
    return JackknifeError(math.sqrt(variance), score + deviations, sizes)


@dataclass(frozen=True)
class RowsInBlocks:
    """Rows in memory with their blocks, in place of sums by block: on an accelerator, a few products in all."""

    rows: Array
    """(n, D)."""
    targets: Array
    """Class ids, (n,), or a matrix, (n, C), on the same device."""
    block_of_row: np.ndarray
    shift: Array
    """What is to be taken away from rows, (D,), and targets, (C,)."""
    target_shift: Array

    def __len__(self) -> int:
        return int(self.block_of_row.max()) + 1

    @property
    def sizes(self) -> np.ndarray:
        """(B,)."""
        return np.bincount(self.block_of_row)

    def select(self, targets: np.ndarray) -> RowsInBlocks:
        """The same for some of the targets, (C,), among which are the classes of all rows."""
        if targets.all():
            return self
        places = to_device_of(np.cumsum(targets) - 1, self.rows)
        chosen = to_device_of(np.flatnonzero(targets), self.rows)
        values = places[self.targets] if self.targets.ndim == 1 else self.targets[:, chosen]
        return replace(self, targets=values, target_shift=self.target_shift[chosen])

    def losses(self, weights: Array, constant: Array, precision: Array, kernel: Array, turned: Array) -> np.ndarray:
        """Σ over the rows of each block: precision · residual² of all targets, and fᵀ(kernel f + turned); (B,)."""
        found = []
        for part in chunks(*self.rows.shape, accelerated=True):
            rows, targets = less(self.rows[part], self.shift), self.targets[part]
            left = constant - rows @ weights.T
            if targets.ndim == 1:
                left.scatter_add_(1, targets[:, None], left.new_ones(len(rows), 1))
            else:
                left += less(targets, self.target_shift)
            found.append((left**2) @ precision + (rows * (rows @ kernel + turned)).sum(1))
        return np.bincount(self.block_of_row, weights=to_host(namespace(weights).concat(found)))


def contributions_from_sums(
    blocks: Sequence[Block] | RowsInBlocks,
    spectrum: Spectrum,
    upper_gram: Array | None,
    ratio: np.ndarray,
    beta: np.ndarray,
    weights: Array,
    resolved: Callable[[float, float, Array], tuple[Array, float]],
    constant: Array,
) -> np.ndarray:
    """What each block adds to the evidence, averaged over targets, from its sums or its rows: (B,).

    The sums are of features f and targets y less their shifts. `upper_gram` is that of the spectrum, if at hand.
    With o what must be added to f, `resolved` gives Xo, (D,), and oᵀXo for X = `times` (FᵀF + tI)⁻¹, which is its last
    argument as `inverse` gives it. `constant`, (C,), is the residual where f and y are zero. From sums, all targets
    together need one D × D matrix K: the quadratic part of a block is <K, F_bᵀF_b>.
    """
    xp = namespace(weights)
    leverage = mean_leverages(spectrum, ratio)
    left = 1 - leverage
    level = float((np.log(beta * left / (2 * math.pi)) + leverage / left).mean())
    # The share of each target in the mean, with its expansion's 1 / (1 - h).
    shares = 1 / (left * len(left))
    t = middle_ratio(ratio, shares * leverage)
    times = 0.0 if math.isinf(t) else float(shares @ leverage / mean_leverages(spectrum, np.array([t]))[0])
    precision = to_device_of(beta * shares, weights)
    # Packed Gram matrices are in float32, and what is multiplied with them may be.
    packed = not isinstance(blocks, RowsInBlocks) and blocks[0].upper_gram.ndim == 1
    kernel = inverse(spectrum, upper_gram, t, times, rounded=packed)
    moved, along = resolved(t, times, kernel) if times else (0 * weights[0], 0.0)
    level, turned = level - along, 2 * moved
    if isinstance(blocks, RowsInBlocks):
        return 0.5 * (blocks.sizes * level - blocks.losses(weights, constant, precision, kernel, turned))
    scaled = weights * xp.sqrt(precision)[:, None]
    kernel = add_product(kernel, xp.asarray(scaled, dtype=kernel.dtype))
    if is_torch(kernel):
        kernel = xp.triu(kernel)
    linear = weights * precision[:, None]
    turned = turned - 2 * (linear.T @ constant)
    level -= float(precision @ constant**2)
    grams = [block.upper_gram for block in blocks]
    if packed:
        inners = packed_inners(kernel, grams)
        crossed = np.array([long_inner(linear.ravel(), block.cross.ravel()) for block in blocks])
    else:
        inners = xp.stack(upper_inners(kernel, grams))
        crossed = xp.stack([linear.reshape(-1) @ block.cross.reshape(-1) for block in blocks])
    sums, target_sums, squares = (
        xp.stack([getattr(block, name) for block in blocks]) for name in ("feature_sum", "target_sum", "target_squares")
    )
    # All at once: an accelerator is not waited for block by block.
    crossed, linear, squares = fetched(crossed, sums @ turned, (squares + 2 * constant * target_sums) @ precision)
    sizes = np.array([block.n for block in blocks])
    return 0.5 * (sizes * level - squares + 2 * crossed - (to_host(inners) + linear))


def contributions_from_rows(
    spectrum: Spectrum,
    upper_gram: Array | None,
    targets: Array,
    residuals: Array,
    ratio: np.ndarray,
    beta: np.ndarray,
    block_of_row: np.ndarray,
) -> np.ndarray:
    """The same sample by sample, from U and without expansion: (B,).

    `upper_gram` is of FFᵀ, if it is at hand; `residuals`, (n, C), are of what features reach of the targets.
    """
    xp = namespace(targets)
    if spectrum.rank < spectrum.n:
        # What no feature reaches. With as many directions as observations that is nothing, and would be rounding here.
        unreached = targets - spectrum.vectors.combine(spectrum.projections).T
        residuals = residuals + xp.where(spectrum.repeated[None, :], 0 * unreached, unreached)
    free = spare(spectrum, upper_gram, ratio)
    known = free > 0  # not of a row of zeros, where samples occur again
    free = xp.where(known, free, xp.ones_like(free))
    precision = to_device_of(beta, targets)[None, :] * free
    logs = xp.where(known, xp.log(precision / (2 * math.pi)) - precision * (residuals / free) ** 2, 0 * free)
    return np.bincount(block_of_row, weights=to_host(0.5 * logs.mean(1)))


def mean_leverages(spectrum: Spectrum, ratio: np.ndarray) -> np.ndarray:
    """The mean leverage of a sample, γ / n, at every t, (C,). Zero for the null model."""
    leverages = 1 / (1 + ratio[:, None] / to_host(spectrum.squared_singular_values)[None, :])
    counted = spectrum.multiplicities
    return (leverages.sum(1) if counted is None else leverages @ counted) / spectrum.n


def middle_ratio(ratio: np.ndarray, weights: np.ndarray) -> float:
    """The geometric mean of t, weighted; ∞ where nothing has weight. The null model, t = ∞, must have none."""
    counted = weights > 0
    if not counted.any():
        return math.inf
    return math.exp(np.average(np.log(ratio[counted]), weights=weights[counted]))


def inverse(spectrum: Spectrum, upper: Array | None, t: float, times: float = 1.0, *, rounded: bool = False) -> Array:
    """`times` (FᵀF + tI)⁻¹ within the directions of the spectrum, in new memory.

    `upper` is the upper triangle of FᵀF, if it is at hand. On the host there are zeros below the diagonal; on a device
    the matrix is whole. It is of float64, and may be of float32 with `rounded`.
    """
    values = spectrum.squared_singular_values
    if math.isinf(t):
        like = spectrum.weights if isinstance(spectrum, Condensed) else values
        return upper_zeros(like, spectrum.feature_dim)
    if isinstance(spectrum, Condensed):
        return spectrum.inverse(t).mul_(times)
    factor = _cholesky(spectrum, upper, t)
    if factor is None:
        scaled = spectrum.basis * namespace(values).sqrt(times / (values + t))
        return add_product(upper_zeros(values, spectrum.feature_dim), scaled.T)
    from scipy.linalg import get_lapack_funcs

    found, _ = get_lapack_funcs("potri", (factor,))(factor, lower=False, overwrite_c=True)
    found = found if rounded else found.astype(np.float64, copy=False)
    found *= times / float(values[-1])
    return found


def spare(spectrum: Spectrum, upper: Array | None, ratio: np.ndarray) -> Array:
    """1 - h of every sample for every target, (n, C), from a spectrum with U as its basis.

    It is the diagonal of t (FFᵀ + tI)⁻¹; `upper` is the upper triangle of FFᵀ, if it is at hand. From one t to another
    the odds h / (1 - h) of all samples are multiplied by what those of their means are: exact where all σ² are equal.
    """
    values = spectrum.squared_singular_values
    t = middle_ratio(ratio, mean_leverages(spectrum, ratio))
    factor = None if math.isinf(t) else _cholesky(spectrum, upper, t)
    if factor is None:
        squares = spectrum.basis**2
        found = squares @ (1 / (1 + values[None, :] / to_device_of(ratio, values)[:, None])).T
        # With as many directions as observations nothing is out of their reach, and the rest would be rounding.
        rest = namespace(found).clip(1 - squares.sum(1), min=0.0) * (spectrum.rank < spectrum.n)
        return found + namespace(found).where(spectrum.repeated[None, :], 0 * found, rest[:, None])
    from scipy.linalg import get_lapack_funcs

    root, _ = get_lapack_funcs("trtri", (factor,))(factor, lower=False, overwrite_c=True)
    free = np.einsum("ij,ij->i", root, root, dtype=np.float64) * (t / float(values[-1]))
    times = _mean_odds(spectrum, ratio) / _mean_odds(spectrum, np.array([t]))
    return 1 / (1 + ((1 - free) / free)[:, None] * times[None, :])


def _mean_odds(spectrum: Spectrum, ratio: np.ndarray) -> np.ndarray:
    """The mean of h over the mean of 1 - h, (C,), to all digits even where h is close to one."""
    values = to_host(spectrum.squared_singular_values)[None, :]
    t = ratio[:, None]
    return (1 / (1 + t / values)).sum(1) / ((1 / (1 + values / t)).sum(1) + (spectrum.n - spectrum.rank))


def _cholesky(spectrum: Spectrum, upper: Array | None, t: float) -> np.ndarray | None:
    """The upper Cholesky factor of upper + tI over the largest σ², in as few digits as will do.

    None where it would be no good, or where eigenvectors are written out already.
    """
    if upper is None or isinstance(spectrum.vectors, WrittenOut):
        return None
    values = spectrum.squared_singular_values
    largest, smallest = float(values[-1]), float(values[0]) if spectrum.rank == len(upper) else 0.0
    condition = largest / (smallest + t)
    if condition > DOUBLE_PRECISION:
        return None
    from scipy.linalg import get_lapack_funcs

    matrix = np.empty(upper.shape, np.float32 if condition < SINGLE_PRECISION else np.float64, order="F")
    np.divide(upper, largest, out=matrix, casting="same_kind")
    np.fill_diagonal(matrix, matrix.diagonal() + t / largest)
    factor, status = get_lapack_funcs("potrf", (matrix,))(matrix, lower=False, overwrite_a=True)
    return factor if status == 0 else None
