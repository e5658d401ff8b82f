"""The posterior of the weights: its mean, what it predicts for new features, and what it is closest to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hubscout.errors import InputError
from hubscout.evidence.array_backend import Array, chunks, is_torch, namespace, to_device_of, to_float64, to_host
from hubscout.evidence.checks import check_features, check_finite
from hubscout.evidence.condensed import Condensed
from hubscout.evidence.eigenvectors import Reduced
from hubscout.evidence.spectrum import Spectrum, kept

if TYPE_CHECKING:
    from hubscout.evidence.evidence import Evidence


def mean_weights(spectrum: Spectrum, ratio: np.ndarray) -> Array:
    """The posterior mean m = (FᵀF + tI)⁻¹Fᵀy for every target, (C, D), from the primal spectrum."""
    if isinstance(spectrum, Condensed):
        return spectrum.weights
    if spectrum.reduced is not None:
        return _solved(spectrum.reduced, ratio).T
    return spectrum.vectors.combine(mean_coefficients(spectrum, ratio))


def mean_coefficients(spectrum: Spectrum, ratio: np.ndarray) -> Array:
    """The same in the coordinates of the spectrum, (C, r)."""
    values = spectrum.squared_singular_values
    t = to_device_of(ratio, values)[:, None]
    root = namespace(values).sqrt(values)[None, :]
    return spectrum.projections * (root / (values[None, :] + t))


def dual_residuals(spectrum: Spectrum, ratio: np.ndarray) -> Array:
    """What the fit leaves of that part of the targets which features reach, (n, C), from the dual spectrum.

    The posterior mean is m = Fᵀa, with this over t as a.
    """
    if spectrum.reduced is not None:
        finite = np.isfinite(ratio)
        return _solved(spectrum.reduced, ratio, np.where(finite, ratio, 1.0), spectrum.reduced.columns * ~finite)
    # t / (t + σ²), written so that t may be ∞
    values = spectrum.squared_singular_values
    shrunk = 1 / (1 + values[None, :] / to_device_of(ratio, values)[:, None])
    return spectrum.vectors.combine(spectrum.projections * shrunk).T


def inverse_times(spectrum: Spectrum, vector: Array, t: float) -> Array:
    """The product of (FᵀF + tI)⁻¹, within the directions of the spectrum, and a vector, (D,)."""
    if spectrum.reduced is None:
        coordinates = spectrum.vectors.coordinates(vector[None, :])
        return spectrum.vectors.combine(coordinates / (spectrum.squared_singular_values + t))[0]
    vectors = spectrum.reduced.vectors
    (solved,) = vectors.middle.solve(np.array([t]), vectors.reflect(vector[:, None], transposed=True))
    return vectors.reflect(solved, transposed=False)[:, 0]


def _solved(
    reduced: Reduced, ratio: np.ndarray, times: np.ndarray | float = 1.0, more: np.ndarray | float = 0.0
) -> np.ndarray:
    """Q (T + tI)⁻¹ c for every target, (D, C), with the inverse times a number; and Q times some `more`."""
    finite = np.isfinite(ratio)
    columns = np.zeros_like(reduced.columns)
    (columns[:, finite],) = reduced.vectors.middle.solve(ratio[finite], reduced.columns[:, finite])
    return reduced.vectors.reflect(columns * times + more, transposed=False)


def predict_mean(evidence: Evidence, features: object) -> np.ndarray:
    """fᵀm + intercept for every row, (n, C)."""
    rows = check_features(features, feature_dim=evidence.feature_dim)
    weights = to_device_of(evidence.weights, rows)
    result = np.empty((rows.shape[0], len(evidence.targets)))
    for part in chunks(*rows.shape):
        result[part] = to_host(to_float64(rows[part]) @ weights.T) + evidence.intercept
    if not np.isfinite(result).all():
        raise InputError("features must be finite; they hold NaN or infinite values.")
    return result


def predict_left_out(evidence: Evidence, features: object, labels: np.ndarray) -> np.ndarray:
    """What the posterior would predict for each row of its own fit, had that row been left out, (n, C).

    In closed form, with α and β as they are: (ŷ_i − h_i y_i) / (1 − h_i), where h_i = f_iᵀ(FᵀF + tI)⁻¹f_i is the row's
    leverage. `labels` are (n, C): 0/1 for classes, numbers for regression.
    """
    fitted = predict_mean(evidence, features)
    if labels.shape != fitted.shape:
        raise InputError(f"labels must be {fitted.shape}, a row for each row of features; they are {labels.shape}.")
    scored = np.isfinite(evidence.beta)
    leverage = np.zeros_like(fitted)
    leverage[:, scored] = predict_variance(evidence, features)[:, scored] * evidence.beta[scored] - 1
    if evidence.center:
        leverage[:, scored] += 1 / evidence.n  # the mean was estimated from the row as well
    free = np.clip(1 - leverage, 0, 1)
    known = free > 1e-9
    found = (fitted - leverage * labels) / np.where(known, free, 1.0)
    return np.where(known, found, _left_out_of_a_perfect_fit(evidence, features, labels))


def _left_out_of_a_perfect_fit(evidence: Evidence, features: object, labels: np.ndarray) -> np.ndarray:
    """The same where features fit the labels without noise, so that both sides of the fraction vanish with t.

    With as many directions as rows it is y_i − (G⁻¹y)_i / (G⁻¹)_ii, G = FFᵀ + tI. Else a row that decides its own
    prediction alone says nothing of what the rest would predict, and the prior mean stays.
    """
    spectrum, result = kept(evidence.spectrum), np.broadcast_to(evidence.intercept, labels.shape).copy()
    if evidence.center or spectrum.rank < evidence.n:
        return result
    values, explained = to_host(spectrum.squared_singular_values), np.isfinite(evidence.ratio)
    left = to_host(to_float64(check_features(features, feature_dim=evidence.feature_dim)))
    left = left @ to_host(spectrum.basis) / np.sqrt(values)
    weights = 1 / (values + evidence.ratio[explained][:, None])
    reached = left @ (to_host(spectrum.projections)[explained[evidence.scored]] * weights).T
    result[:, explained] = labels[:, explained] - reached / (left**2 @ weights.T)
    return result


def predict_variance(evidence: Evidence, features: object) -> np.ndarray:
    """fᵀA⁻¹f + 1/β for every row and target, (n, C), with A⁻¹ = (FᵀF + tI)⁻¹ / β.

    Directions that the features of the fit did not have keep the variance 1/α of the prior.
    """
    spectrum = kept(evidence.spectrum)
    rows, basis = check_features(features, feature_dim=evidence.feature_dim), spectrum.basis
    if is_torch(basis) and not is_torch(rows):
        basis = to_host(basis)
    basis = to_device_of(basis, rows)
    inverse_beta = 1 / evidence.beta
    scored = np.isfinite(evidence.beta)
    values = to_host(spectrum.squared_singular_values)
    # Per unit of noise variance, in the directions of the fit and outside them.
    inside = 1 / (values[:, None] + evidence.ratio[scored][None, :])
    outside = 1 / evidence.ratio[scored]
    rest = evidence.rank < evidence.feature_dim
    result = np.zeros((rows.shape[0], len(evidence.targets)))
    for part in chunks(*rows.shape):
        block = to_float64(rows[part])
        if evidence.feature_mean is not None:
            block = block - to_device_of(evidence.feature_mean, block)
        coordinates = block @ basis
        seen = to_host(coordinates**2)
        # The difference of the squares would be rounding where features are far from zero.
        unseen = to_host(((block - coordinates @ basis.T) ** 2).sum(1)) if rest else np.zeros(len(seen))
        result[part, scored] = (seen @ inside + unseen[:, None] * outside + 1) * inverse_beta[scored]
    if not np.isfinite(result).all():
        raise InputError("features must be finite; they hold NaN or infinite values.")
    return result


def probability_of_largest(means: np.ndarray, *, points: int = 129, reach: float = 8.0) -> np.ndarray:
    """The probability of each of C draws N(mean, 1) to be the largest of them, for every row of (n, C).

    ∫ φ(x - m_c) Π_{d≠c} Φ(x - m_d) dx by the trapezoidal rule, which is accurate to rounding for such an integrand.

    >>> probability_of_largest(np.array([[0.0, 0.0], [30.0, 0.0]])).round(3)
    array([[0.5, 0.5],
           [1. , 0. ]])
    """
    from scipy.special import log_ndtr

    result = np.empty_like(means)
    offsets = np.linspace(-reach, reach, points)
    for part in chunks(len(means), 4 * points * means.shape[1]):
        top = means[part].max(1)
        distance = top[:, None, None] + offsets[None, :, None] - means[part][:, None, :]
        below = log_ndtr(distance)
        density = -0.5 * distance**2
        masses = np.exp(below.sum(2, keepdims=True) - below + density).sum(1)
        result[part] = masses / masses.sum(1, keepdims=True)
    return result


@dataclass(frozen=True)
class Neighbour:
    """A named vector and its cosine similarity, between -1 and 1."""

    name: str
    """Of the embedding."""
    similarity: float


def nearest(weights: object, embeddings: object, names: Sequence[str], k: int = 5) -> tuple[tuple[Neighbour, ...], ...]:
    """The k named embeddings that point most nearly where each weight vector does, best first.

    Similarity is the cosine: an embedding's length says how common it is, not what it means. A zero vector is similar
    to nothing (0).

    Args:
        weights: (C, D), such as `Evidence.weights`.
        embeddings: (N, D) in the same space: of words, prototypes or samples.
        names: N names.
        k: how many for each weight vector.

    Returns:
        For each of the C weight vectors its k neighbours.

    Raises:
        InputError: shapes or numbers that do not fit together, or values that are not finite.

    Example:
        >>> directions = [[1.0, 0.1], [0.0, -3.0]]
        >>> [pair[0].name for pair in nearest(directions, [[5.0, 0.0], [0.0, -1.0]], ["east", "south"], k=1)]
        ['east', 'south']

    """
    found = to_host(check_features(weights, "weights")).astype(np.float64)
    named = to_host(check_features(embeddings, "embeddings", feature_dim=found.shape[1])).astype(np.float64)
    check_finite(found, "weights")
    check_finite(named, "embeddings")
    if len(names) != len(named):
        raise InputError(f"names must name {len(named)} embeddings; got {len(names)} names.")
    if not 1 <= k <= len(named):
        raise InputError(f"k must lie between 1 and the number of embeddings, {len(named)}; got {k}.")
    similarity = _unit(found) @ _unit(named).T
    order = np.argsort(-similarity, axis=1, kind="stable")[:, :k]
    return tuple(
        tuple(Neighbour(str(names[index]), float(similarity[row, index])) for index in chosen)
        for row, chosen in enumerate(order)
    )


def _unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
