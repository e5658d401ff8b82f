"""NCTI and ETran."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.covariance import LedoitWolf
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import LeaveOneOut, cross_val_predict

from hubscout.metrics import score_zoo
from hubscout.metrics.zoo_relative import etran, ncti


def test_parts_agree_with_scikit_learn(make_data):
    data = make_data(n=200, width=90)
    rows = PCA(64, svd_solver="full").fit_transform(data.features)
    model = LinearDiscriminantAnalysis(solver="eigen").fit(rows, data.classes)
    probabilities, coordinates = model.predict_proba(rows), model.transform(rows)
    found = ncti(data.features, data.classes)
    assert found["nearest_centre"] == pytest.approx(probabilities[np.arange(200), data.classes].mean(), abs=1e-6)
    nuclear = sum(np.linalg.norm(probabilities[data.classes == c], ord="nuc") for c in range(4))
    assert found["variability"] == pytest.approx(np.log(nuclear), abs=1e-6)
    expected = np.linalg.norm(coordinates - coordinates.mean(axis=0), ord="nuc")
    assert found["separation"] == pytest.approx(expected, rel=1e-4)


def test_the_range_of_a_zoo_and_a_zoo_of_one(data, make_data):
    zoo = {str(noise): make_data(noise=noise).features for noise in (0.5, 1.0, 2.0, 4.0)}
    found = score_zoo("ncti", zoo, targets=data.classes, kind="classification")
    assert all(-1.0 <= each.value <= 2.0 for each in found.values())
    assert max(found, key=lambda name: found[name].value) == "0.5"
    alone = score_zoo("ncti", {"a": data.features}, targets=data.classes, kind="classification")
    assert alone["a"].value == 0.0
    assert set(alone["a"].details) == {"separation", "nearest_centre", "variability"}


def test_the_scores_of_a_zoo_are_relative(data, make_data):
    zoo = {str(noise): make_data(noise=noise).features for noise in (0.5, 1.0, 2.0)}
    few = score_zoo("ncti", zoo, targets=data.classes, kind="classification")
    more = score_zoo("ncti", zoo | {"none": np.ones((90, 2))}, targets=data.classes, kind="classification")
    assert few["1.0"].value != more["1.0"].value


def test_energy(data):
    expected = logsumexp(data.features, axis=1).mean()
    assert etran(data.features, data.classes)["energy"] == pytest.approx(expected)


@pytest.mark.parametrize("shape", ["data", "wide"])
def test_classes_agree_with_scikit_learn(shape, request):
    data = request.getfixturevalue(shape)
    means = np.stack([data.features[data.classes == c].mean(axis=0) for c in range(4)])
    shrinkage = LedoitWolf(assume_centered=True).fit(data.features - means[data.classes]).shrinkage_
    oracle = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(data.features, data.classes)
    own = np.arange(len(data.classes)), data.classes
    expected = oracle.predict_log_proba(data.features)[own].mean()
    assert etran(data.features, data.classes)["labelled"] == pytest.approx(expected, rel=1e-6)


def test_regression_is_left_one_out(data):
    rows = PCA(0.8, svd_solver="full").fit_transform(data.features)
    predicted = cross_val_predict(LinearRegression(), rows, data.columns, cv=LeaveOneOut())
    expected = -(((predicted - data.columns) ** 2).mean(axis=0) / data.columns.var(axis=0)).mean()
    assert etran(data.features, data.columns, "regression")["labelled"] == pytest.approx(expected, rel=1e-8)


def test_regression_does_not_saturate_at_fewer_samples_than_dimensions():
    generator = np.random.default_rng(0)
    noise, target = generator.normal(size=(40, 100)), generator.normal(size=40)
    assert etran(noise, target, "regression")["labelled"] < -0.8


def test_combination(data, make_data):
    zoo = {str(noise): make_data(noise=noise).features for noise in (0.5, 1.0, 4.0)}
    found = score_zoo("etran", zoo, targets=data.classes, kind="classification")
    expected = np.zeros(3)
    for part, weight in (("energy", 0.15), ("labelled", 0.85)):
        values = np.array([found[name].details[part] for name in zoo])
        expected += weight * (values - values.min()) / np.ptp(values)
    np.testing.assert_allclose([found[name].value for name in zoo], expected)
