"""A score without eigenvectors is the score with them, and all that needs them afterwards finds them."""

import pickle

import numpy as np
import pytest

from hubscout.evidence import Statistics, logme, maximize_evidence, reduced_targets
from hubscout.evidence.left_out import left_out_predictions
from hubscout.evidence.tridiagonal import Tridiagonal

DIM = reduced_targets.SMALLEST_SIZE + 13
SHAPES = {"more samples than dimensions": (3 * DIM, DIM), "fewer samples than dimensions": (DIM, 2 * DIM)}


@pytest.fixture(params=SHAPES)
def data(request, generator):
    n, dim = SHAPES[request.param]
    ids = np.arange(n) % 9
    rows = generator.normal(size=(n, dim)) + 0.5 * generator.normal(size=(9, dim))[ids]
    return np.maximum(rows * np.arange(1, dim + 1) ** -0.5, 0), ids


@pytest.fixture
def with_eigenvectors(monkeypatch):
    def run(function):
        with monkeypatch.context() as patch:
            patch.setattr(reduced_targets, "FEW", 10**9)
            return function()

    return run


def kinds(features, ids, generator):
    """Classes, labels of which one is everywhere but in a few rows, and numbers far from zero."""
    n = len(ids)
    numbers = features[:, :2] * 30 + generator.normal(size=(n, 2)) + 1e4
    labels = np.stack([ids < 4, np.arange(n) > 5], axis=1).astype(int)
    return {"classification": ids, "multilabel": labels, "regression": numbers}


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
@pytest.mark.parametrize("center", [False, True])
def test_the_same_with_and_without_eigenvectors(generator, data, with_eigenvectors, kind, center):
    features, ids = data
    targets = kinds(features, ids, generator)[kind]

    def run():
        return logme(features, targets, kind=kind, center=center)

    found, wanted = run(), with_eigenvectors(run)
    assert wanted.spectrum.reduced is None
    np.testing.assert_allclose(found.per_target, wanted.per_target, atol=1e-11)
    np.testing.assert_allclose(found.ratio, wanted.ratio, rtol=1e-6)
    np.testing.assert_allclose(found.over_base_rates.gain, wanted.over_base_rates.gain, atol=1e-10)
    np.testing.assert_allclose(found.weights, wanted.weights, atol=1e-8 * np.abs(wanted.weights).max())
    np.testing.assert_allclose(found.block_scores, wanted.block_scores, atol=1e-4 * wanted.standard_error)
    np.testing.assert_allclose(found.predict_variance(features[:7]), wanted.predict_variance(features[:7]), rtol=1e-8)
    written = np.zeros((len(features), len(found.targets)))
    written[:] = np.eye(9)[targets] if kind == "classification" else targets
    predictions = [left_out_predictions(fitted, features, written) for fitted in (found, wanted)]
    np.testing.assert_allclose(predictions[0], predictions[1], atol=1e-6 * np.abs(written).max())


def test_few_targets_need_no_eigenvectors(data, monkeypatch):
    def never(self):
        raise AssertionError("eigenvectors were found")

    features, ids = data
    monkeypatch.setattr(Tridiagonal, "eigenvectors", property(never))
    found = logme(features, ids)
    assert found.spectrum.reduced is not None
    assert found.standard_error > 0


def test_a_pickle_finds_them_as_well(data):
    features, ids = data
    fitted = logme(features, ids)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_allclose(again.predict_variance(features[:4]), fitted.predict_variance(features[:4]), rtol=1e-9)
    np.testing.assert_allclose(again.over_base_rates.constant, fitted.over_base_rates.constant, atol=1e-7)


def test_labels_that_are_nearly_fitted_take_eigenvectors(generator):
    """Δ would be a small difference of large numbers."""
    features = generator.normal(size=(2 * DIM, DIM))
    y = features @ generator.normal(size=DIM)
    found = logme(features, y + 1e-3 * y.std() * generator.normal(size=2 * DIM), center=False)
    assert found.spectrum.reduced is None
    assert not found.unbounded


def test_features_that_hold_the_constant(generator, with_eigenvectors):
    features = np.column_stack([generator.normal(size=(3 * DIM, DIM)), np.ones(3 * DIM)])
    ids = np.arange(3 * DIM) % 3

    def run():
        return logme(features + 0.3 * np.eye(3, DIM + 1)[ids], ids)

    found, wanted = run(), with_eigenvectors(run)
    assert found.spectrum.reduced is not None
    np.testing.assert_allclose(found.over_base_rates.gain, wanted.over_base_rates.gain, atol=1e-10)
    np.testing.assert_allclose(found.per_target, wanted.per_target, atol=1e-11)


def test_the_null_model(generator, with_eigenvectors):
    """Labels that have nothing to do with the features: t is infinite for some of them, or all."""
    features, y = generator.normal(size=(3 * DIM, DIM)), generator.normal(size=(3 * DIM, 6))

    def run():
        return logme(features, y, kind="regression", center=False)

    found, wanted = run(), with_eigenvectors(run)
    assert np.isinf(wanted.ratio).any()
    np.testing.assert_allclose(found.ratio, wanted.ratio, rtol=1e-5)
    np.testing.assert_allclose(found.per_target, wanted.per_target, atol=1e-11)
    np.testing.assert_allclose(found.weights, wanted.weights, atol=1e-9)


def test_from_sums(generator, with_eigenvectors):
    features, ids = generator.normal(size=(3 * DIM, DIM)) + 5.0, np.arange(3 * DIM) % 4
    features[:, :4] += np.eye(4)[ids]
    statistics = Statistics("classification", list("abcd"))
    for block in range(5):
        statistics.update(features[block::5], ids[block::5], block=block)
    found, wanted = maximize_evidence(statistics), with_eigenvectors(lambda: maximize_evidence(statistics))
    assert found.spectrum.reduced is not None
    np.testing.assert_allclose(found.per_target, wanted.per_target, atol=1e-11)
    np.testing.assert_allclose(found.block_scores, wanted.block_scores, atol=1e-6 * wanted.standard_error)
