"""Features far from zero, against arithmetic of sixty digits."""

import pickle

import mpmath
import numpy as np
import pytest
import torch

from hubscout.errors import RoundingWarning
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
        merged.merge(part) if block % 2 else merged.update(
            features[start : start + size], targets[start : start + size]
        )
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


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_sums_about_different_shifts_merge_exactly(kind, tmp_path):
    """Whole numbers: every sum is exact, so that the order and the shifts of the parts must not show at all."""
    generator = np.random.default_rng(0)
    features = generator.integers(-9, 9, size=(48, 5)) + 2.0**20
    targets = np.arange(48) % 3 if kind == "classification" else generator.integers(0, 9, size=(48, 3)) + 2.0**10
    names = ["a", "b", "c"]
    parts = []
    for start in range(0, 48, 8):  # an eighth of eight whole numbers is exact
        rows = slice(start, start + 8)
        parts.append(Statistics(kind, names).update(features[rows], targets[rows], block=start // 16))
        parts[-1].save(tmp_path / f"{start}")
    loaded = [Statistics.load(tmp_path / f"{start}") for start in range(0, 48, 8)]
    assert len({part.total().shift.tobytes() for part in loaded}) == 6
    forwards, backwards = Statistics(kind, names), Statistics(kind, names)
    for part, other in zip(parts, reversed(loaded), strict=True):
        forwards.merge(part)
        backwards.merge(other)
    matrix = (targets[:, None] == np.arange(3)).astype(float) if kind == "classification" else targets
    for total in (forwards.total().about_zero(), backwards.total().about_zero()):
        np.testing.assert_array_equal(total.gram, features.T @ features)
        np.testing.assert_array_equal(total.cross, matrix.T @ features)
        np.testing.assert_array_equal(total.target_squares, (matrix**2).sum(0))
        np.testing.assert_array_equal(total.feature_sum, features.sum(0))
    first, second = maximize_evidence(forwards), maximize_evidence(backwards)
    assert first.score == pytest.approx(second.score, abs=1e-12)
    np.testing.assert_allclose(first.block_scores, second.block_scores, atol=1e-9)


def test_saved_and_sent_sums_keep_their_shift(tmp_path):
    features, targets, _ = problem((40, 5), 1e8, "regression")
    sums = Statistics("regression", ["y"]).update(features, targets)
    assert abs(sums.total().shift).max() > 1e6
    sums.save(tmp_path / "sums")
    for again in (Statistics.load(tmp_path / "sums"), pickle.loads(pickle.dumps(sums))):
        assert maximize_evidence(again, center=False).score == maximize_evidence(sums, center=False).score
        again.update(features[:3], targets[:3])
        assert again.n == 43


def test_features_near_zero_are_not_shifted():
    """A shift costs a pass over the rows, and the usual features of networks need none."""
    generator = np.random.default_rng(0)
    features = np.maximum(generator.normal(size=(200, 6)) + 2, 0)
    assert not Statistics("classification", ["a", "b"]).update(features, np.arange(200) % 2).total().shift.any()


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("offset", [0.0, 50.0, 1e3, 1e6])
def test_the_free_jackknife_of_features_far_from_zero(offset, center):
    generator = np.random.default_rng(1)
    ids = np.arange(600) % 3
    features = generator.normal(size=(600, 6)) + generator.normal(size=(3, 6))[ids] + offset
    linear, exact = (logme(features, ids, center=center, jackknife=way) for way in ("linear", "exact"))
    assert linear.standard_error == pytest.approx(exact.standard_error, rel=0.1)
    assert np.corrcoef(linear.block_scores, exact.block_scores)[0, 1] > 0.98
    near = logme(features - offset, ids, center=True)
    if center:
        np.testing.assert_allclose(linear.block_scores, near.block_scores, atol=1e-8)


@pytest.mark.parametrize("shape", [(60, 5), (12, 30)])
@pytest.mark.parametrize("offset", [1e3, 1e6])
def test_predictions_of_features_far_from_zero(shape, offset):
    """With the intercept that the offset gives for nothing, they are those of a model that has one."""
    generator = np.random.default_rng(2)
    features = generator.normal(size=shape)
    y = features @ generator.normal(size=shape[1]) + generator.normal(size=shape[0])
    column = np.full((shape[0], 1), offset)
    far, bare = np.hstack([features, column]), np.hstack([features, np.ones((shape[0], 1))])
    result = logme(far, y, center=False)
    weights = np.linalg.solve(bare.T @ bare + result.ratio[0] * np.diag([1.0] * shape[1] + [offset**-2]), bare.T @ y)
    np.testing.assert_allclose(result.predict(far)[:, 0], bare @ weights, atol=1e-6)
    inverse = np.linalg.inv(bare.T @ bare + result.ratio[0] * np.diag([1.0] * shape[1] + [offset**-2]))
    expected = (np.einsum("ij,jk,ik->i", bare, inverse, bare) + 1) / result.beta[0]
    np.testing.assert_allclose(result.predict_variance(far)[:, 0], expected, rtol=1e-6)


@pytest.mark.usefixtures("tensors_stay_tensors")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("offset", [1e2, 1e8])
def test_tensors_far_from_zero(offset, shape):
    features, ids, matrix = problem(shape, offset, "classification")
    expected = exact_score(features, matrix, False)
    assert logme(torch.tensor(features), torch.tensor(ids)).score == pytest.approx(expected, abs=1e-9)
    sums = Statistics("classification", ["a", "b", "c"])
    for start in range(0, len(ids), 4):
        sums.update(torch.tensor(features[start : start + 4]), torch.tensor(ids[start : start + 4]), block=start // 8)
    assert maximize_evidence(sums).score == pytest.approx(expected, abs=1e-9)


def test_rows_that_are_all_the_same_have_one_direction():
    for value in (1.0, 0.1, 1e9 / 3):
        features, y = np.full((30, 4), value), np.random.default_rng(0).normal(size=30) + 1
        sums = Statistics("regression", ["y"]).update(features, y)
        for result in (logme(features, y, center=False), maximize_evidence(sums, center=False)):
            assert result.rank == 1
        assert maximize_evidence(sums, center=True).rank == 0


@pytest.mark.parametrize("size", [1e6, 1e9])
def test_directions_that_squares_lose_are_found_or_said(size):
    """One long direction, not along an axis: beside its square nothing is left of the others."""
    generator = np.random.default_rng(0)
    rotation = np.linalg.qr(generator.normal(size=(6, 6)))[0]
    plain = generator.normal(size=(300, 6))
    y = plain[:, 1] + 0.3 * generator.normal(size=300)
    features = (plain * np.array([size, 1, 1, 1, 1, 1])) @ rotation
    expected = exact_score(features[:, :], y[:, None], True)
    result = logme(features, y)
    assert result.score == pytest.approx(expected, abs=1e-9 + 3 * result.rounding)
    assert result.rounding < 1e-7
    assert result.rank == 6
    if size > 1e8:
        return  # without the rows, nobody can tell such features from duplicated ones
    with pytest.warns(RoundingWarning, match="nats per sample of the score are rounding"):
        from_sums = maximize_evidence(Statistics("regression", ["y"]).update(features, y))
    assert abs(from_sums.score - expected) <= from_sums.rounding
