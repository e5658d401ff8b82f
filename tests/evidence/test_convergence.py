import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris

from hubscout.errors import InputError
from hubscout.evidence import convergence_margin, fixed_point_map, logme


def test_the_map_is_one_step_of_mackay(generator):
    """Theorem 1, against α and β of the algorithm itself."""
    features = generator.normal(size=(40, 6))
    y = features[:, 0] + generator.normal(size=40)
    result = logme(features, y, center=False)
    for alpha, beta in ((1.0, 1.0), (3.0, 0.2), (0.01, 5.0)):
        A = alpha * np.eye(6) + beta * features.T @ features
        m = beta * np.linalg.solve(A, features.T @ y)
        gamma = beta * np.trace(np.linalg.solve(A, features.T @ features))
        expected = (gamma / (m @ m)) / ((40 - gamma) / ((features @ m - y) ** 2).sum())
        assert fixed_point_map(result, alpha / beta)[0] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("load", [load_iris, load_digits])
def test_the_solution_is_a_fixed_point(load):
    result = logme(*load(return_X_y=True))
    np.testing.assert_allclose(np.diag(fixed_point_map(result, result.ratio)), result.ratio, rtol=1e-6)
    assert fixed_point_map(result, np.ones((4, 3))).shape == (len(result.targets), 4, 3)


def test_the_condition_is_the_sum_of_theorem_2(generator):
    features = generator.normal(size=(12, 4))
    y = features[:, 0] + generator.normal(size=12)
    U, singular, _ = np.linalg.svd(features)
    z, squares = (U.T @ y) ** 2, np.concatenate([singular**2, np.zeros(8)])
    total = sum((z[i] - z[j]) * (squares[i] - squares[j]) for i in range(12) for j in range(12))
    result = logme(features, y, center=False)
    assert convergence_margin(result)[0] == pytest.approx(total / (2 * (y @ y) * squares.sum()), rel=1e-9)
    assert result.convergence_guaranteed.tolist() == [total > 0]


def test_the_condition_holds_for_meaningful_labels_and_fails_for_others(generator):
    assert logme(*load_digits(return_X_y=True)).convergence_guaranteed.all()
    features = np.eye(20)[:, :5]
    y = np.ones(20)
    y[:5] = 0.1
    result = logme(features, y, center=False)
    assert not result.convergence_guaranteed.any()
    assert np.isinf(result.ratio[0])
    assert not logme(generator.normal(size=(5, 9)), np.arange(5.0)).convergence_guaranteed.any(), "r = n"


def test_what_cannot_be_mapped():
    result = logme(*load_iris(return_X_y=True))
    with pytest.raises(InputError, match="t must be positive"):
        fixed_point_map(result, 0.0)
    with pytest.raises(InputError, match="keep_spectrum=True"):
        fixed_point_map(result.without_spectrum(), 1.0)
