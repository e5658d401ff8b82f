"""`ExtractionPlan`: what is to be run, worked out and checked before anything runs.

How the rows of a split are cut into shards, and which block of the jackknife each row belongs to, depends on the task
alone, never on the model, the device or the number of workers: shards can be computed anywhere in any order and merged,
and blocks are paired across models.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hubscout.errors import InputError, TaskError, check_choice, check_least
from hubscout.features.feature_keys import identity
from hubscout.hubs.pooling import check_layers
from hubscout.tasks.kinds import kind_of

if TYPE_CHECKING:
    from hubscout.hubs import Backbone
    from hubscout.tasks import Split, Task

_SMALLEST_SHARD_ROWS = 256
_MOST_SHARDS = 200
_LEFT_OUT_TOGETHER = 1 << 24
"""Numbers of a matrix for each target over the rows of a group: 134 MB."""
KEPT_ROWS = 4096
"""Rows of features that stay: an accuracy of 80% over so many is known to 0.6 points (one standard error)."""


def default_shard_rows(n: int) -> int:
    """Rows per shard: small enough that a killed run loses little, large enough that there are at most 200 files.

    >>> default_shard_rows(3_680), default_shard_rows(1_280_000)
    (256, 6400)
    """
    return max(_SMALLEST_SHARD_ROWS, 64 * -(-n // (64 * _MOST_SHARDS)))


def cut(n: int, shard_rows: int | None = None) -> list[range]:
    """Cut `n` rows into shards of `shard_rows` each, the last one shorter.

    >>> [len(shard) for shard in cut(600)]
    [256, 256, 88]
    """
    size = default_shard_rows(n) if shard_rows is None else shard_rows
    check_least("shard_rows", size)
    return [range(start, min(start + size, n)) for start in range(0, n, size)]


def assign_blocks(n: int, blocks: int, fingerprint: str, groups: np.ndarray | None = None) -> np.ndarray:
    """The block of each of `n` rows: its place in a permutation seeded by the task's fingerprint, × blocks // n.

    Blocks differ in size by at most one row, and are the same for every model that runs on the task. Where there
    are fewer rows than blocks, every row is a block of its own. Rows of one of the `groups` are in one block: they are
    alike, and scores of blocks that share a group would differ by too little.

    >>> np.bincount(assign_blocks(25, 10, "pets"))
    array([3, 2, 3, 2, 3, 2, 3, 2, 3, 2])
    """
    check_least("blocks", blocks)
    if groups is not None:
        _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        order = np.argsort(_places(len(sizes), fingerprint))
        block = np.empty(len(sizes), dtype=np.int64)
        # By the middle of each group among all rows. Large groups may leave blocks empty, which are not counted.
        block[order] = (np.cumsum(sizes[order]) - sizes[order] / 2) * blocks // n
        return np.unique(block[group], return_inverse=True)[1]
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


def kept_groups(groups: np.ndarray, counts: np.ndarray, targets: int, fingerprint: str) -> np.ndarray:
    """The same by whole groups, which are predicted from the others together: a boolean for each sample of a split.

    `counts` are the rows of features of each sample. Groups of so many rows that they cannot be left out together stay
    out of it.

    >>> kept_groups(np.array([4, 4, 4, 5, 5, 6]), np.array([1, 1, 1, 2000, 2000, 1]), 2, "pets").tolist()
    [True, True, True, False, False, True]
    """
    _, group = np.unique(groups, return_inverse=True)
    sizes = np.bincount(group, weights=counts)
    order = np.argsort(_places(len(sizes), fingerprint))
    order = order[sizes[order] <= math.sqrt(_LEFT_OUT_TOGETHER / targets)]
    kept = order[np.cumsum(sizes[order]) - sizes[order] < KEPT_ROWS]
    return np.isin(group, kept)


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


@dataclass(frozen=True)
class ExtractionPlan:
    """What is to be run: a backbone, the rows of each part, the layers, the block of each row.

    `rows` are those of all parts, also of the ones that others run.
    """

    backbone: Backbone
    task: Task
    split_name: str
    split: Split
    rows: np.ndarray
    layers: tuple[str, ...]
    parts: dict[int, np.ndarray]
    block_of_row: np.ndarray
    kept_of_row: np.ndarray
    """Each sample of the split where its rows stay beside the sums, and -1 where they do not."""
    selection: str
    shard_rows: tuple[int, ...]
    """Rows in each shard, also of the ones that others run."""
    identity: str
    """What the model is made of when it is about to run; see `hubscout.features.feature_keys.identity`."""

    @classmethod
    def prepare(
        cls,
        backbone: Backbone,
        task: Task,
        split_name: str,
        layers: Sequence[str] | str,
        blocks: int,
        indices: Sequence[int] | np.ndarray | None,
        shards: Sequence[int] | None,
        shard_rows: int | None,
        device: str,
    ) -> ExtractionPlan:
        check_choice("split", split_name, task.splits)
        split = task.splits[split_name]
        if len(split) == 0:
            raise TaskError(f"The split {split_name!r} of task {task.name!r} is empty.")
        rows = np.arange(len(split)) if indices is None else check_indices(indices, len(split))
        cuts = cut(len(rows), shard_rows)
        if shards is not None and (wrong := [index for index in shards if not 0 <= index < len(cuts)]):
            raise InputError(f"shards must lie between 0 and {len(cuts) - 1}; got {wrong[0]}.")
        parts = {
            index: rows[shard.start : shard.stop]
            for index, shard in enumerate(cuts)
            if shards is None or index in shards
        }
        selection = f"{split_name}:{len(cuts[0])}" if cuts else split_name
        if indices is not None:
            digest = hashlib.sha256(np.ascontiguousarray(rows, dtype="<i8").tobytes())
            selection += f":{digest.hexdigest()[:16]}"
        return cls(
            backbone,
            task,
            split_name,
            split,
            rows,
            _resolve_layers(backbone, layers),
            parts,
            assign_blocks(len(split), blocks, task.fingerprint, split.groups),
            kept_of_row(task, split_name, rows),
            selection,
            tuple(map(len, cuts)),
            identity(backbone, device),
        )

    def counts(self, rows: np.ndarray) -> np.ndarray:
        """How many rows of features each sample gives."""
        return kind_of(self.task.kind).row_counts(self.split.targets, rows)

    def targets(self, rows: np.ndarray) -> np.ndarray:
        """Targets of the rows of features of these samples."""
        return kind_of(self.task.kind).rows_of(self.split.targets, rows)

    def blocks(self, rows: np.ndarray) -> np.ndarray:
        """The block of each row of features; all words of a sentence are in one."""
        return np.repeat(self.block_of_row[rows], self.counts(rows))

    def kept(self, rows: np.ndarray) -> np.ndarray:
        """Of each row of features its sample where it stays beside the sums, and -1 where it does not."""
        return np.repeat(self.kept_of_row[rows], self.counts(rows))

    def length(self, row: int) -> int:
        """How long a text is, roughly, to batch like with like."""
        try:
            raw = self.split.inputs[row]
        except Exception:
            return 0  # the reader meets the same error and names the sample
        return len(raw) if isinstance(raw, str) else sum(len(part) + 1 for part in raw)


def kept_of_row(task: Task, split_name: str, rows: np.ndarray) -> np.ndarray:
    """Each sample of a split where it is one of `rows` and stays beside their sums, and -1 elsewhere."""
    split, kind = task.splits[split_name], kind_of(task.kind)
    found = np.full(len(split), -1, dtype=np.int64)
    if split.groups is None:
        stays = rows[kept_samples(rows, kind.row_counts(split.targets, rows), task.fingerprint)]
    else:  # the same groups in every part of the split
        counts = kind.row_counts(split.targets)
        stays = rows[kept_groups(split.groups, counts, len(task.target_names), task.fingerprint)[rows]]
    found[stays] = stays
    return found


def _resolve_layers(backbone: Backbone, layers: Sequence[str] | str) -> tuple[str, ...]:
    known = backbone.layer_names
    asked = (layers,) if isinstance(layers, str) else layers
    named = [name for layer in asked for name in (known if layer == "all" else (layer,))]
    if named:
        check_layers(named, known, backbone.card.identifier, averages=backbone.averages_layers)
    return tuple(dict.fromkeys(named))
