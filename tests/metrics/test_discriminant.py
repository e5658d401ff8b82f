from __future__ import annotations

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from hubscout.metrics.discriminant import fit_discriminant, span


@pytest.mark.parametrize("shape", ["data", "wide"])
@pytest.mark.parametrize("shrinkage", [0.01, 0.5])
def test_agrees_with_scikit_learn(shape, shrinkage, request):
    data = request.getfixturevalue(shape)
    oracle = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(data.features, data.classes)
    rows = span(data.features)
    ours = fit_discriminant(rows, data.classes, shrinkage, dimension=data.features.shape[1])
    # scikit-learn takes the logarithm of probabilities, which end at the smallest number.
    found = np.maximum(ours.log_probabilities(rows), np.log(np.finfo(np.float64).tiny))
    np.testing.assert_allclose(found, oracle.predict_log_proba(data.features), rtol=1e-6, atol=1e-8)


def test_projection_agrees_with_scikit_learn_without_shrinkage(data):
    oracle = LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.0).fit(data.features, data.classes)
    expected = oracle.transform(data.features)
    expected -= expected.mean(axis=0)
    found = fit_discriminant(data.features, data.classes, 0.0, dimension=12).project(data.features)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), rtol=1e-6, atol=1e-8)


def test_classes_of_one_point_each_are_separated():
    rows, ids = np.eye(3), np.array([0, 1, 2])
    found = fit_discriminant(rows, ids, 0.1, dimension=3).log_probabilities(rows)
    assert (found.argmax(axis=1) == ids).all()
