"""What a model gave for one shard, and where shards are kept until somebody reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hubscout.errors import InputError

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
        ...

    def read(self, index: int, name: str) -> np.ndarray:
        """One array of one shard."""
        ...

    def has(self, index: int, name: str) -> bool:
        """Whether the shard is there and has this array."""
        ...


class MemoryStore:
    """Shards in this process's memory."""

    def __init__(self) -> None:
        self._shards: dict[int, ShardData] = {}

    def put(self, data: ShardData) -> None:
        """Keep a shard."""
        self._shards[data.index] = data

    def read(self, index: int, name: str) -> np.ndarray:
        """One array of one shard."""
        return self._shards[index].arrays[name]

    def has(self, index: int, name: str) -> bool:
        """Whether the shard is there and has this array."""
        return index in self._shards and name in self._shards[index].arrays


class NothingKept:
    """The store of an extraction that keeps statistics alone."""

    def put(self, data: ShardData) -> None:
        """Let it go."""

    def read(self, index: int, name: str) -> np.ndarray:
        """There is nothing to read."""
        raise InputError("The features were not kept: extract with keep_features=True or with a cache.")

    def has(self, index: int, name: str) -> bool:
        """Nothing is here."""
        return False


def word_positions(counts: Sequence[int] | np.ndarray, order: np.ndarray) -> np.ndarray:
    """Where the words of sentences lie when the sentences, of `counts` words each, are put into `order`.

    >>> word_positions([2, 1, 3], np.array([2, 0, 1]))
    array([3, 4, 5, 0, 1, 2])
    """
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    if len(order) == 0:
        return np.zeros(0, dtype=np.int64)
    return np.concatenate([np.arange(starts[place], starts[place + 1]) for place in order])
