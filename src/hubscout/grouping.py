"""Things that belong together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import TypeVar

import numpy as np

Key = TypeVar("Key", bound=Hashable)
One = TypeVar("One")


def grouped(pairs: Iterable[tuple[Key, One]]) -> dict[Key, list[One]]:
    """What comes under each key, keys and things in the order in which they came.

    >>> grouped([("b", 1), ("a", 2), ("b", 3)])
    {'b': [1, 3], 'a': [2]}
    """
    groups: dict[Key, list[One]] = defaultdict(list)
    for key, one in pairs:
        groups[key].append(one)
    return dict(groups)


def stratified_folds(strata: np.ndarray, folds: int, seed: int, groups: np.ndarray | None = None) -> np.ndarray:
    """A fold, 0 to `folds` - 1, for each sample: as many of every stratum in each as can be.

    With `groups`, an integer per sample, samples of one group are in one fold; there are as many folds as groups where
    there are fewer groups.

    >>> stratified_folds(np.array([0, 0, 0, 0, 1, 1]), 2, seed=0).tolist()
    [0, 1, 1, 0, 1, 0]
    >>> stratified_folds(np.array([0, 0, 0, 0, 1, 1]), 2, seed=0, groups=np.array([7, 7, 8, 8, 7, 8])).tolist()
    [0, 0, 1, 1, 0, 1]
    """
    generator = np.random.default_rng(seed)
    if groups is None:
        order = generator.permutation(len(strata))
        order = order[np.argsort(np.asarray(strata)[order], kind="stable")]
        fold = np.empty(len(strata), dtype=np.int64)
        fold[order] = np.arange(len(strata)) % folds
        return fold
    _, strata = np.unique(strata, return_inverse=True)
    _, group = np.unique(groups, return_inverse=True)
    pairs, counts = np.unique(np.stack([group, strata]), axis=1, return_counts=True)
    starts = np.searchsorted(pairs[0], np.arange(pairs[0].max() + 2))
    sizes, of_group = np.bincount(strata), np.bincount(group)
    filled = np.zeros((min(folds, len(of_group)), len(sizes)))
    rows = np.zeros(len(filled))
    chosen = np.empty(len(of_group), dtype=np.int64)
    order = generator.permutation(len(of_group))
    # Large groups first: small ones even out what they leave. Each goes where there is least of what it brings.
    for one in order[np.argsort(-of_group[order], kind="stable")].tolist():
        part = slice(starts[one], starts[one + 1])
        brings = counts[part] / sizes[pairs[1, part]]
        there = filled[:, pairs[1, part]] @ brings
        best = chosen[one] = np.lexsort((rows, there))[0]
        filled[best, pairs[1, part]] += counts[part]
        rows[best] += of_group[one]
    return chosen[group]
