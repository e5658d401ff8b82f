"""The profile with an intercept: from z and from reduced targets, its grid, its places and its slope."""

import numpy as np
import pytest

from hubscout.evidence import logme
from hubscout.evidence.base_rate_profile import BaseRateProfile, ReducedBaseRateProfile
from hubscout.evidence.reduced_targets import SMALLEST_SIZE

SHAPES = [(2 * SMALLEST_SIZE, SMALLEST_SIZE + 3), (SMALLEST_SIZE + 3, 2 * SMALLEST_SIZE)]


@pytest.fixture(params=SHAPES, ids=["n > D", "n < D"])
def profiles(request, generator):
    """Of the same three targets."""
    n, dim = request.param
    features = np.maximum(generator.normal(size=(n, dim)), 0)
    y = features[:, :3] + generator.normal(size=(n, 3))
    fitted = logme(features, y, kind="regression", center=False)
    fit, squares = fitted.over_base_rates, ((y - y.mean(0)) ** 2).sum(0)
    shared = (fit.target_mean, squares, np.ones(3, dtype=bool))
    reduced = ReducedBaseRateProfile.of(fitted.spectrum, fit.constant_column, *shared)
    assert reduced is not None
    return BaseRateProfile.of(fitted.spectrum, fit.constant, *shared), reduced


def test_both_are_the_same_function(profiles):
    whole = slice(None)
    for place in (-6.0, -3.0, 0.0, 2.0):
        points = np.full(3, place)
        first, second = (profile._at(whole, points) for profile in profiles)
        np.testing.assert_allclose(second, first, atol=1e-10)
        np.testing.assert_allclose(profiles[1]._slope(whole, points), profiles[0]._slope(whole, points), atol=1e-9)
        for profile in profiles:
            np.testing.assert_allclose(profile._on_grid(points[:1])[:, 0], first, atol=1e-10)


def test_slopes_are_derivatives(profiles):
    step, whole = 1e-4, slice(None)
    for profile in profiles:
        for place in (-6.0, -3.0, 0.0, 2.0):
            low, high = (profile._at(whole, np.full(3, place + shift)) for shift in (-step, step))
            np.testing.assert_allclose(profile._slope(whole, np.full(3, place)), (high - low) / (2 * step), atol=1e-7)


def test_the_maximum_is_no_less_than_anywhere(profiles):
    everywhere = np.linspace(-12, 8, 400)
    for profile in profiles:
        gain, ratio = profile.maximize()
        assert (2 * gain >= profile._on_grid(everywhere).max(1) - 1e-12).all()
        np.testing.assert_allclose(profile._slope(slice(None), np.log(ratio / profile.scale)), 0, atol=1e-7)
