"""The evidence without eigenvectors against that by eigenvectors, and every case in which they are asked for."""

import math
import pickle
import sys

import numpy as np
import pytest
import torch
from sklearn.linear_model import BayesianRidge

from hubscout.evidence import Statistics, condensed, logme, maximize_evidence
from hubscout.evidence.chebyshev import reach
from hubscout.evidence.condensed import Condensed
from hubscout.evidence.left_out import left_out_predictions
from hubscout.evidence.profile import convergence_margin

pytestmark = pytest.mark.usefixtures("tensors_stay_tensors")


@pytest.fixture(autouse=True)
def whatever_the_dimensions(monkeypatch):
    monkeypatch.setattr(condensed, "SMALLEST_DIM", 1)
    monkeypatch.setattr(condensed, "FEW", 0)


def by_eigenvectors(features, targets, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(condensed, "SMALLEST_DIM", 10**9)
        found = logme(torch.from_numpy(features), torch.from_numpy(targets), **options)
    assert not isinstance(found.spectrum, Condensed)
    return found


def condensed_logme(features, targets, **options):
    found = logme(torch.from_numpy(features), torch.from_numpy(targets), **options)
    assert isinstance(found.spectrum, Condensed)
    return found


def classes(generator, n=600, dim=40, count=8, strength=0.7, decay=0.1):
    ids = np.arange(n) % count
    features = generator.normal(size=(n, dim)) + strength * generator.normal(size=(count, dim))[ids]
    return features * np.geomspace(1, decay, dim), ids


def numbers(generator, n=500, dim=30, count=3):
    features = generator.normal(size=(n, dim))
    return features, features @ generator.normal(size=(dim, count)) * 0.1 + generator.normal(size=(n, count))


def assert_same(found, expected):
    np.testing.assert_allclose(found.per_target, expected.per_target, atol=1e-11)
    np.testing.assert_allclose(found.per_target_null, expected.per_target_null, atol=1e-12)
    np.testing.assert_allclose(found.per_target_gain, expected.per_target_gain, atol=1e-11)
    np.testing.assert_allclose(found.over_base_rates.ratio, expected.over_base_rates.ratio, rtol=1e-6)
    for name in ("alpha", "beta", "ratio"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-8)
    scale = np.linalg.norm(expected.weights, axis=1, keepdims=True) + (expected.weights == 0).all(1)[:, None]
    np.testing.assert_allclose(found.weights / scale, expected.weights / scale, atol=1e-9)
    np.testing.assert_allclose(found.intercept, expected.intercept, atol=1e-9)
    assert (found.rank, found.n, found.unscored, found.unbounded) == (
        expected.rank,
        expected.n,
        expected.unscored,
        expected.unbounded,
    )
    assert found.converged
    assert found.standard_error == pytest.approx(expected.standard_error, rel=1e-8)
    np.testing.assert_allclose(found.block_scores, expected.block_scores, atol=1e-9)
    assert expected.rounding / 10 < found.rounding < 1e-9


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("shape", [(600, 40, 8), (3000, 20, 2), (300, 120, 12), (90, 60, 3)])
@pytest.mark.parametrize("decay", [1.0, 0.3, 0.03])
def test_classes(generator, monkeypatch, center, shape, decay):
    """With t₀ in the middle of the optima, from which the guess is too far in some problems as small as these."""
    features, ids = classes(generator, *shape, decay=decay)
    expected = by_eigenvectors(features, ids, center=center)
    optima = np.append(expected.ratio, expected.over_base_rates.ratio)
    monkeypatch.setattr(condensed, "_guess", lambda *_: math.sqrt(optima.min() * optima.max()))
    assert_same(condensed_logme(features, ids, center=center), expected)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_numbers_at_any_scale(generator, center, scale):
    features, targets = numbers(generator)
    features, targets = features * scale, targets / scale
    assert_same(
        condensed_logme(features, targets, center=center, jackknife="linear"),
        by_eigenvectors(features, targets, center=center),
    )


@pytest.mark.parametrize("offset", [0.3, 3.0, 10.0])
def test_features_away_from_zero(generator, offset):
    features, ids = classes(generator)
    assert_same(condensed_logme(features + offset, ids), by_eigenvectors(features + offset, ids))
    features, targets = numbers(generator)
    targets = targets + 1.5
    assert_same(condensed_logme(features + offset, targets), by_eigenvectors(features + offset, targets))


def test_labels_and_a_class_that_does_not_occur(generator):
    features, ids = classes(generator)
    labels = np.column_stack([ids < 3, ids % 2 == 0, np.zeros(len(ids), dtype=bool)]).astype(np.int64)
    found = condensed_logme(features, labels)
    assert found.unscored == ("2",)
    assert_same(found, by_eigenvectors(features, labels))
    assert_same(condensed_logme(features, ids, classes=range(9)), by_eigenvectors(features, ids, classes=range(9)))


def test_targets_that_nothing_explains_are_the_null_model(generator):
    """It is the best of all t, in reach and beyond, and that is known for certain."""
    features, ids = classes(generator, strength=0.1, decay=1.0, count=12)
    found = condensed_logme(features, ids, center=True)
    assert np.isinf(found.ratio).any()
    assert np.isfinite(found.ratio).any()
    assert_same(found, by_eigenvectors(features, ids, center=True))


@pytest.mark.parametrize("from_rows", [True, False])
def test_where_nothing_is_explained_nothing_leaves_the_device(from_rows, monkeypatch):
    """On an accelerator a tensor is no array: one that becomes an array on the way is an error there."""
    generator = np.random.default_rng(13)
    features, targets = generator.normal(size=(1400, 30)), generator.normal(size=(1400, 1))
    expected = by_eigenvectors(features, targets, center=False, kind="regression")
    assert np.isinf(expected.ratio).all()
    convert = torch.Tensor.__array__

    def refuse(tensor, *given, **options):
        caller = sys._getframe(1).f_code.co_filename
        assert "hubscout/evidence" not in caller, f"{caller} takes a tensor for an array"
        return convert(tensor, *given, **options)

    monkeypatch.setattr(torch.Tensor, "__array__", refuse)
    if from_rows:
        found = condensed_logme(features, targets, center=False, kind="regression")
    else:
        sums = Statistics("regression", ("a",))
        for block, part in enumerate(np.array_split(np.arange(len(features)), 5)):
            sums.update(torch.from_numpy(features[part]), torch.from_numpy(targets[part]), block=block)
        found = maximize_evidence(sums, center=False, keep_spectrum=True)
        assert isinstance(found.spectrum, Condensed)
    np.testing.assert_allclose(found.per_target, expected.per_target, atol=1e-11)
    assert found.standard_error is not None


def test_without_memory_for_the_points_there_are_eigenvectors(generator, monkeypatch):
    def full(*given):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(condensed, "points", full)
    features, ids = classes(generator)
    found = logme(torch.from_numpy(features), torch.from_numpy(ids))
    assert not isinstance(found.spectrum, Condensed)


def test_sums_by_block_and_with_weights(generator):
    features, ids = classes(generator)
    weights = generator.integers(1, 4, size=len(ids))

    def sums(keep):
        statistics = Statistics("classification", [str(index) for index in range(8)])
        for block in range(5):
            rows = np.arange(len(ids)) % 5 == block
            statistics.update(torch.from_numpy(features[rows]), ids[rows], block=block, weights=weights[rows])
        return maximize_evidence(statistics, keep_spectrum=keep)

    found = sums(True)
    assert isinstance(found.spectrum, Condensed)
    assert sums(False).spectrum is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(condensed, "SMALLEST_DIM", 10**9)
        assert_same(found, sums(True))


def test_against_scikit_learn(generator):
    features, targets = numbers(generator)
    found = condensed_logme(features, targets, center=False)
    for index, column in enumerate(targets.T):
        options = {"alpha_1": 0, "alpha_2": 0, "lambda_1": 0, "lambda_2": 0}
        ridge = BayesianRidge(**options, fit_intercept=False, compute_score=True, max_iter=10_000, tol=1e-13)
        ridge.fit(features, column)
        assert found.per_target[index] == pytest.approx(ridge.scores_[-1] / len(column), abs=1e-9)
        np.testing.assert_allclose(found.weights[index], ridge.coef_, rtol=1e-6, atol=1e-8)


def test_its_directions_are_there_for_who_asks(generator):
    features, ids = classes(generator)
    labels = np.eye(8)[ids]
    found, expected = condensed_logme(features, ids), by_eigenvectors(features, ids)
    again = pickle.loads(pickle.dumps(found))
    assert "whole" not in vars(found.spectrum)
    for evidence in (found, again, pickle.loads(pickle.dumps(found))):
        np.testing.assert_allclose(evidence.predict_variance(features), expected.predict_variance(features), rtol=1e-9)
        np.testing.assert_allclose(convergence_margin(evidence), convergence_margin(expected), rtol=1e-9)
        left_out = [left_out_predictions(one, features[:20], labels[:20]) for one in (evidence, expected)]
        np.testing.assert_allclose(*left_out, atol=1e-9)


@pytest.mark.parametrize("times", [1e-3, 30.0, math.inf])
def test_a_guess_that_is_far_off_leaves_it_to_eigenvectors(generator, monkeypatch, times):
    features, ids = classes(generator)
    guess = condensed._guess
    monkeypatch.setattr(condensed, "_guess", lambda *known: times * guess(*known))
    found = logme(torch.from_numpy(features), torch.from_numpy(ids))
    assert not isinstance(found.spectrum, Condensed)
    np.testing.assert_array_equal(found.per_target, by_eigenvectors(features, ids).per_target)


@pytest.mark.parametrize("center", [False, True])
def test_features_that_are_zero_throughout_have_no_weight(generator, center):
    features, ids = classes(generator)
    padded = np.insert(features, [0, 7, 7, 40], 0.0, axis=1)
    found = condensed_logme(padded, ids, center=center)
    assert (found.rank, found.feature_dim) == (40, 44)
    assert (found.weights[:, (padded == 0).all(0)] == 0).all()
    assert_same(found, by_eigenvectors(padded, ids, center=center))
    without = condensed_logme(features, ids, center=center)
    np.testing.assert_allclose(found.per_target, without.per_target, rtol=1e-12)
    variances = [one.predict_variance(rows) for one, rows in ((found, padded), (without, features))]
    np.testing.assert_allclose(*variances, rtol=1e-9)


def rank_deficient(generator):
    features, ids = classes(generator)
    return np.hstack([features, features[:, :3]]), ids


def few_rows(generator):
    return classes(generator, n=50, dim=40, count=2)[0][:40], np.arange(40) % 2


def far_mean(generator):
    features, ids = classes(generator)
    return features + 1e4, ids


def bias_column(generator):
    features, ids = classes(generator)
    return np.hstack([features, np.ones((len(features), 1))]), ids


def hardly_any_noise(generator):
    features, targets = numbers(generator)
    return features, features[:, :2] + 1e-4 * targets[:, :2]


def decades_apart(generator):
    features, _ = numbers(generator)
    return features, features @ generator.normal(size=(30, 3)) * [0.02, 1.0, 9.0] + generator.normal(size=(500, 3))


def nothing_at_all(generator):
    return generator.normal(size=(400, 30)), np.random.default_rng(3).normal(size=400)


def ill_conditioned(generator):
    features, ids = classes(generator, decay=1e-7)
    return features, ids


@pytest.mark.parametrize(
    "make",
    [
        rank_deficient,
        few_rows,
        far_mean,
        bias_column,
        hardly_any_noise,
        decades_apart,
        ill_conditioned,
    ],
)
def test_where_eigenvectors_are_found(generator, make):
    features, targets = make(generator)
    found = logme(torch.from_numpy(features), torch.from_numpy(targets), center=False)
    assert not isinstance(found.spectrum, Condensed)
    expected = by_eigenvectors(features, targets, center=False)
    np.testing.assert_array_equal(found.per_target, expected.per_target)


def test_nothing_but_noise_has_the_same_score_either_way(generator):
    features, targets = nothing_at_all(generator)
    found = logme(torch.from_numpy(features), torch.from_numpy(targets))
    assert found.score == pytest.approx(by_eigenvectors(features, targets).score, abs=1e-11)


@pytest.mark.parametrize(
    "options", [{"solver": "fixed-point"}, {"solver": "mackay"}, {"tolerance": 1e-3}, {"max_iterations": 50}]
)
def test_only_the_default_solver_does_without(generator, options):
    features, ids = classes(generator)
    assert not isinstance(logme(torch.from_numpy(features), torch.from_numpy(ids), **options).spectrum, Condensed)


def test_no_products_for_targets_that_are_decades_apart(generator, monkeypatch):
    """Nor where no Cholesky factor shows that the rank is full."""
    monkeypatch.setattr(condensed, "points", lambda *_: pytest.fail("points were asked for"))
    for make in (decades_apart, rank_deficient):
        features, targets = make(generator)
        assert not isinstance(logme(torch.from_numpy(features), torch.from_numpy(targets)).spectrum, Condensed)


def test_small_dimensions_many_targets_and_large_memory_are_left_to_eigenvectors(generator, monkeypatch):
    features, ids = classes(generator)
    for name, value in (("SMALLEST_DIM", 41), ("FEW", 6), ("MOST_NUMBERS", 10_000)):
        with monkeypatch.context() as patch:
            patch.setattr(condensed, name, value)
            assert not isinstance(logme(torch.from_numpy(features), torch.from_numpy(ids)).spectrum, Condensed)


def test_arrays_on_the_host_are_left_to_eigenvectors(generator):
    features, ids = classes(generator)
    assert not isinstance(logme(features, ids).spectrum, Condensed)


@pytest.mark.parametrize("seed", range(12))
def test_no_gain_out_of_reach_is_above_its_bound(seed, monkeypatch):
    """The proof, on a fine grid of t far beyond the ends, for targets of all kinds and t₀ anywhere."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(80, 15)) * np.geomspace(1, generator.choice([1, 0.1, 0.01]), 15) + 0.5
    strengths = np.geomspace(0.003, 3, 6)
    targets = features @ generator.normal(size=(15, 6)) * strengths + generator.normal(size=(80, 6)) + 0.2
    bounds, middles = [], []
    most_beyond, points = condensed.Known.most_beyond, condensed.points
    monkeypatch.setattr(condensed.Known, "most_beyond", lambda *given: bounds.append(most_beyond(*given)) or bounds[-1])
    monkeypatch.setattr(condensed, "points", lambda *given: middles.append(given[2]) or points(*given))
    monkeypatch.setattr(condensed, "_guess", lambda *_: 80 * 10 ** generator.uniform(-3, 2))
    logme(torch.from_numpy(features), torch.from_numpy(targets), center=False)
    beyond = np.concatenate([np.geomspace(1e-9, math.exp(-reach()), 400), np.geomspace(math.exp(reach()), 1e9, 400)])
    for bound, centred in zip(bounds, (False, True), strict=True):
        F, Y, n = (features - features.mean(0), targets - targets.mean(0), 79) if centred else (features, targets, 80)
        U, singular, _ = np.linalg.svd(F, full_matrices=False)
        t, squares = middles[0] * beyond, (Y**2).sum(0)
        shrunk = 1 / (1 + singular[:, None] ** 2 / t)
        q = (squares - ((U.T @ Y) ** 2).sum(0))[:, None] + ((U.T @ Y) ** 2).T @ shrunk
        gain = -np.log(q / squares[:, None]) - np.log1p(singular[:, None] ** 2 / t).sum(0) / n
        assert (gain.max(1) <= bound + 1e-9).all()
        assert (bound < gain.max(1) + 3).all()
