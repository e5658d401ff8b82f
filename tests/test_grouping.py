"""Folds have the proportions of the whole, and never divide a group."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hubscout.grouping import stratified_folds


@given(st.lists(st.integers(0, 3), min_size=1, max_size=80), st.integers(1, 8), st.integers(1, 20), st.integers(0, 3))
@settings(deadline=None)
def test_groups_are_never_divided_and_no_fold_is_empty(strata: list[int], folds: int, count: int, seed: int) -> None:
    groups = np.random.default_rng(seed).integers(0, count, len(strata))
    fold = stratified_folds(np.array(strata), folds, seed, groups)
    assert all(len(set(fold[groups == group])) == 1 for group in set(groups))
    assert set(fold) == set(range(min(folds, len(set(groups)))))


def test_folds_of_groups_are_of_one_size_and_have_the_proportions_of_the_classes() -> None:
    generator = np.random.default_rng(0)
    groups = generator.integers(0, 300, 3000)
    strata = (generator.random(3000) < 0.1 + 0.3 * (groups % 3 == 0)).astype(int)
    fold = stratified_folds(strata, 5, 0, groups)
    assert np.ptp(np.bincount(fold)) <= 30
    shares = [strata[fold == k].mean() for k in range(5)]
    assert np.ptp(shares) < 0.01
