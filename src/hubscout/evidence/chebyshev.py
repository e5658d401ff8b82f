"""A spectrum by a few points: what sums over all directions are near one t, from one inverse and matrix products alone.

With G = FᵀF, some t₀ and S = t₀ (G + t₀I)⁻¹, whose eigenvalues s = t₀/(t₀ + σ²) lie between 0 and 1,

    (G + tI)⁻¹ = (G + t₀I)⁻¹ [I + (t/t₀ - 1) S]⁻¹        log det(G + tI) = log det(G + t₀I) + tr log[I + (t/t₀ - 1) S]

As functions of s the brackets are analytic up to s = 1/(1 - t/t₀), outside of [0, 1], so that their polynomials at
Chebyshev points s_j converge like ρ⁻ᵏ, ρ = coth(|log t/t₀| / 4): an a-priori bound for all t within `reach()` of t₀. A
polynomial at points is a sum over points. With b = Fᵀy, Lagrange's polynomials ℓ_j and

    μ_j = tr ℓ_j(S)        ζ_j = bᵀℓ_j(S)(G + t₀I)⁻¹b / (1 - s_j)

every sum over directions that a profile needs is the same sum over points, as if σ_j² = t₀(1/s_j - 1) occurred μ_j
times and had z² = ζ_j: numbers that need not be positive. Only log det has a constant beside it. The traces of all
Chebyshev polynomials T_k(2S - 1) up to a degree take twice its root of matrix products, since 2 T_i T_j = T_{i+j} +
T_{i-j}.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hubscout.evidence.array_backend import Array, fetched, to_device_of

STEP, STRIDES = 6, 8
"""The degree of the polynomials is their product; the matrix products that it takes are their sum less three."""
TRUNCATION = 1e-13
"""Of the polynomials, relative to their largest value."""


@dataclass(frozen=True)
class Points:
    """What stands for the spectrum within reach of t₀, on the host."""

    middle: float
    """t₀."""
    multiplicities: np.ndarray
    """μ, (J,)."""
    level: float
    """As in `Profile`."""
    squares: np.ndarray
    """ζ of every target and, last, of the constant: (C + 1, J)."""
    crossed: np.ndarray
    """The same between each of them and the constant."""
    moved: Array
    """T_k(2S - 1)(G + t₀I)⁻¹b, (J, C + 1, D), on the device."""

    @property
    def values(self) -> np.ndarray:
        """σ_j² / t₀ = tan² θ_j/2, (J,)."""
        return np.tan(_angles() / 2) ** 2

    def weights(self, ratio: np.ndarray) -> Array:
        """(G + tI)⁻¹b at one t per target, (C, D); zero at t = ∞."""
        finite = np.isfinite(ratio)
        more = np.where(finite, ratio, self.middle) / self.middle - 1
        shares = _chebyshev() @ (finite / (1 + np.cos(_angles() / 2)[:, None] ** 2 * more))
        return (self.moved[:, :-1] * to_device_of(shares, self.moved)[:, :, None]).sum(0)


def degree() -> int:
    """Of the polynomials."""
    return STEP * STRIDES


def reach() -> float:
    """How far log t may be from log t₀: where ρ to the power of the degree is what the truncation may be."""
    return 4 * math.atanh(TRUNCATION ** (1 / degree()))


def numbers_at_once(targets: int, dim: int) -> int:
    """How many numbers `points` holds on the device."""
    return dim * ((STEP + STRIDES) * dim + 2 * (degree() + 1) * (targets + 1))


def _angles() -> np.ndarray:
    """θ of the Chebyshev points cos θ = 2s - 1, rising, (J,)."""
    count = degree() + 1
    return (np.arange(count) + 0.5) * (math.pi / count)


def _chebyshev() -> np.ndarray:
    """(J, J): from values at the points to coefficients of T_k, and transposed, from bᵀT_k c to bᵀℓ_j c."""
    angles = _angles()
    matrix = np.cos(np.arange(len(angles))[:, None] * angles) * (2 / len(angles))
    matrix[0] /= 2
    return matrix


def shifted_factor(gram: Array, t: float | Array) -> tuple[Array, Array]:
    """The lower Cholesky factor of G + tI, and whether that failed."""
    import torch

    shifted = gram.clone()
    shifted.diagonal().add_(t)
    return torch.linalg.cholesky_ex(shifted)


def points(gram: Array, rows: Array, t: float) -> Points | None:
    """Condense the spectrum about t, for the rows b, (C + 1, D), of which the last is of the constant.

    None if there is no Cholesky factor.
    """
    import torch

    factor, failed = shifted_factor(gram, t)
    moved = rows.new_empty(degree() + 1, *rows.shape)
    moved[0] = torch.cholesky_solve(rows.T, factor).T
    powers, strides = polynomials(torch.cholesky_inverse(factor).mul_(2 * t))
    torch.bmm(moved[0].expand(STEP, -1, -1), powers, out=moved[1 : STEP + 1])
    before = moved[:STEP].flip(0)
    for start in range(1, degree() - STEP, STEP):  # T_{k + STEP} = 2 T_STEP T_k - T_{k - STEP}
        here, after = (moved[first : first + STEP].flatten(0, 1) for first in (start, start + STEP))
        torch.addmm(before.flatten(0, 1), here, strides[0], beta=-1, alpha=2, out=after)
        before = moved[start : start + STEP]
    # <T_i, T_j> of all i up to STEP and all j that are multiples of it, as one product per row of both.
    inners = torch.matmul(powers.transpose(0, 1), strides.permute(1, 2, 0)).sum(0)
    found = (
        factor.diagonal().log().sum(),
        failed.double(),
        torch.diagonal(powers, dim1=1, dim2=2).sum(1),
        inners,
        (moved * rows).sum(2),
        moved @ rows[-1],
    )
    log_det, status, first, products, own, crossed = fetched(*found)
    if status != 0:
        return None
    traces = np.concatenate([[float(gram.shape[0])], first, np.zeros(degree() - STEP)])
    for stride in range(1, STRIDES):
        for step in range(1, STEP + 1):
            middle = stride * STEP
            traces[middle + step] = 2 * products[step - 1, stride - 1] - traces[middle - step]
    weights = _chebyshev()
    multiplicities, far = traces @ weights, np.sin(_angles() / 2) ** 2
    level = 2 * float(log_det) - gram.shape[0] * math.log(t) + 2 * float(multiplicities @ np.log(np.cos(_angles() / 2)))
    return Points(t, multiplicities, level, own.T @ weights / far, crossed.T @ weights / far, moved)


def polynomials(double: Array) -> tuple[Array, Array]:
    """T_k(2S - 1) for k from 1 to STEP, and for its multiples below the degree: (STEP, D, D), (STRIDES - 1, D, D).

    `double` is 2S, which is overwritten.
    """
    import torch

    powers, strides = (double.new_empty(count, *double.shape) for count in (STEP, STRIDES - 1))
    identity = torch.eye(len(double), dtype=double.dtype, device=double.device)
    double.diagonal().sub_(1)
    for stack, one in ((powers, double), (strides, powers[-1])):
        stack[0] = one
        for index in range(1, len(stack)):
            before = stack[index - 2] if index > 1 else identity
            torch.addmm(before, one, stack[index - 1], beta=-1, alpha=2, out=stack[index])
    return powers, strides
