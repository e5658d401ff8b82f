"""GBC, TransRate and PARC."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm, spearmanr

from hubscout.errors import InputError
from hubscout.metrics.separation import gbc, parc, transrate


def overlap(first, second):
    """∫ √(p q) of two Gaussians, by quadrature."""
    p, q = (norm(rows.mean(), rows.std(ddof=1)) for rows in (first, second))
    return quad(lambda x: np.sqrt(p.pdf(x) * q.pdf(x)), -60, 60, limit=400)[0]


def test_agrees_with_quadrature_in_one_dimension():
    generator = np.random.default_rng(0)
    groups = [generator.normal(place, width, size=40) for place, width in ((0, 1), (2, 0.5), (3, 2))]
    features = np.concatenate(groups)[:, None]
    pairs = [overlap(groups[a], groups[b]) for a in range(3) for b in range(3) if a != b]
    assert gbc(features, np.repeat([0, 1, 2], 40)) == pytest.approx(-sum(pairs), rel=1e-6)


def test_the_determinant_is_that_of_all_dimensions():
    """Equal means, standard deviations 1 and 3 in k dimensions: the overlap is the k-th power of one dimension's."""
    corners = np.array([[a, b, c] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)], dtype=float)
    features, ids = np.vstack([corners, 3 * corners]), np.repeat([0, 1], 8)
    one = (2 * 1 * 3 / (1 + 9)) ** 0.5
    assert gbc(features, ids) == pytest.approx(-2 * one**3, rel=1e-9)
    assert gbc(features, ids, covariance="diagonal") == pytest.approx(-2 * one**3, rel=1e-9)


def test_bounds(data):
    assert -12.0 <= gbc(data.features, data.classes) <= 0.0
    assert gbc(np.ones((90, 3)), data.classes) == -12.0
    assert gbc(1e3 * np.eye(4)[data.classes] + data.features[:, :4], data.classes) > -1e-12


def test_shift_does_not_matter(data):
    assert gbc(data.features + 100, data.classes) == pytest.approx(gbc(data.features, data.classes), rel=1e-8)


def test_bad_covariance(data):
    with pytest.raises(InputError, match="spherical, diagonal; got 'full'"):
        gbc(data.features, data.classes, covariance="full")


def rates_by_definition(features, ids, distortion):
    def rate(rows):
        return 0.5 * np.linalg.slogdet(np.eye(rows.shape[1]) + rows.T @ rows / (len(rows) * distortion))[1]

    centred = features - features.mean(axis=0)
    return rate(centred) - sum((ids == c).mean() * rate(centred[ids == c]) for c in np.unique(ids))


@pytest.mark.parametrize("shape", ["data", "wide"])
def test_transrate_agrees_with_the_definition(shape, request):
    data = request.getfixturevalue(shape)
    found = transrate(data.features, data.classes, normalise=False)
    assert found == pytest.approx(rates_by_definition(data.features, data.classes, 1e-4), rel=1e-7)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30))
def test_never_negative(seed, width):
    generator = np.random.default_rng(seed)
    ids = np.concatenate([[0, 1, 2], generator.integers(3, size=15)])
    rows = generator.normal(size=(18, width))
    assert transrate(rows, ids) >= 0.0
    centred = rows - rows.mean(axis=0)
    assert rates_by_definition(centred / np.sqrt((centred**2).sum(axis=1).mean()), ids, 1e-4) >= -1e-9


def test_two_balanced_classes_are_told_apart_only_with_centred_classes():
    generator = np.random.default_rng(0)
    ids = np.repeat([0, 1], 200)
    features = generator.normal(size=(400, 3)) + 10.0 * ids[:, None]
    noise = generator.normal(size=(400, 3))
    assert transrate(features, ids) == pytest.approx(transrate(noise, ids), abs=0.1)
    assert transrate(features, ids, centre_classes=True) > transrate(noise, ids, centre_classes=True) + 1.0


def test_columns_of_zeros_and_shifts_do_not_matter(data):
    padded = np.hstack([data.features + 5.0, np.zeros((90, 7))])
    assert transrate(padded, data.classes) == pytest.approx(transrate(data.features, data.classes), rel=1e-9)


def test_bad_distortion(data):
    with pytest.raises(InputError, match="distortion"):
        transrate(data.features, data.classes, distortion=0.0)


def correlation_by_definition(features, labels):
    standard = (features - features.mean(axis=0)) / features.std(axis=0)
    pairs = np.triu_indices(len(features), 1)
    # Rounded, or equal distances would be ranked by their last bit.
    first, second = (np.round(1 - np.corrcoef(rows), 10)[pairs] for rows in (standard, labels))
    return 100 * spearmanr(first, second).statistic


def test_parc_agrees_with_the_definition(data):
    found = parc(data.features, data.classes, components=None)
    assert found == pytest.approx(correlation_by_definition(data.features, np.eye(4)[data.classes]), abs=1e-6)


def test_agrees_with_the_definition_for_several_labels(make_data):
    data = make_data()
    labels = np.column_stack([data.labels, 1 - data.labels[:, 0]])
    found = parc(data.features, labels, "multilabel", components=None)
    assert found == pytest.approx(correlation_by_definition(data.features, labels), abs=1e-6)


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


def test_shift_does_not_matter_to_parc(data):
    assert parc(data.features + 50, data.classes) == pytest.approx(parc(data.features, data.classes), abs=1e-6)


def test_two_samples_have_no_distances_to_rank():
    with pytest.raises(InputError, match="three rows"):
        parc(np.eye(2), np.array([0, 1]))
