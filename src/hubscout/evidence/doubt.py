"""How sure a score is: a block jackknife that costs next to nothing.

At its maximum the evidence does not change to first order when α, β or m do, so what one sample adds to it is

    ℓ_i = ½ log(β / 2π) - ½ β (y_i - f_iᵀm)² - ½ f_iᵀ(FᵀF + tI)⁻¹f_i

and the sum over a block is a linear function of the block's sums: no block is left out and re-fitted. With centring
the means count as fixed, which is exact to the same order. Where single samples decide (a feature that only a handful
of samples have: leverage near one) the first order is too small, and `jackknife="exact"` re-fits instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hubscout.evidence.arrays import (
    Array,
    add_product,
    is_torch,
    namespace,
    to_device_of,
    to_host,
    upper_inner,
    upper_zeros,
)
from hubscout.evidence.spectrum import Spectrum
from hubscout.evidence.statistics import Block


@dataclass(frozen=True)
class Doubt:
    """The jackknife of a score over B blocks."""

    standard_error: float | None
    """None with fewer than two blocks."""
    block_scores: np.ndarray
    """(B,), pseudo-values around the score."""
    block_sizes: np.ndarray
    """(B,), samples in each."""


def doubt_from_contributions(score: float, contributions: np.ndarray, sizes: np.ndarray) -> Doubt:
    """The jackknife to first order: a pseudo-value is what a block's samples add to the evidence, on average."""
    return _doubt(score, contributions / sizes, sizes)


def doubt_from_refits(score: float, without_block: np.ndarray, sizes: np.ndarray) -> Doubt:
    """The jackknife from the scores without each block."""
    shares = sizes.sum() / sizes
    return _doubt(score, shares * score - (shares - 1) * without_block, sizes)


def _doubt(score: float, pseudo: np.ndarray, sizes: np.ndarray) -> Doubt:
    """The delete-m jackknife for blocks of unequal size (Busing, Meijer & van der Leeden, 1999).

    The pseudo-values are moved to have the score as their mean: the jackknife's correction of bias is not wanted,
    since the score is the evidence of these very samples and not an estimate of another number.
    """
    weights = sizes / sizes.sum()
    deviations = pseudo - weights @ pseudo
    if len(sizes) < 2:
        return Doubt(None, np.full(len(sizes), score), sizes)
    shares = sizes.sum() / sizes
    variance = float((deviations**2 / (shares - 1)).mean())
    return Doubt(math.sqrt(variance), score + deviations, sizes)


def contributions_from_sums(
    blocks: Iterable[Block], spectrum: Spectrum, ratio: np.ndarray, beta: np.ndarray, weights: Array
) -> np.ndarray:
    """What each block adds to the evidence, averaged over targets, from its sums: (B,).

    All targets together need one D × D matrix K: the quadratic part of a block is <K, F_bᵀF_b>.
    """
    xp = namespace(weights)
    t, precision = to_device_of(ratio, weights), to_device_of(beta, weights)
    targets = int(weights.shape[0])
    values = spectrum.squared_singular_values
    scale = xp.sqrt((1 / (values[None, :] + t[:, None])).mean(0))
    factor = spectrum.basis * scale[None, :]
    scaled = weights * xp.sqrt(precision / targets)[:, None]
    kernel = add_product(upper_zeros(weights, int(weights.shape[1])), factor.T)
    kernel = add_product(kernel, scaled)
    if is_torch(kernel):
        kernel = xp.triu(kernel)
    constant = float(np.log(beta / (2 * math.pi)).mean())
    linear = weights * (precision / targets)[:, None]
    result = []
    for block in blocks:
        quadratic = upper_inner(kernel, block.upper_gram)
        crossed = float((linear * block.cross).sum())
        squares = float((block.target_squares * precision).mean())
        result.append(0.5 * (block.n * constant - squares + 2 * crossed - quadratic))
    return np.array(result)


def contributions_from_dual(
    spectrum: Spectrum, targets: Array, ratio: np.ndarray, beta: np.ndarray, block_of_row: np.ndarray
) -> np.ndarray:
    """The same in the dual, sample by sample, from U: (B,)."""
    t = to_device_of(ratio, targets)[:, None]
    values = spectrum.squared_singular_values[None, :]
    kept = values / (values + t)
    residuals = targets - spectrum.basis @ (spectrum.projections * kept).T
    leverage = to_host((spectrum.basis**2) @ kept.mean(0))
    errors = to_host((residuals**2) @ to_device_of(beta / len(beta), targets))
    constant = float(np.log(beta / (2 * math.pi)).mean())
    return np.bincount(block_of_row, weights=0.5 * (constant - errors - leverage))
