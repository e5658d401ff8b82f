"""LogME against an implementation that nobody here wrote, and the paper's solvers against each other."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.linear_model import BayesianRidge

from hubscout.evidence import Statistics, logme, maximize_evidence


def bayesian_ridge(features, y):
    """Log evidence a sample by scikit-learn, whose names for α and β are swapped, run until nothing moves any more."""
    precision = 1 / np.var(y)
    model = BayesianRidge(
        alpha_init=precision,
        lambda_init=precision * (features**2).sum() / len(y),  # its own start, 1, ignores the scale of the features
        alpha_1=0,
        alpha_2=0,
        lambda_1=0,
        lambda_2=0,
        fit_intercept=False,
        compute_score=True,
        tol=1e-13 * np.linalg.norm(y) / np.linalg.norm(features, 2),
        max_iter=3000,
    ).fit(features, y)
    return model.scores_[-1] / len(y), model.lambda_, model.alpha_


def regression(generator, n, dim, noise=1.0):
    features = generator.normal(size=(n, dim))
    return features, features @ generator.normal(size=dim) * dim**-0.5 + noise * generator.normal(size=n)


def regimes():
    generator = np.random.default_rng(7)
    more = regression(generator, 200, 30)
    fewer = regression(generator, 60, 150, noise=2.0)
    square = regression(generator, 80, 80)
    thin = generator.normal(size=(60, 20))
    low_rank = more[0][:, :10] @ generator.normal(size=(10, 30))
    rare = (generator.random(1000) < 0.01).astype(float)
    return {
        "n > D": more,
        "n < D": fewer,
        "n = D": square,
        "rank deficient": (low_rank, more[1]),
        "rank deficient, n < D": (thin @ generator.normal(size=(20, 150)), thin[:, 0] + generator.normal(size=60)),
        "duplicated": (np.tile(more[0], 3), more[1]),
        "duplicated, n < D": (np.tile(fewer[0][:, :75], 2), fewer[1]),
        "padded": (np.pad(more[0], ((0, 0), (0, 40))), more[1]),
        "padded past n": (np.pad(more[0], ((0, 0), (0, 300))), more[1]),
        "features x 1e6": (1e6 * more[0], more[1]),
        "features x 1e-6": (1e-6 * more[0], more[1]),
        "features x 1e6, n < D": (1e6 * fewer[0], fewer[1]),
        "labels x 1e4": (more[0], 1e4 * more[1]),
        "labels x 1e-4": (more[0], 1e-4 * more[1]),
        "labels x 1e-4, n < D": (fewer[0], 1e-4 * fewer[1]),
        "steep spectrum": (more[0] * np.logspace(0, -4, 30), more[1]),
        "one dimension": (more[0][:, :1], more[1]),
        "1% positives": (generator.normal(size=(1000, 20)) + 1.5 * rare[:, None] * np.linspace(0, 1, 20), rare),
        "diabetes": load_diabetes(return_X_y=True),
    }


@pytest.mark.parametrize("name", regimes())
def test_newton_is_bayesian_ridge_at_convergence(name):
    features, y = regimes()[name]
    score, alpha, beta = bayesian_ridge(features, y)
    result = logme(features, y.astype(float), center=False)
    assert result.converged
    assert result.score == pytest.approx(score, abs=1e-9)
    assert result.beta[0] == pytest.approx(beta, rel=1e-5)
    assert result.alpha[0] == pytest.approx(alpha, rel=1e-4)


@pytest.mark.parametrize("name", regimes())
def test_sums_give_what_arrays_give(name):
    features, y = regimes()[name]
    statistics = Statistics("regression", ["y"]).update(features, y.astype(float))
    for center in (False, True):
        expected = logme(features, y.astype(float), center=center).score
        assert maximize_evidence(statistics, center=center).score == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("solver", ["naive", "mackay", "fixed-point"])
@pytest.mark.parametrize("name", regimes())
def test_the_papers_solvers_agree(name, solver):
    features, y = regimes()[name]
    reference = logme(features, y.astype(float), center=False)
    result = logme(features, y.astype(float), center=False, solver=solver)
    if solver != "fixed-point" and name == "features x 1e6, n < D" and not result.converged:
        # From α = β = 1 the first step is n - γ = 0 but for rounding, on which it depends whether they get anywhere.
        return
    assert result.converged
    assert result.score == pytest.approx(reference.score, abs=1e-6)
    np.testing.assert_allclose(result.weights, reference.weights, rtol=1e-3, atol=1e-6 * abs(reference.weights).max())


@pytest.mark.parametrize("load", [load_iris, load_breast_cancer, load_digits])
def test_every_class_of_real_data(load):
    features, ids = load(return_X_y=True)
    result = logme(features, ids)
    for index, label in enumerate(np.unique(ids)):
        score, _, _ = bayesian_ridge(features, (ids == label).astype(float))
        assert result.per_target[index] == pytest.approx(score, abs=1e-9)
    assert result.score == pytest.approx(result.per_target.mean(), rel=1e-15)


def test_golden_values():
    """Fixed for good, so that no later change moves scores that people have written down."""
    assert logme(*load_iris(return_X_y=True)).score == pytest.approx(-0.16006024341738, abs=1e-10)
    assert logme(*load_digits(return_X_y=True)).score == pytest.approx(0.27027762737695, abs=1e-10)
    assert logme(*load_digits(return_X_y=True), center=True).score == pytest.approx(0.27485262954882, abs=1e-10)
    assert logme(*load_diabetes(return_X_y=True), center=False).score == pytest.approx(-6.523563962249, abs=1e-10)
