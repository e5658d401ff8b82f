"""The discriminant, H-score and SFDA."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.covariance import LedoitWolf
from sklearn.datasets import load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from hubscout.errors import InputError
from hubscout.metrics.discriminant import fit_discriminant, h_score, sfda, span


@pytest.mark.parametrize("shape", ["data", "wide"])
@pytest.mark.parametrize("shrinkage", [0.01, 0.5])
def test_agrees_with_scikit_learn(shape, shrinkage, request):
    data = request.getfixturevalue(shape)
    oracle = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(data.features, data.classes)
    rows = span(data.features)
    ours = fit_discriminant(rows, data.classes, shrinkage, dimension=data.features.shape[1])
    # scikit-learn takes the logarithm of probabilities, which end at the smallest number.
    found = np.maximum(ours.log_probabilities(rows), np.log(np.finfo(np.float64).tiny))
    np.testing.assert_allclose(found, oracle.predict_log_proba(data.features), rtol=1e-6, atol=1e-8)


def test_projection_agrees_with_scikit_learn_without_shrinkage(data):
    oracle = LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.0).fit(data.features, data.classes)
    expected = oracle.transform(data.features)
    expected -= expected.mean(axis=0)
    found = fit_discriminant(data.features, data.classes, 0.0, dimension=12).project(data.features)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), rtol=1e-6, atol=1e-8)


def test_classes_of_one_point_each_are_separated():
    rows, ids = np.eye(3), np.array([0, 1, 2])
    found = fit_discriminant(rows, ids, 0.1, dimension=3).log_probabilities(rows)
    assert (found.argmax(axis=1) == ids).all()


def by_definition(features, ids):
    model = LedoitWolf().fit(features)
    conditional = np.stack([features[ids == label].mean(axis=0) for label in ids])
    between = np.cov(conditional, rowvar=False, bias=True)
    return (1 - model.shrinkage_) * np.trace(np.linalg.pinv(model.covariance_) @ between)


@pytest.mark.parametrize("shape", ["data", "wide"])
def test_agrees_with_the_definition(shape, request):
    data = request.getfixturevalue(shape)
    assert h_score(data.features, data.classes).value == pytest.approx(
        by_definition(data.features, data.classes), rel=1e-8
    )


def test_golden_value_on_iris():
    features, ids = load_iris(return_X_y=True)
    assert h_score(features, ids).value == pytest.approx(by_definition(features, ids), rel=1e-8)
    assert h_score(features, ids).value == pytest.approx(1.16999, abs=1e-4)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(6, 40), st.integers(1, 60), st.integers(2, 5))
def test_bounds(seed, n, width, classes):
    generator = np.random.default_rng(seed)
    ids = np.concatenate([np.arange(classes), generator.integers(classes, size=n)])
    features = generator.normal(size=(len(ids), width)) * generator.uniform(0, 3) + np.eye(5, width)[ids]
    assert -1e-12 <= h_score(features, ids).value <= classes - 1 + 1e-9


def test_it_does_not_saturate_below_as_many_samples_as_dimensions():
    """The plain H-score is C − 1 for pure noise at n ≤ D."""
    generator = np.random.default_rng(0)
    ids = np.arange(60) % 3
    noise = generator.normal(size=(60, 200))
    signal = noise + 6.0 * np.eye(3, 200)[ids]
    assert h_score(noise, ids).value < 0.5
    assert h_score(signal, ids).value > 2 * h_score(noise, ids).value


def test_dependent_columns_are_served(data):
    doubled = np.hstack([data.features, data.features])
    assert np.isfinite(h_score(doubled, data.classes).value)


def by_scikit_learn(features, ids, shrinkage):
    def fit(rows):
        return LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(rows, ids)

    own = np.arange(len(ids)), ids
    q = softmax(fit(features).predict_proba(features), axis=1)[own][:, None]
    means = np.stack([features[ids == c].mean(axis=0) for c in np.unique(ids)])
    others = np.stack([np.delete(means, c, axis=0).mean(axis=0) for c in ids])
    mixed = q * features + (1 - q) * others
    return fit(mixed).predict_log_proba(mixed)[own].mean()


@pytest.mark.parametrize("shape", ["data", "wide"])
@pytest.mark.parametrize("shrinkage", [0.05, 0.9])
def test_agrees_with_scikit_learns_discriminant(shape, shrinkage, request):
    data = request.getfixturevalue(shape)
    found = sfda(data.features, data.classes, shrinkage=shrinkage).value
    assert found == pytest.approx(by_scikit_learn(data.features, data.classes, shrinkage), rel=1e-6)


def test_at_most_zero_and_constant_features_know_only_the_shares(data):
    assert sfda(data.features, data.classes).value <= 0
    shares = np.bincount(data.classes) / 90
    assert sfda(np.ones((90, 3)), data.classes).value == pytest.approx((shares * np.log(shares)).sum())


def test_noise_is_not_perfect_at_fewer_samples_than_dimensions():
    generator = np.random.default_rng(0)
    ids = np.arange(60) % 3
    noise = 10.0 * generator.normal(size=(60, 200))
    # The published floor on the shrinkage lets noise fit its labels.
    assert sfda(noise, ids, shrinkage=1e-10).value > -1e-6
    assert sfda(noise, ids).value < -0.1


def test_bad_shrinkage(data):
    with pytest.raises(InputError, match="shrinkage"):
        sfda(data.features, data.classes, shrinkage=0.0)
