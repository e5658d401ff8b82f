from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from hubscout.errors import InputError
from hubscout.metrics.sfda import sfda


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
