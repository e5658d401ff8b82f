from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from hubscout.errors import InputError
from hubscout.metrics.parc import parc


def by_definition(features, labels):
    standard = (features - features.mean(axis=0)) / features.std(axis=0)
    pairs = np.triu_indices(len(features), 1)
    # Rounded, or equal distances would be ranked by their last bit.
    first, second = (np.round(1 - np.corrcoef(rows), 10)[pairs] for rows in (standard, labels))
    return 100 * spearmanr(first, second).statistic


def test_agrees_with_the_definition(data):
    found = parc(data.features, data.classes, components=None)
    assert found == pytest.approx(by_definition(data.features, np.eye(4)[data.classes]), abs=1e-6)


def test_agrees_with_the_definition_for_several_labels(make_data):
    data = make_data()
    labels = np.column_stack([data.labels, 1 - data.labels[:, 0]])
    found = parc(data.features, labels, "multilabel", components=None)
    assert found == pytest.approx(by_definition(data.features, labels), abs=1e-6)


def test_bounds_and_extremes(data):
    assert -100 <= parc(data.features, data.classes) <= 100
    balanced = np.arange(40) % 4
    assert parc(np.eye(4)[balanced], balanced) == pytest.approx(100)
    assert parc(np.ones((90, 3)), data.classes) == 0.0


def test_large_data_is_sampled_with_a_seed(make_data):
    data = make_data(n=400)
    small = parc(data.features, data.classes, max_samples=100)
    assert small == parc(data.features, data.classes, max_samples=100)
    assert small != parc(data.features, data.classes, max_samples=100, seed=1)
    assert small == pytest.approx(parc(data.features, data.classes), abs=10)


def test_shift_does_not_matter(data):
    assert parc(data.features + 50, data.classes) == pytest.approx(parc(data.features, data.classes), abs=1e-6)


def test_two_samples_have_no_distances_to_rank():
    with pytest.raises(InputError, match="three rows"):
        parc(np.eye(2), np.array([0, 1]))
