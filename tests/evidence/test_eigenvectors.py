"""Eigenvectors in factors against NumPy's, and tridiagonal matrices against the same written out."""

import pickle

import numpy as np
import pytest

from hubscout.evidence import Statistics, eigenvectors, logme, maximize_evidence
from hubscout.evidence.eigenvectors import LENGTH, SMALLEST, Factored, Tridiagonal, WrittenOut, symmetric_eigh
from hubscout.evidence.left_out import left_out_predictions

SIZES = {"written out": 40, "factored": SMALLEST + 13}


def matrices(size, generator):
    features = generator.normal(size=(2 * size, size))
    low_rank = features[:, : size // 2] @ generator.normal(size=(size // 2, size))
    repeated = np.linalg.qr(generator.normal(size=(size, size)))[0]
    return {
        "full": features.T @ features,
        "rank deficient": low_rank.T @ low_rank,
        "repeated": repeated @ np.diag(np.repeat([1.0, 5.0], [size // 2, size - size // 2])) @ repeated.T,
        "diagonal": np.diag(np.arange(size, dtype=float)),
        "zero": np.zeros((size, size)),
        "large": 1e12 * (features.T @ features),
        "small": 1e-12 * (features.T @ features),
    }


@pytest.mark.parametrize("name", ["full", "rank deficient", "repeated", "diagonal", "zero", "large", "small"])
@pytest.mark.parametrize("form", SIZES)
def test_against_numpy(form, name, generator):
    size = SIZES[form]
    matrix = matrices(size, generator)[name]
    upper = np.asfortranarray(np.triu(matrix) + np.tril(np.full_like(matrix, 7.0), -1))
    before = upper.copy()
    values, vectors = symmetric_eigh(upper, overwrite=False)
    np.testing.assert_array_equal(upper, before)
    assert isinstance(vectors, Factored if form == "factored" else WrittenOut)
    scale = max(np.abs(matrix).max(), 1e-300) * size
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix), atol=1e-13 * scale)
    whole = vectors.matrix
    np.testing.assert_allclose(whole.T @ whole, np.eye(size), atol=1e-12)
    np.testing.assert_allclose((whole * values) @ whole.T, matrix, atol=1e-13 * scale)


@pytest.mark.parametrize("form", SIZES)
def test_products_are_those_with_the_matrix(form, generator):
    size = SIZES[form]
    _, vectors = symmetric_eigh(np.asfortranarray(matrices(size, generator)["full"]))
    part = vectors.since(11)
    rows, coefficients = generator.normal(size=(3, size)), generator.normal(size=(3, size - 11))
    np.testing.assert_allclose(part.coordinates(rows), rows @ vectors.matrix[:, 11:], atol=1e-11)
    np.testing.assert_allclose(part.combine(coefficients), coefficients @ vectors.matrix[:, 11:].T, atol=1e-11)
    np.testing.assert_allclose(part.matrix, vectors.matrix[:, 11:], atol=1e-14)


DIM = eigenvectors.SMALLEST_SIZE + 13
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
            patch.setattr(eigenvectors, "FEW", 10**9)
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


PIECES = [1, 2, LENGTH, LENGTH + 60, 2 * LENGTH + 1, 5 * LENGTH + 7]


def example(generator, size):
    """Positive definite, with a condition number of about a million."""
    beside = generator.normal(size=max(size - 1, 0)) * np.geomspace(1e3, 1e-3, max(size - 1, 0))
    diagonal = np.geomspace(1e-3, 1e-6, size) + np.abs(np.append(beside, 0)) + np.abs(np.append(0, beside))
    whole = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    return Tridiagonal(diagonal, beside), whole, generator.normal(size=(size, 3))


@pytest.mark.parametrize("size", PIECES)
def test_forms_on_a_grid(generator, size):
    matrix, whole, columns = example(generator, size)
    grid = np.geomspace(1e-4, 1e6, 7)
    form, second = matrix.on_grid(columns, grid)
    with_last, with_last_second = matrix.on_grid(columns, grid, with_last=True)
    for place, t in enumerate(grid):
        solved = np.linalg.solve(whole + t * np.eye(size), columns)
        np.testing.assert_allclose(form[:, place], (columns * solved).sum(0), rtol=1e-8)
        np.testing.assert_allclose(second[:, place], (solved**2).sum(0), rtol=1e-6)
        scale = np.abs(columns).T @ np.abs(solved[:, -1])
        np.testing.assert_allclose(with_last[:, place], columns.T @ solved[:, -1], atol=1e-8 * scale.max())
        scale = np.abs(solved).T @ np.abs(solved[:, -1])
        np.testing.assert_allclose(with_last_second[:, place], solved.T @ solved[:, -1], atol=1e-6 * scale.max())


@pytest.mark.parametrize("size", PIECES[1:])
def test_solutions(generator, size):
    matrix, whole, columns = example(generator, size)
    t = np.array([1e-3, 1.0, 1e3])
    others = generator.normal(size=columns.shape)
    first, first_again, second, second_again = matrix.solve(t, columns, others, repeats=2)
    for place, ratio in enumerate(t):
        shifted = whole + ratio * np.eye(size)
        for found, again, right in ((first, first_again, columns), (second, second_again, others)):
            np.testing.assert_allclose(shifted @ found[:, place], right[:, place], atol=1e-6)
            np.testing.assert_allclose(shifted @ again[:, place], found[:, place], atol=1e-6 * np.abs(found).max())
    np.testing.assert_allclose(whole @ matrix.solve_all(columns), columns, atol=1e-6)


def test_a_matrix_that_is_not_positive_definite():
    matrix = Tridiagonal(np.array([1.0, 1.0, 1.0]), np.array([2.0, 0.0]))
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        matrix.solve(np.array([0.5]), np.ones((3, 1)))
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        matrix.solve_all(np.ones((3, 1)))


def test_eigenvectors_are_those_of_the_whole(generator):
    matrix, whole, _ = example(generator, 50)
    vectors = matrix.eigenvectors
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(50), atol=1e-12)
    turned = vectors.T @ whole @ vectors
    np.testing.assert_allclose(turned, np.diag(np.diag(turned)), atol=1e-10)
    assert (np.diff(np.diag(turned)) >= -1e-10).all()
