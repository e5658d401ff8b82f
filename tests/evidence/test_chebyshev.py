"""Sums over points against sums over directions."""

import math

import numpy as np
import pytest
import torch

from hubscout.evidence import chebyshev
from hubscout.evidence.chebyshev import points, polynomials, reach


@pytest.fixture(params=[1.0, 1e-3, 1e-5], ids=["even", "decaying", "steep"])
def problem(request, generator):
    """G, rows b of four targets and the constant, and both in the eigenvectors of G."""
    features = generator.normal(size=(150, 30)) * np.geomspace(1, request.param, 30) + 0.3
    targets = np.column_stack([features[:, :4] @ generator.normal(size=(4, 4)), np.ones(150)])
    gram, rows = features.T @ features, targets.T @ features
    values, vectors = np.linalg.eigh(gram)
    return torch.from_numpy(gram), torch.from_numpy(rows), values, rows @ vectors, vectors


def errors(problem, middle, away):
    """Of log det, of the forms of targets, of those with the constant, and of the weights, relative."""
    gram, rows, values, coordinates, vectors = problem
    found, t = points(gram, rows, middle), middle * math.exp(away)
    kept = found.values / (found.values + math.exp(away))
    log_det = found.multiplicities @ np.log1p(found.values * math.exp(-away)) + found.level
    own, crossed = found.squares @ kept, found.crossed @ kept
    solved = coordinates / (values + t)
    forms, mixed = (coordinates * solved).sum(1), solved @ coordinates[-1]
    weights = solved[:-1] @ vectors.T
    return (
        abs(log_det - np.log1p(values / t).sum()),
        (abs(own - forms) / forms).max(),
        (abs(crossed - mixed) / np.sqrt(forms * forms[-1])).max(),
        (
            np.linalg.norm(found.weights(np.full(4, t)).numpy() - weights, axis=1) / np.linalg.norm(weights, axis=1)
        ).max(),
    )


@pytest.mark.parametrize("away", [-1.0, -0.9, -0.3, 0.0, 0.4, 1.0])
@pytest.mark.parametrize("middle", [0.05, 1.0, 40.0])
def test_sums_over_points_are_those_over_directions(problem, middle, away):
    assert max(errors(problem, middle, away * reach())) < 2e-11


@pytest.mark.parametrize(("step", "strides"), [(4, 4), (3, 9), (9, 4)])
def test_a_lower_degree_reaches_less_far(problem, monkeypatch, step, strides):
    widest = reach()
    monkeypatch.setattr(chebyshev, "STEP", step)
    monkeypatch.setattr(chebyshev, "STRIDES", strides)
    assert reach() < widest
    assert max(errors(problem, 1.0, reach())) < 2e-11
    assert max(errors(problem, 1.0, -reach())) < 2e-11


def test_out_of_reach_they_are_not(problem):
    assert max(errors(problem, 1.0, -2.5 * reach())) > 1e-9


def test_a_null_model_has_no_weights(problem):
    gram, rows, *_ = problem
    found = points(gram, rows, 1.0).weights(np.array([1.0, np.inf, 2.0, np.inf])).numpy()
    assert (found[[1, 3]] == 0).all()
    assert (found[[0, 2]] != 0).any(1).all()


def test_polynomials_are_those_of_chebyshev(generator):
    vectors, _ = np.linalg.qr(generator.normal(size=(12, 12)))
    s = np.linspace(0.0, 1.0, 12)
    powers, strides = polynomials(torch.from_numpy(2 * (vectors * s) @ vectors.T))
    for stack, first in ((powers, 1), (strides, chebyshev.STEP)):
        for index, matrix in enumerate(stack.numpy()):
            expected = np.cos((index + 1) * first * np.arccos(2 * s - 1))
            np.testing.assert_allclose(matrix, (vectors * expected) @ vectors.T, atol=1e-12)


def test_without_a_factor_there_are_no_points():
    assert points(-torch.eye(5, dtype=torch.float64), torch.ones(2, 5, dtype=torch.float64), 0.5) is None
