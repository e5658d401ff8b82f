from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from hubscout.errors import InputError
from hubscout.metrics.pactran import pactran


def by_scikit_learn(features, ids, regularisation, variance):
    n, width = features.shape
    centred = features - features.mean(axis=0)
    model = LogisticRegression(C=regularisation, tol=1e-10, max_iter=20000).fit(centred, ids)
    p = model.predict_proba(centred)
    fitted = log_loss(ids, p) + 0.5 * (model.coef_**2).sum() / (regularisation * n)
    trace = sum(p[i, c] * (1 - p[i, c]) * centred[i] @ centred[i] for i in range(n) for c in range(p.shape[1])) / n
    size = width * p.shape[1]
    beta = regularisation * n / variance
    return -(fitted + size / (2 * beta) * np.log(1 + beta * variance / size * trace))


@pytest.mark.parametrize("shape", ["data", "wide"])
def test_agrees_with_scikit_learns_head(shape, request):
    data = request.getfixturevalue(shape)
    for regularisation, variance in ((1.0, 10 / data.features.shape[1]), (0.1, 0.5)):
        found = pactran(data.features, data.classes, regularisation=regularisation, prior_variance=variance)
        expected = by_scikit_learn(data.features, data.classes, regularisation, variance)
        assert found.value == pytest.approx(expected, rel=1e-4)


def test_at_most_zero_and_the_sum_of_its_parts(data):
    found = pactran(data.features, data.classes)
    assert found.value == -(found.details["fitted"] + found.details["flatness"]) <= 0


def test_shift_does_not_matter(data):
    assert pactran(data.features + 9, data.classes).value == pytest.approx(
        pactran(data.features, data.classes).value, rel=1e-6
    )


def test_constant_features_know_only_the_shares(data):
    shares = np.bincount(data.classes) / 90
    assert pactran(np.ones((90, 3)), data.classes).value == pytest.approx((shares * np.log(shares)).sum(), abs=1e-6)


@pytest.mark.parametrize("option", ["regularisation", "prior_variance"])
def test_bad_options(option, data):
    with pytest.raises(InputError, match=option):
        pactran(data.features, data.classes, **{option: 0.0})
