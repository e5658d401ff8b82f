from __future__ import annotations

import numpy as np
import pytest

from hubscout.errors import InputError
from hubscout.evaluation import relative_at_k, top_k_accuracy

SCORES, ACCURACIES = [0.1, 0.4, 0.3, 0.2], [90.0, 80.0, 88.0, 60.0]


def test_best_model_among_the_first():
    assert [top_k_accuracy(SCORES, ACCURACIES, k) for k in (1, 2, 3, 4)] == [0, 0, 0, 1]


def test_relative_result():
    assert [relative_at_k(SCORES, ACCURACIES, k) for k in (1, 2, 3, 4)] == [80 / 90, 88 / 90, 88 / 90, 1.0]


def test_errors_go_the_other_way():
    errors = [0.2, 0.1, 0.4]
    assert top_k_accuracy([3, 2, 1], errors, 1, better="lower") == 0
    assert relative_at_k([3, 2, 1], errors, 1, better="lower") == 0.5
    assert relative_at_k([3, 2, 1], [0.2, 0.0, 0.4], 1, better="lower") == 0.0
    assert relative_at_k([1, 2, 1], [0.2, 0.0, 0.4], 1, better="lower") == 1.0


def test_it_never_falls_with_k():
    generator = np.random.default_rng(0)
    for _ in range(20):
        scores, results = generator.normal(size=8), generator.uniform(1, 2, size=8)
        values = [relative_at_k(scores, results, k) for k in range(1, 9)]
        assert values == sorted(values)
        assert values[-1] == 1.0


def test_a_tie_earns_nothing():
    assert top_k_accuracy([1, 1, 1], [10, 30, 20], 1) == 0
    assert relative_at_k([1, 1, 1], [10, 30, 20], 2) == 20 / 30


def test_bad_input():
    with pytest.raises(InputError, match="k must be a whole number from 1 to the number of models, 4; got 5"):
        top_k_accuracy(SCORES, ACCURACIES, 5)
    with pytest.raises(InputError, match="positive"):
        relative_at_k(SCORES, [-1.0, 2.0, 3.0, 4.0])
