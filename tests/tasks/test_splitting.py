from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubscout.errors import TaskError
from hubscout.tasks.splitting import canonical_split, check_fraction, split_off, stratified_sample

groups_of = st.lists(st.integers(0, 5), min_size=1, max_size=120).map(lambda values: np.array(values))


@given(groups_of, st.integers(0, 120), st.integers(0, 3))
def test_split_off_divides_the_rows_and_leaves_every_class_one(groups: np.ndarray, n: int, seed: int) -> None:
    stay, taken = split_off(groups, n, seed)
    assert sorted([*stay, *taken]) == list(range(len(groups)))
    assert set(groups[stay]) == set(groups)
    assert len(taken) == min(n, len(groups) - len(set(groups)))


@given(groups_of, st.integers(0, 120), st.integers(1, 30), st.integers(0, 3))
def test_groups_are_never_divided(strata: np.ndarray, n: int, count: int, seed: int) -> None:
    groups = np.random.default_rng(count).integers(0, count, len(strata))
    stay, taken = split_off(strata, n, seed, groups)
    assert sorted([*stay, *taken]) == list(range(len(strata)))
    assert not set(groups[stay]) & set(groups[taken])
    assert set(strata[stay]) == set(strata)


def test_about_as_many_rows_as_asked_for_are_taken_by_whole_groups_in_the_proportions_of_the_classes() -> None:
    generator = np.random.default_rng(0)
    groups = generator.integers(0, 200, 2000)
    strata = (groups * 7 + generator.integers(0, 3, 2000)) % 10
    for seed in range(5):
        _, taken = split_off(strata, 400, seed, groups)
        shares = np.bincount(strata[taken], minlength=10) / np.bincount(strata)
        assert 360 <= len(taken) <= 460
        assert shares.min() > 0.12
        assert shares.max() < 0.3


@given(groups_of, st.integers(1, 120), st.integers(0, 3))
def test_sample_keeps_every_class_if_it_can_and_is_nested(groups: np.ndarray, n: int, seed: int) -> None:
    small, large = stratified_sample(groups, n, seed), stratified_sample(groups, n + 7, seed)
    assert len(small) == min(n, len(groups)) == len(set(small))
    assert set(small) <= set(large)
    if n >= len(set(groups)):
        assert set(groups[small]) == set(groups)


def test_sample_has_the_proportions_of_the_classes() -> None:
    groups = np.repeat([0, 1, 2], [600, 300, 100])
    np.testing.assert_array_equal(np.bincount(groups[stratified_sample(groups, 100, seed=1)]), [60, 30, 10])
    _, taken = split_off(groups, 200, seed=1)
    np.testing.assert_array_equal(np.bincount(groups[taken]), [120, 60, 20])


def test_seeds_differ_and_repeat() -> None:
    groups = np.repeat([0, 1], 50)
    first = stratified_sample(groups, 20, seed=0)
    np.testing.assert_array_equal(first, stratified_sample(groups, 20, seed=0))
    assert not np.array_equal(first, stratified_sample(groups, 20, seed=1))


@pytest.mark.parametrize(
    ("name", "split"), [("VAL", "validation"), ("dev", "validation"), ("Test ", "test"), ("x", None)]
)
def test_names_of_splits(name: str, split: str | None) -> None:
    assert canonical_split(name) == split


@pytest.mark.parametrize("value", [1, -0.1, float("nan"), "0.1"])
def test_shares_are_checked(value: float) -> None:
    with pytest.raises(TaskError, match="test_size"):
        check_fraction("test_size", value)
