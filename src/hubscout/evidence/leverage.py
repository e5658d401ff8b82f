"""Leverages: how much samples decide of their own predictions, h_i(t) = f_iᵀ(FᵀF + tI)⁻¹f_i.

Every target has a t of its own, and so leverages of its own; their mean over the samples needs no more than σ². The
leverages themselves are found once, at a t in the middle, by one Cholesky factorisation and without eigenvectors, and
are then brought to the mean that they have at the t of each target.
"""

from __future__ import annotations

import math

import numpy as np

from hubscout.evidence.array_backend import (
    Array,
    add_product,
    namespace,
    to_device_of,
    to_host,
    upper_zeros,
)
from hubscout.evidence.eigenvectors import WrittenOut
from hubscout.evidence.spectrum import Spectrum

SINGLE_PRECISION = 1e5
"""The condition number up to which float32 gives leverages to better than a hundredth, at half the cost."""
DOUBLE_PRECISION = 1e12
"""The same for float64. Beyond, only eigenvectors can tell what is rounding."""


def mean_leverages(spectrum: Spectrum, ratio: np.ndarray) -> np.ndarray:
    """The mean leverage of a sample, γ / n, at every t, (C,). Zero for the null model."""
    values = to_host(spectrum.squared_singular_values)
    return (1 / (1 + ratio[:, None] / values[None, :])).sum(1) / spectrum.n


def middle_ratio(ratio: np.ndarray, weights: np.ndarray) -> float:
    """The geometric mean of t, weighted; ∞ where nothing has weight. The null model, t = ∞, must have none."""
    counted = weights > 0
    if not counted.any():
        return math.inf
    return math.exp(np.average(np.log(ratio[counted]), weights=weights[counted]))


def inverse(spectrum: Spectrum, upper: Array | None, t: float, times: float = 1.0) -> Array:
    """`times` (FᵀF + tI)⁻¹ within the directions of the spectrum: its upper triangle, in new memory.

    `upper` is the upper triangle of FᵀF, if it is at hand. On the host there are zeros below the diagonal.
    """
    values = spectrum.squared_singular_values
    if math.isinf(t):
        return upper_zeros(values, spectrum.feature_dim)
    factor = _cholesky(spectrum, upper, t)
    if factor is None:
        scaled = spectrum.basis * namespace(values).sqrt(times / (values + t))
        return add_product(upper_zeros(values, spectrum.feature_dim), scaled.T)
    from scipy.linalg import get_lapack_funcs

    found, _ = get_lapack_funcs("potri", (factor,))(factor, lower=False, overwrite_c=True)
    return np.multiply(found, times / float(values[-1]), dtype=np.float64, order="F")


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
        rest = (1 - squares.sum(1)) * (spectrum.rank < spectrum.n)
        return found + namespace(found).clip(rest, min=0.0)[:, None]
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
