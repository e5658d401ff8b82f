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
    """What a batch gave. `counts` are the rows of features per sample: ones, or words per sentence."""

    part: int
    rows: np.ndarray
    skipped: tuple[int, ...]
    counts: np.ndarray
    arrays: Mapping[str, np.ndarray]


class Collector:
    """Gathers the batches of each part; when the last one is in, hands the shard on to `finish`."""

    def __init__(self, parts: Mapping[int, np.ndarray], finish: Callable[[ShardData], None]) -> None:
        self._rows = dict(parts)
        self._finish = finish
        self._results: dict[int, list[BatchResult]] = {}
        self._missing = {part: len(rows) for part, rows in parts.items()}

    def add(self, result: BatchResult) -> None:
        """Take a batch."""
        self._results.setdefault(result.part, []).append(result)
        self._missing[result.part] -= len(result.rows) + len(result.skipped)
        if self._missing[result.part] == 0:
            self._finish(_assemble(result.part, self._rows[result.part], self._results.pop(result.part)))


def _assemble(part: int, planned: np.ndarray, results: list[BatchResult]) -> ShardData:
    skipped = tuple(sorted(row for result in results for row in result.skipped))
    full = [result for result in results if len(result.rows)]
    if not full:
        return ShardData(part, np.zeros(0, dtype=np.int64), {}, skipped)
    rows = np.concatenate([result.rows for result in full])
    counts = np.concatenate([result.counts for result in full])
    # A copy also of a single batch: its arrays may be a part of something larger, or be written to again.
    whole = {name: np.concatenate([result.arrays[name] for result in full]) for name in full[0].arrays}
    if np.array_equal(rows, planned):
        return ShardData(part, rows, whole, skipped)
    # The place of each planned row among those that came, in planned order.
    came = {int(row): place for place, row in enumerate(rows)}
    order = np.array([came[int(row)] for row in planned if int(row) in came], dtype=np.int64)
    positions = word_positions(counts, order)
    return ShardData(part, rows[order], {name: array[positions] for name, array in whole.items()}, skipped)
