"""Laplace's evidence and PACTran's bound."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import dblquad, quad
from scipy.special import log_expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from hubscout.errors import InputError
from hubscout.evidence import logme
from hubscout.metrics.head_evidence import laplace, pactran


@pytest.mark.parametrize("shape", ["data", "wide"])
def test_gaussian_with_one_column_and_no_intercept_is_logme(shape, request):
    data = request.getfixturevalue(shape)
    target = data.columns[:, 0]
    found = laplace(data.features, target, "regression", intercept=False).value
    assert found == pytest.approx(logme(data.features, target, kind="regression", center=False).score, abs=1e-6)


def test_one_precision_for_all_columns_is_at_most_the_best_of_each(data):
    found = laplace(data.features, data.columns, "regression", intercept=False).value
    assert found <= logme(data.features, data.columns, kind="regression", center=False).score + 1e-9


def test_intercept_is_a_column_of_ones(data):
    size = np.sqrt(np.mean(data.features**2))
    ones = np.column_stack([data.features / size, np.ones(90)])
    target = data.columns[:, 0]
    with_intercept = laplace(data.features, target, "regression").value
    assert with_intercept == pytest.approx(logme(ones, target, kind="regression", center=False).score, abs=1e-6)


def test_softmax_agrees_with_quadrature():
    """One feature, two classes: the evidence is an integral over two weights."""
    generator = np.random.default_rng(0)
    ids = np.arange(40) % 2
    feature = (2 * ids - 1) * 0.7 + generator.normal(size=40)
    found = laplace(feature[:, None], ids, intercept=False, curvature="full")
    scaled = feature / np.sqrt(np.mean(feature**2))
    alpha = found.details["alpha"]

    def joint(first, second):
        loss = -log_expit((2 * ids - 1) * scaled * (second - first)).sum()
        return np.exp(-loss - alpha / 2 * (first**2 + second**2) + 40 * 0.6) * alpha / (2 * np.pi)

    exact = np.log(dblquad(joint, -8, 8, -8, 8, epsabs=1e-10)[0]) - 40 * 0.6
    assert found.value * 40 == pytest.approx(exact, abs=0.1)


def test_logistic_agrees_with_quadrature():
    generator = np.random.default_rng(1)
    label = np.arange(60) % 2
    feature = (2 * label - 1) * 0.5 + generator.normal(size=60)
    found = laplace(feature[:, None], label[:, None], "multilabel", intercept=False, curvature="full")
    scaled = feature / np.sqrt(np.mean(feature**2))
    alpha = found.details["alpha"]

    def joint(weight):
        loss = -log_expit((2 * label - 1) * scaled * weight).sum()
        return np.exp(-loss - alpha / 2 * weight**2 + 35) * np.sqrt(alpha / (2 * np.pi))

    exact = np.log(quad(joint, -15, 15, limit=200)[0]) - 35
    assert found.value * 60 == pytest.approx(exact, abs=0.05)


def test_kronecker_factors_are_near_the_full_curvature(make_data):
    data = make_data(n=300, width=4)
    full = laplace(data.features, data.classes, curvature="full").value
    assert laplace(data.features, data.classes).value == pytest.approx(full, abs=0.02)


def test_at_most_zero_for_classes(data, wide):
    for each in (data, wide):
        assert laplace(each.features, each.classes).value <= 0


def test_bad_options(data, make_data):
    with pytest.raises(InputError, match="kronecker, full; got 'diagonal'"):
        laplace(data.features, data.classes, curvature="diagonal")
    big = make_data(n=700, width=600)
    with pytest.raises(InputError, match="at most 2000"):
        laplace(big.features, big.classes, curvature="full")
    with pytest.raises(InputError, match="all 0"):
        laplace(np.zeros((90, 3)), data.classes, intercept=False)


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
def test_bad_options_of_pactran(option, data):
    with pytest.raises(InputError, match=option):
        pactran(data.features, data.classes, **{option: 0.0})
