"""The linear probe and nearest neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import average_precision_score
from sklearn.model_selection import LeaveOneOut, StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline

from hubscout.errors import InputError
from hubscout.metrics.held_out import inverse_strengths, knn, linear_probe


def standard(features):
    centred = features - features.mean(axis=0)
    return centred / np.sqrt(np.mean(centred**2))


def test_classification_agrees_with_scikit_learn(data):
    splits = StratifiedKFold(5, shuffle=True, random_state=0)
    model = LogisticRegression(tol=1e-3, max_iter=200)
    predicted = cross_val_predict(model, standard(data.features), data.classes, cv=splits)
    assert linear_probe(data.features, data.classes, trials=1).value == np.mean(predicted == data.classes)


@pytest.mark.parametrize("shape", ["data", "wide"])
def test_regression_agrees_with_ridge_cv(shape, request):
    data = request.getfixturevalue(shape)
    oracle = RidgeCV(alphas=1 / inverse_strengths(5), store_cv_results=True).fit(standard(data.features), data.columns)
    errors = oracle.cv_results_.mean(axis=0) / data.columns.var(axis=0)[:, None]
    found = linear_probe(data.features, data.columns, "regression")
    np.testing.assert_allclose(list(found.details["each"].values()), 1 - errors.mean(axis=0), rtol=1e-6)
    assert found.value == pytest.approx(1 - errors.mean(axis=0).min())


def test_multilabel_agrees_with_explicit_leave_one_out(data):
    from sklearn.linear_model import Ridge

    scores = cross_val_predict(make_pipeline(Ridge(alpha=1.0)), standard(data.features), data.labels, cv=LeaveOneOut())
    expected = np.mean([average_precision_score(data.labels[:, c], scores[:, c]) for c in range(3)])
    assert linear_probe(data.features, data.labels, "multilabel", trials=1).value == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_more_trials_never_score_less(kind, data):
    values = [linear_probe(data.features, data.targets(kind), kind, trials=trials).value for trials in (1, 2, 4, 8)]
    assert values == sorted(values)


def test_the_list_of_trials_is_nested_and_has_no_end():
    assert inverse_strengths(40)[:9].tolist() == inverse_strengths(9).tolist()
    assert len(set(inverse_strengths(40))) == 40


def test_bounds(data):
    assert 0 <= linear_probe(data.features, data.classes).value <= 1
    assert linear_probe(data.features, data.columns, "regression").value <= 1
    noise = np.random.default_rng(0).normal(size=(90, 5))
    assert linear_probe(noise, data.columns, "regression").value < 0.1


def test_classes_of_one_sample_each_are_an_error():
    with pytest.raises(InputError, match="one sample in every class"):
        linear_probe(np.eye(4), np.arange(4))


def test_bad_options(data):
    with pytest.raises(InputError, match="trials"):
        linear_probe(data.features, data.classes, trials=0)
    with pytest.raises(InputError, match="folds"):
        linear_probe(data.features, data.classes, folds=1)


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
