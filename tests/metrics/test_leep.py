"""LEEP, NCE and N-LEEP: published values, bounds and what they do not depend on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import entropy
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics import mutual_info_score

from hubscout.metrics.leep import leep, n_leep, nce


def by_loops(logits, ids):
    theta = softmax(logits, axis=1)
    total = 0.0
    for i in range(len(ids)):
        predicted = 0.0
        for z in range(theta.shape[1]):
            marginal = theta[:, z].sum()
            if marginal > 0:
                predicted += theta[i, z] * theta[ids == ids[i], z].sum() / marginal
        total += np.log(predicted)
    return total / len(ids)


def test_agrees_with_the_definition(data):
    assert leep(data.logits, data.classes).value == pytest.approx(by_loops(data.logits, data.classes), abs=1e-12)


def test_a_source_class_that_is_never_predicted_takes_no_part(data):
    unused = np.column_stack([data.logits, np.full(90, -1e5)])
    assert softmax(unused, axis=1)[:, -1].sum() == 0
    assert leep(unused, data.classes).value == pytest.approx(leep(data.logits, data.classes).value, abs=1e-12)


def test_it_is_a_mean_of_logarithms_not_of_probabilities():
    # Two samples a source class, half of each class: every label has probability one half.
    logits = 50.0 * np.eye(2)[[0, 0, 1, 1]]
    assert leep(logits, np.array([0, 1, 0, 1])).value == pytest.approx(np.log(0.5))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(1, 6))
def test_bounds(seed, classes, sources):
    generator = np.random.default_rng(seed)
    ids = np.concatenate([np.arange(classes), generator.integers(classes, size=20)])
    logits = 4.0 * generator.normal(size=(len(ids), sources))
    shares = np.bincount(ids) / len(ids)
    entropy = -(shares * np.log(shares)).sum()
    for value in (leep(logits, ids).value, nce(logits, ids).value):
        assert -entropy - 1e-12 <= value <= 0.0


def test_constant_predictions_reach_the_lower_bound(data):
    shares = np.bincount(data.classes) / 90
    assert leep(np.ones((90, 3)), data.classes).value == pytest.approx((shares * np.log(shares)).sum())


def test_the_shift_of_a_samples_logits_does_not_matter(data):
    shifted = data.logits + np.random.default_rng(0).normal(size=(90, 1)) * 100
    assert leep(shifted, data.classes).value == pytest.approx(leep(data.logits, data.classes).value, rel=1e-9)


def test_agrees_with_mutual_information_less_entropy(data):
    predicted = data.logits.argmax(axis=1)
    expected = mutual_info_score(data.classes, predicted) - entropy(np.bincount(data.classes))
    assert nce(data.logits, data.classes).value == pytest.approx(expected, abs=1e-12)


def test_an_increasing_transformation_does_not_matter(data):
    assert nce(np.exp(data.logits) * 7, data.classes).value == nce(data.logits, data.classes).value


def test_one_source_class_knows_nothing(data):
    expected = -entropy(np.bincount(data.classes))
    assert nce(np.ones((90, 1)), data.classes).value == pytest.approx(expected)


def test_bounds_of_n_leep(data, wide):
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
