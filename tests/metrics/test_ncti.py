from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from hubscout.metrics import score_zoo
from hubscout.metrics.ncti import ncti


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
