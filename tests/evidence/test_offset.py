"""Features far from zero, against arithmetic of sixty digits."""

import mpmath
import numpy as np
import pytest
import torch

from hubscout.evidence import Statistics, logme, maximize_evidence

OFFSETS = [0.0, 1e2, 1e4, 1e6, 1e8]
SHAPES = [(40, 5), (6, 9)]


def exact_score(features, targets, center):
    """The maximum of the evidence of every column, averaged; from FFᵀ or FᵀF in sixty digits."""
    with mpmath.workdps(60):
        F = mpmath.matrix(features.tolist())
        n, dim = features.shape
        scores = []
        for column in targets.T:
            y = mpmath.matrix(column.tolist())
            X, observed = F, n
            if center:
                means = [mpmath.fsum(F[:, j]) / n for j in range(dim)]
                X = mpmath.matrix([[F[i, j] - means[j] for j in range(dim)] for i in range(n)])
                level = mpmath.fsum(y) / n
                y, observed = mpmath.matrix([value - level for value in y]), n - 1
            values, vectors = mpmath.eigsy(X.T * X if dim <= n else X * X.T)
            inside = (X.T * y).T * vectors if dim <= n else y.T * vectors
            kept = [k for k in range(len(values)) if values[k] > max(values) * mpmath.mpf(10) ** -45]
            squares = [inside[k] ** 2 / (values[k] if dim <= n else 1) for k in kept]
            values = [values[k] for k in kept]
            rest = mpmath.mpf(0) if len(kept) == observed else mpmath.fsum(v**2 for v in y) - mpmath.fsum(squares)
            scores.append(_maximum(values, squares, rest, observed))
        return float(mpmath.fsum(scores) / len(scores))


def _maximum(values, squares, rest, n):
    def level(log_t):
        t = mpmath.e**log_t
        q = rest + mpmath.fsum(s * t / (t + v) for s, v in zip(squares, values, strict=True))
        spread = mpmath.fsum(mpmath.log(1 + v / t) for v in values)
        return (mpmath.log(n / q) - spread / n - 1 - mpmath.log(2 * mpmath.pi)) / 2

    grid = [mpmath.mpf(place) / 2 for place in range(-40, 100)]
    best = max(grid, key=level)
    low, high = best - 1, best + 1
    golden = (mpmath.sqrt(5) - 1) / 2
    for _ in range(45):
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if level(left) > level(right) else (left, high)
    return level((low + high) / 2)


def problem(shape, offset, kind):
    generator = np.random.default_rng(3)
    n, dim = shape
    ids = np.arange(n) % 3
    directions = generator.normal(size=dim)
    features = generator.normal(size=shape) + generator.normal(size=(3, dim))[ids] + offset * directions
    if kind == "classification":
        return features, ids, (ids[:, None] == np.arange(3)).astype(float)
    y = features @ generator.normal(size=dim) - offset * directions.sum() + generator.normal(size=n) + 2
    return features, y, y[:, None]


def in_batches(features, targets, kind, size):
    names = ["a", "b", "c"] if kind == "classification" else ["y"]
    merged = Statistics(kind, names)
    for block, start in enumerate(range(0, len(targets), size)):
        part = Statistics(kind, names).update(features[start : start + size], targets[start : start + size])
        merged.merge(part) if block % 2 else merged.update(features[start : start + size], targets[start : start + size])
    return merged


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("kind", ["classification", "regression"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("offset", OFFSETS)
def test_an_offset_costs_no_digits(offset, shape, kind, center):
    features, targets, matrix = problem(shape, offset, kind)
    expected = exact_score(features, matrix, center)
    assert logme(features, targets, kind=kind, center=center).score == pytest.approx(expected, abs=1e-9)
    for size in (shape[0], 7, 2):
        found = maximize_evidence(in_batches(features, targets, kind, size), center=center)
        assert found.score == pytest.approx(expected, abs=1e-9)
        assert found.rounding < 1e-9
