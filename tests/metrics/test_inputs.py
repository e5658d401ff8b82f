from __future__ import annotations

import numpy as np
import pytest

from hubscout.metrics.inputs import principal_components


@pytest.mark.parametrize("shape", ["data", "wide"])
def test_distances_are_kept(shape, request):
    features = request.getfixturevalue(shape).features
    rows, variances = principal_components(features)
    centred = features - features.mean(axis=0)
    np.testing.assert_allclose(rows @ rows.T, centred @ centred.T, atol=1e-9)
    np.testing.assert_allclose(variances, rows.var(axis=0, ddof=1), rtol=1e-6)


def test_energy_and_limit(data):
    _, all_variances = principal_components(data.features)
    rows, variances = principal_components(data.features, energy=0.5)
    assert variances.sum() >= 0.5 * all_variances.sum() > variances[:-1].sum()
    assert principal_components(data.features, at_most=2)[0].shape == (90, 2)
    assert rows.shape[1] == len(variances)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_extreme_scales(scale, data):
    rows, _ = principal_components(data.features * scale)
    assert np.isfinite(rows).all()
    assert rows.shape[1] == 12


def test_rounding_is_no_component(data):
    dependent = np.hstack([data.features, data.features @ np.ones((12, 1))])
    assert principal_components(dependent)[0].shape[1] == 12
    assert principal_components(np.full((5, 3), 0.1))[0].shape == (5, 0)
