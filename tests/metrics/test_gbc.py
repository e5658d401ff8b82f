from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from hubscout.errors import InputError
from hubscout.metrics.gbc import gbc


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
