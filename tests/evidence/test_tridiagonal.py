"""A tridiagonal matrix against the same matrix written out, at sizes of one piece, of a few and of many."""

import numpy as np
import pytest

from hubscout.evidence.tridiagonal import LENGTH, Tridiagonal

SIZES = [1, 2, LENGTH, LENGTH + 60, 2 * LENGTH + 1, 5 * LENGTH + 7]


def example(generator, size):
    """Positive definite, with a condition number of about a million."""
    beside = generator.normal(size=max(size - 1, 0)) * np.geomspace(1e3, 1e-3, max(size - 1, 0))
    diagonal = np.geomspace(1e-3, 1e-6, size) + np.abs(np.append(beside, 0)) + np.abs(np.append(0, beside))
    whole = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    return Tridiagonal(diagonal, beside), whole, generator.normal(size=(size, 3))


@pytest.mark.parametrize("size", SIZES)
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


@pytest.mark.parametrize("size", SIZES[1:])
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
