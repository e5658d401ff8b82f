from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import LedoitWolf
from sklearn.datasets import load_iris

from hubscout.metrics.hscore import h_score


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
