from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau, weightedtau

from hubscout.errors import InputError
from hubscout.evaluation import kendall_tau, permutation_p_value, weighted_tau
from hubscout.metrics import Score

numbers = st.lists(st.integers(-5, 5), min_size=4, max_size=9)


@settings(max_examples=60, deadline=None)
@given(numbers, st.integers(0, 10**6))
def test_laws(reference, seed):
    scores = np.random.default_rng(seed).normal(size=len(reference)).round(1)
    for tau in (kendall_tau, weighted_tau):
        value = tau(scores, reference)
        assert -1 - 1e-12 <= value <= 1 + 1e-12
        assert tau(np.exp(scores), reference) == pytest.approx(value)
        assert tau(-scores, reference, score_better="lower") == pytest.approx(value)
        assert tau(scores, [-each for each in reference], better="lower") == pytest.approx(value)
    assert kendall_tau(reference, scores) == pytest.approx(kendall_tau(scores, reference))


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(2, 12), st.integers(1, 12))
def test_ties_and_weights_are_those_of_scipy(data, count, most):
    scores, reference = (
        np.array(data.draw(st.lists(st.integers(0, most), min_size=count, max_size=count)), dtype=float) for _ in "ab"
    )
    for ours, theirs in ((kendall_tau, kendalltau), (weighted_tau, weightedtau)):
        with np.errstate(all="ignore"):
            expected = theirs(scores, reference).statistic
        assert ours(scores, reference) == pytest.approx(np.nan_to_num(expected))


def test_many_models_are_compared_as_few_are():
    generator = np.random.default_rng(0)
    for count in (200, 201):
        scores, reference = generator.integers(0, 100, size=(2, count)).astype(float)
        assert weighted_tau(scores, reference) == pytest.approx(weightedtau(scores, reference).statistic)
        assert kendall_tau(scores, reference) == pytest.approx(kendalltau(scores, reference).statistic)


def weighted_by_loops(scores, reference):
    """The definition without ties: each exchange weighs 1/(r+1) + 1/(s+1), averaged over both rankings."""
    total = 0.0
    for by in (scores, reference):
        ranks = np.argsort(np.argsort(-np.asarray(by)))
        above = below = 0.0
        for i in range(len(scores)):
            for j in range(i):
                weight = 1 / (ranks[i] + 1) + 1 / (ranks[j] + 1)
                above += weight * np.sign((scores[i] - scores[j]) * (reference[i] - reference[j]))
                below += weight
        total += above / below / 2
    return total


def test_weighted_tau_agrees_with_the_definition():
    generator = np.random.default_rng(0)
    for _ in range(20):
        scores, reference = generator.normal(size=(2, 7))
        assert weighted_tau(scores, reference) == pytest.approx(weighted_by_loops(scores, reference))
        assert weighted_tau(scores, reference) == pytest.approx(weightedtau(scores, reference).statistic)
        assert kendall_tau(scores, reference) == pytest.approx(kendalltau(scores, reference).statistic)


def test_a_lower_is_better_reference_is_turned_round_before_ranking():
    scores, errors = [1, 2, 3, 4, 5], [0.5, 0.1, 0.4, 0.2, 0.3]
    right = weighted_tau(scores, errors, better="lower")
    assert right == weighted_tau(scores, [-error for error in errors])
    assert right != pytest.approx(-weighted_tau(scores, errors))


def test_a_side_of_ties_only_ranks_nothing():
    assert weighted_tau([1, 1, 1], [1, 2, 3]) == kendall_tau([1, 2, 3], [4, 4, 4]) == 0.0


def test_exact_p_value_counts_orders():
    scores, reference = [3, 1, 4, 2], [10, 20, 30, 40]
    observed = weightedtau(scores, reference).statistic
    orders = [weightedtau(order, reference).statistic for order in permutations(scores)]
    assert permutation_p_value(scores, reference) == np.mean(np.array(orders) >= observed - 1e-12)


def test_sampled_p_value():
    scores = np.arange(10.0)
    assert permutation_p_value(scores, scores) == pytest.approx(1 / 2001)
    assert permutation_p_value(-scores, scores) > 0.99
    generator = np.random.default_rng(0)
    values = [
        permutation_p_value(generator.normal(size=8), np.arange(8), permutations=60, seed=seed) for seed in range(60)
    ]
    assert 0.4 < np.mean(values) < 0.6  # uniform where there is nothing


def test_scores_bring_their_direction():
    scores = {"a": Score(0.1, higher_is_better=False), "b": Score(0.2, higher_is_better=False)}
    assert kendall_tau(scores, {"a": 90, "b": 80}) == 1.0


@pytest.mark.parametrize(
    ("scores", "reference", "options", "message"),
    [
        ([1, 2], [1, 2, 3], {}, "scores has 2 models, reference has 3"),
        ([1], [1], {}, "at least two models"),
        ({"a": 1, "b": 2}, {"a": 1, "c": 2}, {}, "share 1 of 2 and 2"),
        ({"a": 1, "b": 2}, [1, 2], {}, "both be mappings"),
        ([1, float("nan")], [1, 2], {}, "scores must be finite"),
        ([1, 2], [1, "x"], {}, "reference must be numbers"),
        ([1, 2], [1, 2], {"better": "larger"}, "better must be one of higher, lower; got 'larger'"),
    ],
)
def test_bad_input(scores, reference, options, message):
    with pytest.raises(InputError, match=message):
        weighted_tau(scores, reference, **options)
