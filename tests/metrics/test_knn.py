from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

from hubscout.errors import InputError
from hubscout.metrics.knn import knn


@pytest.mark.parametrize("shape", ["data", "wide"])
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_one_neighbour_agrees_with_scikit_learn(shape, distance, request):
    data = request.getfixturevalue(shape)
    oracle = KNeighborsClassifier(1, metric=distance)
    predicted = cross_val_predict(oracle, data.features, data.classes, cv=LeaveOneOut())
    found = knn(data.features, data.classes, neighbours=1, distance=distance)
    assert found.value == np.mean(predicted == data.classes)


def test_regression_agrees_with_scikit_learn(data):
    oracle = KNeighborsRegressor(5, metric="cosine")
    predicted = cross_val_predict(oracle, data.features, data.columns, cv=LeaveOneOut())
    expected = 1 - ((predicted - data.columns) ** 2).mean(axis=0) / data.columns.var(axis=0)
    assert knn(data.features, data.columns, "regression").value == pytest.approx(expected.mean(), abs=1e-12)


def test_duplicates_of_a_sample_are_neighbours_of_it():
    features = np.repeat(np.array([[1.0, 0.0], [0.0, 1.0]]), 6, axis=0)
    assert knn(features, np.repeat([0, 1], 6), neighbours=3).value == 1.0


def test_a_tied_vote_goes_to_the_nearest():
    # The neighbours of the first sample: one of its class nearby, one of the other class further off.
    features = np.array([[0.0], [0.1], [0.5], [9.0], [9.1]])
    ids = np.array([0, 0, 1, 1, 1])
    assert knn(features, ids, neighbours=2, distance="euclidean").value == pytest.approx(4 / 5)


def test_a_far_mean_does_not_spoil_euclidean_distances(data):
    near = knn(data.features, data.classes, distance="euclidean").value
    assert knn(data.features + 1e6, data.classes, distance="euclidean").value == near


def test_bounds_and_the_scale_of_each_sample(data):
    found = knn(data.features, data.classes)
    assert 0 <= found.value <= 1
    sizes = np.random.default_rng(0).uniform(0.1, 10, size=(90, 1))
    assert knn(data.features * sizes, data.classes) == found


def test_neighbours_are_capped_and_checked(data):
    assert knn(np.eye(3)[[0, 0, 1]], np.array([0, 0, 1]), neighbours=50).value <= 1
    with pytest.raises(InputError, match="neighbours"):
        knn(data.features, data.classes, neighbours=0)
    with pytest.raises(InputError, match="cosine, euclidean; got 'l1'"):
        knn(data.features, data.classes, distance="l1")
