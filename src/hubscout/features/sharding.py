"""How the rows of a split are cut into shards, and which block of the jackknife each row belongs to.

Both depend on the task alone, never on the model, the device or the number of workers: shards can be computed
anywhere in any order and merged, and blocks are paired across models.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hubscout.errors import InputError

_SMALLEST_SHARD_ROWS = 256
_MOST_SHARDS = 200
KEPT_ROWS = 4096
"""Rows of features that stay: an accuracy of 80% over so many is known to 0.6 points (one standard error)."""


@dataclass(frozen=True)
class Shard:
    """The rows `start` to `stop` (not included) of a split."""

    index: int
    start: int
    stop: int

    @property
    def rows(self) -> np.ndarray:
        """The row numbers of the shard."""
        return np.arange(self.start, self.stop)

    def __len__(self) -> int:
        return self.stop - self.start


def default_shard_rows(n: int) -> int:
    """Rows a shard: small enough that a killed run loses little, large enough that there are at most 200 files.

    >>> default_shard_rows(3_680), default_shard_rows(1_280_000)
    (256, 6400)
    """
    return max(_SMALLEST_SHARD_ROWS, 64 * -(-n // (64 * _MOST_SHARDS)))


def cut(n: int, shard_rows: int | None = None) -> tuple[Shard, ...]:
    """Cut `n` rows into shards of `shard_rows` each, the last one shorter.

    >>> [len(shard) for shard in cut(600)]
    [256, 256, 88]
    """
    size = default_shard_rows(n) if shard_rows is None else shard_rows
    if size < 1:
        raise InputError(f"shard_rows must be at least 1, got {shard_rows}.")
    return tuple(Shard(index, start, min(start + size, n)) for index, start in enumerate(range(0, max(n, 0), size)))


def assign_blocks(n: int, blocks: int, fingerprint: str) -> np.ndarray:
    """The block of each of `n` rows: its place in a permutation seeded by the task's fingerprint, × blocks // n.

    Blocks differ in size by at most one row, and are the same for every model that runs on the task. Where there
    are fewer rows than blocks, every row is a block of its own.

    >>> np.bincount(assign_blocks(25, 10, "pets"))
    array([3, 2, 3, 2, 3, 2, 3, 2, 3, 2])
    """
    if blocks < 1:
        raise InputError(f"blocks must be at least 1, got {blocks}.")
    return _places(n, fingerprint) * min(blocks, max(n, 1)) // max(n, 1)


def _places(n: int, fingerprint: str) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(fingerprint.encode()).digest()[:8], "little")
    return np.random.default_rng(seed).permutation(n)


def kept_samples(rows: np.ndarray, counts: np.ndarray, fingerprint: str) -> np.ndarray:
    """Which of these samples of a split stay beside the sums, to be predicted from the others: a boolean for each.

    `counts` are their rows of features. A random choice, the same for every model, of as many samples as have about
    `KEPT_ROWS` rows of features; all where there are no more.

    >>> int(kept_samples(np.arange(10_000), np.ones(10_000, dtype=int), "pets").sum())
    3334
    """
    every = -(-int(counts.sum()) // KEPT_ROWS)
    return _places(len(rows), fingerprint) % max(every, 1) == 0


def check_indices(indices: Sequence[int] | np.ndarray, n: int) -> np.ndarray:
    """Row numbers as an array, each in range and there once."""
    rows = np.asarray(indices)
    if rows.ndim != 1 or (rows.size and not np.issubdtype(rows.dtype, np.integer)):
        raise InputError(f"indices must be a flat list of row numbers, got an array of {rows.dtype}, {rows.shape}.")
    rows = rows.astype(np.int64)
    if rows.size and (rows.min() < 0 or rows.max() >= n):
        wrong = rows[(rows < 0) | (rows >= n)][0]
        raise InputError(f"indices must lie between 0 and {n - 1}, the rows of the split; got {wrong}.")
    if len(np.unique(rows)) != len(rows):
        raise InputError("indices must not name a row twice.")
    return rows
