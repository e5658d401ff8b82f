"""From batches in whatever order they were run to whole shards, and where shards are kept until somebody reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hubscout.errors import CacheError, InputError

FINAL = ""
"""The name of the final features, beside the names of tapped layers."""

LOGITS = "@logits"
"""The name under which source logits are kept; no layer is called so."""


@dataclass(frozen=True)
class ShardData:
    """Arrays of one shard, in the order of `rows`, the samples of the split that are in it.

    `arrays` maps layer names (and `LOGITS`) to float32 matrices: one row per sample, or one row per word for tagging.
    `skipped` are the samples that could not be read.
    """

    index: int
    rows: np.ndarray
    arrays: Mapping[str, np.ndarray]
    skipped: tuple[int, ...] = ()


class Store(Protocol):
    """A place for shards."""

    def put(self, data: ShardData) -> None:
        """Keep a shard."""

    def read(self, index: int, name: str) -> np.ndarray:
        """One array of one shard."""

    def has(self, index: int, name: str) -> bool:
        """Whether the shard is there and has this array."""


class MemoryStore:
    """Shards in this process's memory; with `keep=False` none are kept, for an extraction of statistics alone."""

    def __init__(self, *, keep: bool = True) -> None:
        self._keep = keep
        self._shards: dict[int, ShardData] = {}

    def put(self, data: ShardData) -> None:
        """Keep a shard."""
        if self._keep:
            self._shards[data.index] = data

    def read(self, index: int, name: str) -> np.ndarray:
        """One array of one shard."""
        if not self._keep:
            raise InputError("The features were not kept: extract with keep_features=True or with a cache.")
        return self._shards[index].arrays[name]

    def has(self, index: int, name: str) -> bool:
        """Whether the shard is there and has this array."""
        return index in self._shards and name in self._shards[index].arrays


def word_positions(counts: Sequence[int] | np.ndarray, order: np.ndarray) -> np.ndarray:
    """Where the words of sentences lie when the sentences, of `counts` words each, are put into `order`.

    >>> word_positions([2, 1, 3], np.array([2, 0, 1]))
    array([3, 4, 5, 0, 1, 2])
    """
    counts = np.asarray(counts, dtype=np.int64)
    starts, taken = (np.cumsum(counts) - counts)[order], counts[order]
    # Each sentence counts from its start on: 0, 1, ... less what came before it.
    return np.repeat(starts - (np.cumsum(taken) - taken), taken) + np.arange(taken.sum())


@dataclass
class WithFallback:
    """The cache, until it cannot be written; from then on new shards go to `spare`, and the run goes on."""

    cache: Store
    spare: Store
    tell: Callable[[str], None]
    broken: bool = False

    def put(self, data: ShardData) -> None:
        if not self.broken:
            try:
                self.cache.put(data)
                return
            except CacheError as error:
                self.broken = True
                self.tell(f"going on without the cache: {error}")
        self.spare.put(data)

    def read(self, index: int, name: str) -> np.ndarray:
        return self.spare.read(index, name) if self.spare.has(index, name) else self.cache.read(index, name)

    def has(self, index: int, name: str) -> bool:
        return self.cache.has(index, name) or self.spare.has(index, name)


@dataclass(frozen=True)
class BatchResult:
    """What a batch gave; `skipped` are the samples that could not be read."""

    part: int
    rows: np.ndarray
    skipped: tuple[int, ...]
    arrays: Mapping[str, np.ndarray]


class Collector:
    """Gathers the batches of each part; when the last one is in, hands the shard on to `finish`.

    `counts` says how many rows of features samples give: ones, or words per sentence.
    """

    def __init__(
        self,
        parts: Mapping[int, np.ndarray],
        counts: Callable[[np.ndarray], np.ndarray],
        finish: Callable[[ShardData], None],
    ) -> None:
        self._rows = dict(parts)
        self._counts = counts
        self._finish = finish
        self._shards: dict[int, _OpenShard] = {}

    def add(self, result: BatchResult) -> None:
        """Take a batch."""
        part = result.part
        if part not in self._shards:
            self._shards[part] = _OpenShard(self._rows[part], self._counts(self._rows[part]))
        self._shards[part].add(result)
        if self._shards[part].missing == 0:
            self._finish(self._shards.pop(part).close(part))


class _OpenShard:
    """A shard that batches are written into.

    Each is copied to its place at once: kept as they are, arrays of a pass would lie scattered through the memory that
    the next one needs in one piece, and the whole would be there twice at the end.
    """

    def __init__(self, rows: np.ndarray, counts: np.ndarray) -> None:
        self.missing = len(rows)
        self._rows, self._counts = rows, counts
        self._place = {int(row): place for place, row in enumerate(rows)}
        self._came = np.zeros(len(rows), dtype=bool)
        self._skipped: list[int] = []
        self._arrays: dict[str, np.ndarray] = {}

    def add(self, result: BatchResult) -> None:
        self.missing -= len(result.rows) + len(result.skipped)
        self._skipped.extend(result.skipped)
        places = np.array([self._place[int(row)] for row in result.rows], dtype=np.int64)
        self._came[places] = True
        positions = word_positions(self._counts, places)
        if not self._arrays:
            rows = int(self._counts.sum())
            self._arrays = {name: np.empty((rows, *a.shape[1:]), a.dtype) for name, a in result.arrays.items()}
        for name in self._arrays if len(places) else ():  # each has something from every batch
            self._arrays[name][positions] = result.arrays[name]

    def close(self, part: int) -> ShardData:
        arrays = self._arrays
        if self._skipped:
            kept = np.repeat(self._came, self._counts)
            arrays = {name: array[kept] for name, array in arrays.items()}
        return ShardData(part, self._rows[self._came], arrays, tuple(sorted(self._skipped)))
