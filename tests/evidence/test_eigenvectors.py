"""Eigenvectors in factors against NumPy's, at sizes on both sides of where they are used."""

import numpy as np
import pytest

from hubscout.evidence.eigenvectors import SMALLEST, Factored, WrittenOut, symmetric_eigh

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
