"""The linear probe and nearest neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
from sklearn.metrics import average_precision_score, r2_score
from sklearn.model_selection import LeaveOneOut, PredefinedSplit, StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor, NearestNeighbors
from sklearn.pipeline import make_pipeline

from hubscout.errors import InputError
from hubscout.grouping import stratified_folds
from hubscout.metrics import held_out, score
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


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_groups_are_predicted_from_other_groups_as_scikit_learn_does(kind, data):
    groups = np.arange(90) % 12
    targets, classes = data.targets(kind), kind == "classification"
    fold = stratified_folds(targets if classes else np.zeros(90, dtype=int), 5, 0, groups)
    model = LogisticRegression(tol=1e-3, max_iter=200) if classes else Ridge(alpha=1.0)
    predicted = cross_val_predict(model, standard(data.features), targets, cv=PredefinedSplit(fold))
    expected = {
        "classification": lambda: np.mean(predicted == targets),
        "multilabel": lambda: np.mean([average_precision_score(targets[:, c], predicted[:, c]) for c in range(3)]),
        "regression": lambda: r2_score(targets, predicted),
    }[kind]()
    found = linear_probe(data.features, targets, kind, trials=1, groups=groups)
    assert found.value == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_neighbours_are_of_other_groups(distance, data):
    groups = np.arange(90) % 7
    right = []
    for group in range(7):
        own = groups == group
        model = KNeighborsClassifier(1, metric=distance).fit(data.features[~own], data.classes[~own])
        right += list(model.predict(data.features[own]) == data.classes[own])
    found = knn(data.features, data.classes, neighbours=1, distance=distance, groups=groups)
    assert found.value == pytest.approx(np.mean(right))


def test_neighbours_of_a_large_group_are_looked_at_in_parts(data, monkeypatch):
    groups = np.arange(90) // 60
    whole = knn(data.features, data.classes, groups=groups)
    monkeypatch.setattr(held_out, "_NUMBERS_AT_ONCE", 200)
    asked = []
    kneighbors = NearestNeighbors.kneighbors

    def counted(index, X, **options):
        asked.append(len(X))
        return kneighbors(index, X, **options)

    monkeypatch.setattr(NearestNeighbors, "kneighbors", counted)
    assert knn(data.features, data.classes, groups=groups) == whole
    assert max(asked) == 3
    assert sum(asked) == 90


@pytest.mark.parametrize("metric", [knn, linear_probe])
def test_what_only_a_group_knows_counts_for_nothing(metric):
    """Twenty patients with ten samples each that are nearly the same, and labels that are drawn."""
    generator = np.random.default_rng(0)
    features = np.repeat(generator.normal(size=(20, 30)), 10, axis=0) + 0.01 * generator.normal(size=(200, 30))
    groups, labels = np.repeat(np.arange(20), 10), np.repeat(generator.permutation([0, 1] * 10), 10)
    apart, together = metric(features, labels), metric(features, labels, groups=groups)
    assert apart.value > 0.95
    assert together.value < 0.75
    assert together.standard_error > 0.07  # of 20 patients
    with pytest.raises(InputError, match="one group"):
        metric(features, labels, groups=np.zeros(200, dtype=int))
    with pytest.raises(InputError, match="groups must be 200 numbers"):
        metric(features, labels, groups=groups[1:])
    assert (
        score(
            metric.__name__.replace("_", "-"), features=features, targets=labels, kind="classification", groups=groups
        ).value
        == together.value
    )
