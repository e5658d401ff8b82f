"""Things that belong together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import TypeVar

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
