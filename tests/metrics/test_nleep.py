from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris

from hubscout.metrics.nleep import n_leep


def test_bounds(data, wide):
    for each in (data, wide):
        shares = np.bincount(each.classes) / len(each.classes)
        assert (shares * np.log(shares)).sum() - 1e-9 <= n_leep(each.features, each.classes).value <= 0


def test_constant_features_reach_the_lower_bound(data):
    shares = np.bincount(data.classes) / 90
    assert n_leep(np.ones((90, 3)), data.classes).value == pytest.approx((shares * np.log(shares)).sum())


def test_golden_values():
    """A band, because the mixture's start is drawn by a generator that may change with scikit-learn."""
    assert n_leep(*load_iris(return_X_y=True)).value == pytest.approx(-0.12, abs=0.08)
    assert n_leep(*load_digits(return_X_y=True)).value == pytest.approx(-0.164, abs=0.06)


def test_noise_does_not_score_like_signal_when_samples_are_few():
    """With a cluster for every sample, pure noise would be perfect."""
    generator = np.random.default_rng(0)
    ids = np.arange(60) % 4
    noise = n_leep(generator.normal(size=(60, 30)), ids).value
    signal = n_leep(5 * np.eye(4)[ids] + generator.normal(size=(60, 4)), ids).value
    assert noise < -0.4 < -0.2 < signal


def test_repeated_samples_are_served():
    features = np.repeat(np.eye(3), 10, axis=0)
    assert n_leep(features, np.repeat([0, 1, 2], 10)).value == pytest.approx(0.0, abs=1e-6)
