"""Sequences that read a row when it is asked for."""

from __future__ import annotations

import bisect
from abc import abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from hubscout.tasks.task_fingerprint import content_digest


class LazyRows(Sequence[Any]):
    """A sequence that reads a row when it is asked for; a slice is a choice of rows, none of which is read."""

    @abstractmethod
    def read(self, row: int) -> Any:
        """The row at a place from 0 to the length."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Rows(self, np.arange(len(self))[index])
        return self.read(range(len(self))[index])


class Rows(LazyRows):
    """Some rows of another sequence, in the order of `rows`.

    >>> list(Rows("abcd", [3, 0]))
    ['d', 'a']
    """

    def __init__(self, base: Sequence[Any], rows: Sequence[int] | np.ndarray) -> None:
        chosen = np.asarray(rows, dtype=np.int64)
        # A selection of a selection is one selection: access stays one step deep.
        self.base: Sequence[Any] = base.base if isinstance(base, Rows) else base
        self.rows: np.ndarray = base.rows[chosen] if isinstance(base, Rows) else chosen

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, row: int) -> Any:
        return self.base[int(self.rows[row])]

    def digest(self, row: int) -> bytes:
        """The content digest of one row."""
        return _digest(self.base, int(self.rows[row]))


class Chained(LazyRows):
    """Several sequences, one after another.

    >>> list(Chained(["ab", "c"]))
    ['a', 'b', 'c']
    """

    def __init__(self, parts: Sequence[Sequence[Any]]) -> None:
        self.parts = list(parts)
        self._ends = list(accumulate(len(part) for part in self.parts))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _locate(self, row: int) -> tuple[Sequence[Any], int]:
        part = bisect.bisect_right(self._ends, row)
        return self.parts[part], row - (self._ends[part - 1] if part else 0)

    def read(self, row: int) -> Any:
        part, place = self._locate(row)
        return part[place]

    def digest(self, row: int) -> bytes:
        """The content digest of one row."""
        return _digest(*self._locate(row))


class Pairs(LazyRows):
    """Two equally long sequences, row by row.

    >>> Pairs(["a"], ["b"])[0]
    ('a', 'b')
    """

    def __init__(self, first: Sequence[Any], second: Sequence[Any]) -> None:
        self.first, self.second = first, second

    def __len__(self) -> int:
        return len(self.first)

    def read(self, row: int) -> tuple[Any, Any]:
        return (self.first[row], self.second[row])


def join(parts: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """One sequence out of several; lists stay lists."""
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, list) for part in parts):
        return [value for part in parts for value in part]
    return Chained(parts)


def _digest(values: Sequence[Any], row: int) -> bytes:
    own = getattr(values, "digest", None)
    return content_digest(values[row]) if own is None else own(row)
