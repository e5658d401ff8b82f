import json
from dataclasses import asdict

import numpy as np
import pytest

from hubscout.evidence import logme
from hubscout.ranking.fixed_points import MARGIN, POINTS, convergence_of
from hubscout.runs.row import Convergence


@pytest.fixture
def features() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 12, 400)
    return np.eye(12)[labels] @ generator.standard_normal((12, 8)) + generator.standard_normal((400, 8)), labels


def test_the_iteration_stands_still_at_the_fixed_points(features: tuple[np.ndarray, np.ndarray]) -> None:
    found = convergence_of(logme(*features))
    assert found is not None
    assert len(found.targets) == 6
    assert len(found.t) == POINTS
    for mapped, fixed in zip(found.mapped, found.fixed_points, strict=True):
        assert fixed is not None
        at_fixed_point = np.exp(np.interp(np.log(fixed), np.log(found.t), np.log(mapped)))
        assert at_fixed_point == pytest.approx(fixed, rel=0.02)
        assert found.t[0] < fixed / MARGIN * 1.01
        assert found.t[-1] > fixed * MARGIN * 0.99


def test_the_best_and_the_worst_explained_target_are_among_them(features: tuple[np.ndarray, np.ndarray]) -> None:
    evidence = logme(*features)
    found = convergence_of(evidence)
    gains = dict(zip(evidence.targets, evidence.per_target_gain, strict=True))
    assert found.targets[0] == str(max(gains, key=gains.get))
    assert found.targets[-1] == str(min(gains, key=gains.get))


def test_it_survives_json(features: tuple[np.ndarray, np.ndarray]) -> None:
    found = convergence_of(logme(*features))
    assert Convergence.from_json(json.loads(json.dumps(asdict(found)))) == found


def test_nothing_without_a_spectrum_or_without_a_finite_t(features: tuple[np.ndarray, np.ndarray]) -> None:
    assert convergence_of(logme(*features).without_spectrum()) is None
    balanced = np.array([0, 1] * 50)
    alternating = np.array([1.0, 1.0, -1.0, -1.0] * 25)[:, None]  # orthogonal to both one-hot columns
    assert convergence_of(logme(alternating, balanced)) is None
