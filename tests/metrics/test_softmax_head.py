from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from hubscout.metrics.softmax_head import fit_head, negative_log_likelihood, principal_axes


@pytest.mark.parametrize("shape", ["data", "wide"])
def test_axes_are_a_rotation_that_loses_nothing(shape, request):
    features = request.getfixturevalue(shape).features
    axes = principal_axes(features)
    np.testing.assert_allclose(axes.rows @ axes.directions.T, features, atol=1e-10)
    np.testing.assert_allclose(axes.rows.T @ axes.rows, np.diag(axes.squares), atol=1e-8 * axes.squares.max())


@pytest.mark.parametrize("shape", ["data", "wide"])
@pytest.mark.parametrize("precision", [0.1, 10.0])
def test_agrees_with_scikit_learn(shape, precision, request):
    data = request.getfixturevalue(shape)
    axes = principal_axes(data.features)
    labels = np.eye(4)[data.classes]
    weights = fit_head(axes.rows, axes.squares, labels, np.full(len(axes.squares), precision), tolerance=1e-9)
    oracle = LogisticRegression(C=1 / precision, fit_intercept=False, tol=1e-10, max_iter=10000)
    oracle.fit(data.features, data.classes)
    np.testing.assert_allclose((axes.directions @ weights).T, oracle.coef_, atol=1e-3)


def test_derivative_of_the_likelihood(data):
    generator = np.random.default_rng(0)
    logits, labels = generator.normal(size=(5, 3)), np.eye(3)[[0, 1, 2, 0, 1]]
    for softmax in (True, False):
        _, derivative = negative_log_likelihood(logits, labels, softmax=softmax)
        step = np.zeros_like(logits)
        step[2, 1] = 1e-6
        up, down = (negative_log_likelihood(logits + s * step, labels, softmax=softmax)[0] for s in (1, -1))
        assert derivative[2, 1] == pytest.approx((up - down) / 2e-6, rel=1e-6)
