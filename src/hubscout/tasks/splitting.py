"""Seeded, stratified choices of rows: for splitting data that comes without splits, and for subsets.

Rows are put into one order in which every beginning has the classes in their right proportions (Sainte-Laguë
apportionment: the k-th row of a class of size n has the place (k + ½)/n). A longer beginning contains a shorter one,
so subsets of growing size are nested and work done on a small one is not lost.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hubscout.errors import TaskError
from hubscout.tasks.labels import is_missing

SPLIT_NAMES = ("train", "validation", "test")

_ALIASES = {
    "train": ("train", "training", "trn", "trainval"),
    "validation": ("validation", "valid", "val", "dev", "development"),
    "test": ("test", "testing", "tst", "heldout", "holdout"),
}
_CANONICAL = {alias: name for name, aliases in _ALIASES.items() for alias in aliases}


def canonical_split(name: object) -> str | None:
    """The name we use for a split, or None for a name that means none.

    >>> canonical_split("Dev"), canonical_split("trn"), canonical_split("fold-3")
    ('validation', 'train', None)
    """
    return _CANONICAL.get(str(name).strip().lower().replace("-", "").replace("_", ""))


def check_split(name: object) -> str:
    """The name we use for a split that the user named."""
    found = canonical_split(name)
    if found is None:
        raise TaskError(f"There is no split {name!r}. Known names: {known_split_names()}.")
    return found


def split_in_name(name: str) -> str | None:
    """The split that one word of a name speaks of; None where no word does, or several differ.

    >>> split_in_name("seg_train"), split_in_name("pets-dev"), split_in_name("train_or_test")
    ('train', 'validation', None)
    """
    words = {split for word in re.split(r"[^a-z]+", name.lower()) if (split := canonical_split(word)) is not None}
    return words.pop() if len(words) == 1 else None


def known_split_names() -> str:
    """Every name that is understood, for messages."""
    return "; ".join(f"{name} ({', '.join(aliases[1:])})" for name, aliases in _ALIASES.items())


def _proportional_order(strata: np.ndarray, generator: np.random.Generator, *, hold_back: bool) -> np.ndarray:
    """Rows in Sainte-Laguë order; with `hold_back`, one row of each stratum is not in it."""
    rows, places, ties = [], [], []
    values, inverse = np.unique(strata, return_inverse=True)
    sizes = np.bincount(inverse, minlength=len(values))
    by_stratum = np.split(np.argsort(inverse, kind="stable"), np.cumsum(sizes)[:-1])
    tie_breaks = generator.permutation(len(values))
    for members, tie_break in zip(by_stratum, tie_breaks, strict=True):
        count = len(members) - hold_back
        rows.append(generator.permutation(members)[:count])
        places.append((np.arange(count) + 0.5) / len(members))
        ties.append(np.full(count, tie_break))
    if not rows:
        return np.empty(0, dtype=np.int64)
    return np.concatenate(rows)[np.lexsort((np.concatenate(ties), np.concatenate(places)))]


def stratified_sample(strata: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Choose `n` rows, in ascending order; every stratum is kept if `n` allows, and the samples of one seed are nested.

    >>> strata = np.array([0] * 90 + [1] * 9 + [2])
    >>> np.bincount(strata[stratified_sample(strata, 20, seed=0)]).tolist()
    [17, 2, 1]
    """
    order = _proportional_order(strata, np.random.default_rng(seed), hold_back=False)
    # One row of each stratum comes first, whatever its share.
    _, first = np.unique(strata[order], return_index=True)
    is_first = np.zeros(len(order), dtype=bool)
    is_first[first] = True
    order = np.concatenate([order[is_first], order[~is_first]])
    return np.sort(order[:n])


def split_off(strata: np.ndarray, n: int, seed: int, groups: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Take `n` rows away in the proportions of the strata: the rows that stay, and those taken, in ascending order.

    Every stratum keeps at least one row, so that a class with one example stays with the models' training data;
    fewer than `n` rows are taken where that leaves no other way. With `groups`, an integer per row, rows of one group
    stay together, and about `n` are taken.

    >>> stay, taken = split_off(np.array([0, 0, 0, 0, 1]), 2, seed=0)
    >>> len(stay), len(taken), 4 in stay
    (3, 2, True)
    """
    if groups is None:
        order = _proportional_order(strata, np.random.default_rng(seed), hold_back=True)
        taken = np.sort(order[:n])
    else:
        taken = _whole_groups(strata, n, groups, np.random.default_rng(seed))
    return np.setdiff1d(np.arange(len(strata)), taken), taken


def group_numbers(values: Mapping[str, Sequence[Any]]) -> dict[str, np.ndarray]:
    """An integer for each row of each split, the same for rows of the same value; a row without one is by itself.

    >>> {split: numbers.tolist() for split, numbers in group_numbers({"train": ["ann", "bob", "ann", None]}).items()}
    {'train': [0, 1, 0, 2]}
    """
    numbers: dict[Any, int] = {}
    found: dict[str, np.ndarray] = {}
    for split, those in values.items():
        keys = [object() if is_missing(value) else str(value) for value in those]
        found[split] = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
    return found


def _whole_groups(strata: np.ndarray, n: int, groups: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Rows of groups that together come near to `n` rows in the proportions of the strata, in ascending order.

    Groups come in a random order; each is taken that brings the rows of its strata nearer to what is wanted of them,
    and leaves every stratum a row.
    """
    _, strata = np.unique(strata, return_inverse=True)
    sizes = np.bincount(strata).astype(np.float64)
    wanted, left, taken = sizes * (n / max(len(strata), 1)), sizes.copy(), []
    order = np.argsort(groups, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
    for place in generator.permutation(len(members)).tolist():
        found, counts = np.unique(strata[members[place]], return_counts=True)
        missing = wanted[found]
        nearer = (((missing - counts) ** 2 - missing**2) / sizes[found]).sum() < 0
        if nearer and (left[found] > counts).all():
            wanted[found] -= counts
            left[found] -= counts
            taken.append(members[place])
    return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *taken]))


def check_fraction(name: str, value: float) -> float:
    """A share of the rows to be split off: at least 0, less than 1."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or not 0 <= value < 1:
        raise TaskError(f"{name} must be a share of the rows, at least 0 and less than 1; it was {value!r}.")
    return float(value)
