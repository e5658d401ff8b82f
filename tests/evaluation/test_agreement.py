from __future__ import annotations

import numpy as np
import pytest

from hubscout.errors import InputError
from hubscout.evaluation import (
    bootstrap_interval,
    evaluate,
    kendall_tau,
    permutation_p_value,
    relative_at_k,
    top_k_accuracy,
    weighted_tau,
)

FOUR_SCORES, ACCURACIES = [0.1, 0.4, 0.3, 0.2], [90.0, 80.0, 88.0, 60.0]


def test_best_model_among_the_first():
    assert [top_k_accuracy(FOUR_SCORES, ACCURACIES, k) for k in (1, 2, 3, 4)] == [0, 0, 0, 1]


def test_relative_result():
    assert [relative_at_k(FOUR_SCORES, ACCURACIES, k) for k in (1, 2, 3, 4)] == [80 / 90, 88 / 90, 88 / 90, 1.0]


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
        top_k_accuracy(FOUR_SCORES, ACCURACIES, 5)
    with pytest.raises(InputError, match="positive"):
        relative_at_k(FOUR_SCORES, [-1.0, 2.0, 3.0, 4.0])


REFERENCE = {f"m{place}": value for place, value in enumerate([71.0, 74.5, 80.2, 78.8, 90.1, 85.0, 88.3, 69.9])}
SHIFTS = [0, 9, 1, 0, -8, 3, 0, 0]
SCORES = {name: value + shift for (name, value), shift in zip(REFERENCE.items(), SHIFTS, strict=True)}
QUICK = {"permutations": 100, "resamples": 100}


def test_it_says_what_the_single_functions_say():
    found = evaluate(SCORES, REFERENCE, **QUICK)
    assert found.n_models == 8
    assert found.kendall_tau == kendall_tau(SCORES, REFERENCE)
    assert found.weighted_tau == weighted_tau(SCORES, REFERENCE)
    assert found.p_value == permutation_p_value(SCORES, REFERENCE, permutations=100)
    assert found.top_k == {k: top_k_accuracy(SCORES, REFERENCE, k) for k in (1, 3, 5)}
    assert found.relative_at == {k: relative_at_k(SCORES, REFERENCE, k) for k in (1, 3, 5)}
    assert (found.best_model, found.chosen_model) == ("m4", "m6")
    assert found.weighted_tau_low <= found.weighted_tau <= found.weighted_tau_high
    assert found.warning is None
    assert found == evaluate(SCORES, REFERENCE, **QUICK)


def test_errors_as_reference():
    errors = {name: 100 - value for name, value in REFERENCE.items()}
    found, mirrored = evaluate(SCORES, errors, better="lower", **QUICK), evaluate(SCORES, REFERENCE, **QUICK)
    assert found.weighted_tau == pytest.approx(mirrored.weighted_tau)
    assert found.chosen_model == mirrored.chosen_model
    assert found.relative_at == {k: relative_at_k(SCORES, errors, k, better="lower") for k in (1, 3, 5)}


def test_models_that_one_side_does_not_know_are_named():
    found = evaluate({**SCORES, "new": 3.0}, {**REFERENCE, "old": 50.0}, **QUICK)
    assert found.left_out == ("new", "old")
    assert found.n_models == 8


def test_a_reference_below_zero_has_no_ratio():
    reference = {name: value - 80 for name, value in REFERENCE.items()}
    assert evaluate(SCORES, reference, **QUICK).relative_at == {}


def test_few_models_are_warned_about_in_text_too():
    found = evaluate([1, 2, 3], [1, 2, 3])
    assert "Only 3 models" in found.warning
    assert found.warning in str(found)


def test_the_interval_narrows_with_models_and_holds_the_value():
    generator = np.random.default_rng(0)
    widths = []
    for n in (10, 80):
        truth = generator.normal(size=n)
        low, high = bootstrap_interval(truth + 0.5 * generator.normal(size=n), truth, resamples=300)
        widths.append(high - low)
    assert widths[1] < 0.7 * widths[0]
    perfect = np.arange(9.0)
    assert bootstrap_interval(perfect, perfect, resamples=50) == pytest.approx((1.0, 1.0))


def test_bad_options():
    values = np.arange(5.0)
    with pytest.raises(InputError, match="resamples"):
        evaluate(values, values, resamples=0)
    with pytest.raises(InputError, match="permutations"):
        evaluate(values, values, permutations=0)
    with pytest.raises(InputError, match="level"):
        bootstrap_interval(values, values, level=1.0)
