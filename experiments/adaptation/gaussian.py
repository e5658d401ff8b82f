"""Evidence of a Gaussian process for one-hot labels, given its kernel: what LogME is for a kernel of features.

Each class c has y_c ~ N(m, s (K + t I)) with a constant m about which nothing is known. The scale s has its best value
in closed form, the ratio t the best of a grid. With K = FFᵀ this is LogME with an intercept, α = 1/s and β = 1/(s t).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hubscout.evidence import logme

RATIOS = np.exp(np.linspace(np.log(1e-4), np.log(1e3), 57))
"""Values of t."""
CONSTANT = 1e4
"""Prior variance of the constant: as good as none, for kernels whose mean diagonal is one."""


@dataclass(frozen=True)
class Judgement:
    """How well a kernel explains labels: means over classes, a row."""

    evidence: float
    density: float
    """Log density of each row given all others."""
    accuracy: float
    """Of the class whose prediction from all other rows is highest."""


def unit(K: np.ndarray) -> np.ndarray:
    """Centred, with a mean diagonal of one."""
    mean = K.mean(axis=0)
    centred = K - mean - mean[:, None] + mean.mean()
    return centred / (np.trace(centred) / len(K))


def judge(K: np.ndarray, Y: np.ndarray) -> Judgement:
    """`K` as `unit` leaves it, `Y` one-hot."""
    n, classes = Y.shape
    values, vectors = np.linalg.eigh(K + CONSTANT / n)
    values = np.maximum(values, 0.0)
    # The last direction is the constant one: it is left out of the evidence, and all that is left has n - 1 rows.
    kept, projected = values[:-1], ((vectors.T @ (Y - Y.mean(axis=0))) ** 2)[:-1]
    quadratic = (projected.T[:, None, :] / (kept + RATIOS[:, None])).sum(axis=-1)
    log_determinant = np.log(kept + RATIOS[:, None]).sum(axis=1)
    evidence = -0.5 * (np.log(quadratic / (n - 1)) + log_determinant / (n - 1) + np.log(2 * np.pi) + 1)
    best = evidence.argmax(axis=1)
    predicted, density = np.empty_like(Y), 0.0
    for c in range(classes):
        inverse = vectors / (values + RATIOS[best[c]])
        precision = (inverse * vectors).sum(axis=1)
        residual = inverse @ (vectors.T @ Y[:, c]) / precision
        variance = quadratic[c, best[c]] / (n - 1) / precision
        predicted[:, c] = Y[:, c] - residual
        density += float((-0.5 * np.log(2 * np.pi * variance) - 0.5 * residual**2 / variance).mean())
    accuracy = float((predicted.argmax(axis=1) == Y.argmax(axis=1)).mean())
    return Judgement(float(evidence.max(axis=1).mean()), density / classes, accuracy)


def frozen_scores(phi: np.ndarray, labels: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
    """The kernel of features as they are, and what LogME and this file say of it."""
    kernel = unit(phi @ phi.T)
    own = judge(kernel, Y)
    return kernel, {
        "logme": logme(phi, labels, jackknife="none").score,
        "frozen evidence": own.evidence,
        "frozen density": own.density,
        "frozen accuracy": own.accuracy,
    }


def mixtures(
    first: np.ndarray, second: np.ndarray, Y: np.ndarray, shares: tuple[float, ...]
) -> Mapping[float, Judgement]:
    """Share of the second kernel → how well the two explain the labels together."""
    return {share: judge((1 - share) * first + share * second, Y) for share in shares}


def best(judgements: Mapping[float, Judgement]) -> Judgement:
    """The mixture with the highest evidence; of equals the one with the smallest share."""
    return max(judgements.items(), key=lambda item: (item[1].evidence, -item[0]))[1]
