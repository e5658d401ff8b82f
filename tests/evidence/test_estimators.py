import pickle

import numpy as np
import pytest
from scipy.linalg import helmert
from sklearn.base import clone
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    make_multilabel_classification,
)
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import BayesianRidge
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from hubscout.errors import InputError
from hubscout.evidence import LogMEClassifier, LogMERegressor, Statistics, logme, maximize_evidence
from hubscout.evidence.checks import default_center
from hubscout.metrics import score


@parametrize_with_checks([LogMEClassifier(), LogMERegressor(), LogMERegressor(center=False)])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_regressor_predicts_what_bayesian_ridge_does():
    X, y = load_diabetes(return_X_y=True)
    X_train, X_test, y_train, _ = train_test_split(X, y, random_state=0)
    # An intercept costs one observation, which theirs does not count: give it the contrasts between samples.
    contrasts = helmert(len(X_train))
    theirs = BayesianRidge(alpha_1=0, alpha_2=0, lambda_1=0, lambda_2=0, tol=1e-13, max_iter=3000, fit_intercept=False)
    theirs.fit(contrasts @ X_train, contrasts @ y_train)
    mean, deviation = theirs.predict(X_test - X_train.mean(0), return_std=True)
    mean += y_train.mean()
    ours = LogMERegressor().fit(X_train, y_train)
    our_mean, our_deviation = ours.predict(X_test, return_std=True)
    np.testing.assert_allclose(our_mean, mean, rtol=1e-7)
    np.testing.assert_allclose(our_deviation, deviation, rtol=1e-6)
    np.testing.assert_allclose(ours.coef_[0], theirs.coef_, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rows", [400, 8])
def test_one_rule_of_centring(rows):
    """The default is that of the kind, the same in `logme`, in sums, in the metric and in the regressor."""
    X, y = (array[:rows] for array in load_diabetes(return_X_y=True))
    expected = logme(X, y, center=True).score
    assert default_center("regression")
    sums = Statistics("regression", ["y"]).update(X, y)
    for found in (logme(X, y), maximize_evidence(sums), LogMERegressor().fit(X, y).evidence_):
        assert found.center
        assert found.score == pytest.approx(expected, abs=1e-9)
    assert score("logme", features=X, targets=y, kind="regression").value == pytest.approx(expected, abs=1e-9)
    assert LogMERegressor().partial_fit(X, y).evidence_.score == pytest.approx(expected, abs=1e-9)
    ids = (y > 120).astype(int)
    assert not default_center("classification")
    assert not logme(X, ids).center
    assert score("logme", features=X, targets=ids, kind="classification").value == logme(X, ids, center=False).score


def test_a_classifier_has_an_intercept():
    """The one difference, by name: what is to predict classes is centred, what ranks features is not."""
    X, y = load_breast_cancer(return_X_y=True)
    assert default_center("classification", predicting=True)
    for kind in ("classification", "multilabel"):
        targets = y if kind == "classification" else np.stack([y, 1 - y], axis=1)
        found = LogMEClassifier().fit(X, targets).evidence_
        assert found.center
        assert found.score == pytest.approx(logme(X, targets, center=True).score, abs=1e-9)
        asked = LogMEClassifier(center=False).fit(X, targets).evidence_
        assert asked.score == pytest.approx(logme(X, targets).score, abs=1e-9)


def test_variance_holds_for_fewer_samples_than_dimensions():
    generator = np.random.default_rng(0)
    X, new = generator.normal(size=(30, 80)), generator.normal(size=(7, 80))
    y = X[:, :3].sum(1) + 0.1 * generator.normal(size=30)
    regressor = LogMERegressor(center=False).fit(X, y)
    alpha, beta = regressor.evidence_.alpha[0], regressor.evidence_.beta[0]
    covariance = np.linalg.inv(alpha * np.eye(80) + beta * X.T @ X)
    mean, deviation = regressor.predict(new, return_std=True)
    np.testing.assert_allclose(deviation**2, np.einsum("ij,jk,ik->i", new, covariance, new) + 1 / beta)
    np.testing.assert_allclose(mean, new @ (beta * covariance @ X.T @ y))


def test_partial_fit_equals_fit():
    X, y = load_digits(return_X_y=True)
    whole = LogMEClassifier().fit(X, y)
    parts = LogMEClassifier()
    for index in np.array_split(np.random.default_rng(0).permutation(len(X)), 7):
        parts.partial_fit(X[index], y[index], classes=np.arange(10))
    np.testing.assert_allclose(parts.predict_proba(X), whole.predict_proba(X), atol=1e-7)
    Z, z = load_diabetes(return_X_y=True)
    targets = np.column_stack([z, Z[:, 0] + z])
    whole_regressor = LogMERegressor().fit(Z, targets)
    parts_regressor = LogMERegressor().partial_fit(Z[:200], targets[:200]).partial_fit(Z[200:], targets[200:])
    np.testing.assert_allclose(parts_regressor.predict(Z), whole_regressor.predict(Z))
    assert whole_regressor.predict(Z).shape == targets.shape


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("first", [20, 800])
def test_partial_fit_goes_on_from_fit(center, first):
    """Whether fit went through the dual (20 samples of 64 dimensions) or not."""
    X, y = load_digits(return_X_y=True)
    whole = LogMEClassifier(center=center).fit(X, y)
    parts = LogMEClassifier(center=center).fit(X[:first], y[:first])
    parts.partial_fit(X[first:900], y[first:900]).partial_fit(X[900:], y[900:])
    np.testing.assert_allclose(parts.predict_proba(X), whole.predict_proba(X), atol=1e-7)


def test_partial_fit_waits_for_a_second_class():
    classifier = LogMEClassifier().partial_fit([[1.0], [2.0]], ["a", "a"], classes=["a", "b", "c"])
    with pytest.raises(InputError, match="one class"):
        classifier.predict([[1.0]])
    classifier.partial_fit([[-3.0], [-2.0], [-1.0]], ["b", "b", "b"])
    assert classifier.predict([[2.0], [-2.0]]).tolist() == ["a", "b"]
    probabilities = classifier.predict_proba([[2.0], [-2.0]])
    assert (probabilities[:, 2] == 0).all(), "a class that never came is never predicted"
    np.testing.assert_allclose(probabilities.sum(1), 1)


def test_partial_fit_says_what_is_wrong():
    with pytest.raises(InputError, match="classes must be passed"):
        LogMEClassifier().partial_fit([[1.0], [2.0]], [0, 1])
    with pytest.raises(InputError, match=r"not in classes: \[7\]"):
        LogMEClassifier().partial_fit([[1.0], [2.0]], [0, 7], classes=[0, 1])
    fitted = LogMEClassifier().fit([[1.0], [2.0], [3.0]], [0, 1, 1]).set_params(center=False)
    with pytest.raises(InputError, match="begin with partial_fit"):
        fitted.partial_fit([[1.0], [2.0]], [0, 1])
    with pytest.raises(NotFittedError):
        _ = LogMERegressor().evidence_


@pytest.mark.parametrize("samples_a_class", [2, 5, 20])
def test_few_shots_of_digits(samples_a_class):
    """The paper's point about the posterior as a classifier: no hyper-parameter, and good with few samples."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    chosen = np.concatenate([order[y[order] == digit][:samples_a_class] for digit in range(10)])
    rest = np.setdiff1d(order, chosen)
    accuracy = LogMEClassifier().fit(X[chosen], y[chosen]).score(X[rest], y[rest])
    assert accuracy > {2: 0.55, 5: 0.75, 20: 0.88}[samples_a_class]


def test_probabilities_are_calibrated_enough_to_beat_the_base_rate_and_hard_labels():
    X, y = load_breast_cancer(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0, stratify=y)
    model = make_pipeline(StandardScaler(), LogMEClassifier()).fit(X_train, y_train)
    probabilities = model.predict_proba(X_test)
    assert log_loss(y_test, probabilities) < 0.2
    confident = probabilities.max(1) > 0.9
    assert (model.predict(X_test) == y_test)[confident].mean() > 0.97
    assert 0.4 < confident.mean() < 1


def test_labels_that_features_say_nothing_about_get_the_base_rate_order():
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(400, 3)), (np.arange(400) % 4 == 0).astype(int)
    classifier = LogMEClassifier().fit(X, y)
    assert (classifier.predict(X) == 0).mean() > 0.95
    assert classifier.predict_proba(X)[:, 1].mean() < 0.4


def test_multi_label():
    X, Y = make_multilabel_classification(300, n_features=12, n_classes=4, random_state=0)
    classifier = LogMEClassifier().fit(X, Y)
    predictions, probabilities = classifier.predict(X), classifier.predict_proba(X)
    assert predictions.shape == probabilities.shape == Y.shape
    np.testing.assert_array_equal(predictions, probabilities > 0.5)
    assert (predictions == Y).mean() > 0.75
    parts = LogMEClassifier().partial_fit(X[:100], Y[:100]).partial_fit(X[100:], Y[100:])
    np.testing.assert_allclose(parts.predict_proba(X), probabilities, atol=1e-9)


def test_strings_pickles_clones_and_cross_validation():
    X, y = load_digits(return_X_y=True, n_class=3)
    names = np.array(["zero", "one", "two"])[y]
    classifier = LogMEClassifier(center=False).fit(X, names)
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict(X), classifier.predict(X))
    assert set(classifier.classes_) == {"zero", "one", "two"}
    assert clone(classifier).get_params() == {"center": False, "solver": "newton"}
    assert cross_val_score(LogMEClassifier(), X, names, cv=3).mean() > 0.94


def test_decision_function_orders_as_predict_does():
    X, y = load_iris(return_X_y=True)
    three = LogMEClassifier().fit(X, y)
    np.testing.assert_array_equal(three.decision_function(X).argmax(1), three.predict(X))
    two = LogMEClassifier().fit(X[50:], y[50:])
    decided = two.decision_function(X[50:])
    assert decided.shape == (100,)
    np.testing.assert_array_equal(two.classes_[(decided > 0).astype(int)], two.predict(X[50:]))
    labels = np.stack([y == 0, y > 0], axis=1).astype(int)
    several = LogMEClassifier().fit(X, labels)
    np.testing.assert_array_equal(several.decision_function(X) > 0, several.predict(X))


def test_sparse_features_give_what_dense_ones_do():
    from scipy.sparse import csr_array

    X, y = load_iris(return_X_y=True)
    X = np.where(X > 3, X, 0.0)
    for estimator in (LogMEClassifier(), LogMERegressor()):
        dense = estimator.fit(X, y).predict(X)
        np.testing.assert_allclose(estimator.fit(csr_array(X), y).predict(csr_array(X)), dense)


def weighted_and_repeated(rng, n, dim):
    """Features, and how often each row is to count; and the same with every row as often."""
    X, times = rng.normal(size=(n, dim)) + 3.0, rng.integers(0, 4, size=n)
    return X, times, np.repeat(np.arange(n), times)


@pytest.mark.parametrize("dim", [6, 60])
@pytest.mark.parametrize("center", [None, False])
def test_a_weight_of_two_is_the_row_twice(dim, center):
    rng = np.random.default_rng(0)
    X, times, repeated = weighted_and_repeated(rng, 40, dim)
    classes = (X[:, 0] + rng.normal(size=40) > 3).astype(int) + (X[:, 1] > 4)
    labels = np.column_stack([classes > 0, X[:, 2] + rng.normal(size=40) > 3]).astype(int)
    numbers = X[:, :2] @ rng.normal(size=(2, 2)) + rng.normal(size=(40, 2))
    for make, y in ((LogMEClassifier, classes), (LogMEClassifier, labels), (LogMERegressor, numbers)):
        weighted = make(center=center).fit(X, y, sample_weight=times)
        twice = make(center=center)
        for rows in np.array_split(repeated, 3):
            twice.partial_fit(X[rows], y[rows], **({"classes": np.unique(classes)} if y is classes else {}))
        np.testing.assert_allclose(weighted.predict(X), twice.predict(X), rtol=0, atol=1e-9)
        np.testing.assert_allclose(weighted.evidence_.per_target, twice.evidence_.per_target, rtol=0, atol=1e-9)
        assert weighted.evidence_.n == len(repeated)
        if make is LogMEClassifier:
            np.testing.assert_allclose(weighted.predict_proba(X), twice.predict_proba(X), rtol=0, atol=1e-9)
        whole = make(center=center).fit(X[repeated], y[repeated])
        if not whole.evidence_.unbounded:
            np.testing.assert_allclose(weighted.evidence_.per_target, whole.evidence_.per_target, rtol=0, atol=1e-9)
            np.testing.assert_allclose(weighted.coef_, whole.coef_, rtol=0, atol=1e-9)


def test_fractions_of_weights_add_up_over_batches():
    rng = np.random.default_rng(1)
    X, y, weights = rng.normal(size=(30, 5)), rng.normal(size=30), rng.uniform(0.1, 2.0, size=30)
    once = LogMERegressor().fit(X, y, sample_weight=weights)
    parts = LogMERegressor()
    for rows in (slice(0, 10), slice(10, 30)):
        parts.partial_fit(X[rows], y[rows], sample_weight=weights[rows])
    again = LogMERegressor().fit(X, y, sample_weight=weights / 2).partial_fit(X, y, sample_weight=weights / 2)
    for other in (parts, again):
        np.testing.assert_allclose(other.predict(X), once.predict(X), rtol=0, atol=1e-9)
    assert once.evidence_.n == pytest.approx(weights.sum())
    # A hundredth of the weights is little evidence: less is explained than with all of them.
    little = LogMERegressor().fit(X, y, sample_weight=weights / 20)
    assert np.abs(little.coef_).sum() <= np.abs(once.coef_).sum()


def test_weights_that_are_none_are_refused():
    X, y = np.eye(4), np.array([0, 1, 0, 1])
    for weights, said in (([1, 1, 1, -1], "not negative"), ([0, 0, 0, 0], "zero for every"), ([1, 2], "one number")):
        with pytest.raises(InputError, match=said):
            LogMEClassifier().fit(X, y, sample_weight=weights)
