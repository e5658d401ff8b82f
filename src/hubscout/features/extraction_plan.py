"""`ExtractionPlan`: what is to be run, worked out and checked before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hubscout.errors import InputError, TaskError
from hubscout.features.feature_keys import describe, identity
from hubscout.features.sharding import assign_blocks, check_indices, cut, kept_samples
from hubscout.hubs.pooling import check_layers
from hubscout.tasks.kinds import kind_of

if TYPE_CHECKING:
    from hubscout.hubs import Backbone
    from hubscout.tasks import Split, Task


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
    ) -> ExtractionPlan:
        if split_name not in task.splits:
            raise InputError(f"split must be one of {', '.join(task.splits)}; got {split_name!r}.")
        split = task.splits[split_name]
        if len(split) == 0:
            raise TaskError(f"The split {split_name!r} of task {task.name!r} is empty.")
        rows = np.arange(len(split)) if indices is None else check_indices(indices, len(split))
        cuts = cut(len(rows), shard_rows)
        if shards is not None and (wrong := [index for index in shards if not 0 <= index < len(cuts)]):
            raise InputError(f"shards must lie between 0 and {len(cuts) - 1}; got {wrong[0]}.")
        parts = {
            shard.index: rows[shard.start : shard.stop] for shard in cuts if shards is None or shard.index in shards
        }
        selection = f"{split_name}:{len(cuts[0])}" if cuts else split_name
        if indices is not None:
            selection += ":" + _digest(rows)
        return cls(
            backbone,
            task,
            split_name,
            split,
            rows,
            _resolve_layers(backbone, layers),
            parts,
            assign_blocks(len(split), blocks, task.fingerprint),
            kept_of_row(task, split_name, rows),
            selection,
            tuple(map(len, cuts)),
            identity(backbone),
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
        if isinstance(raw, str):
            return len(raw)
        return sum(len(part) + 1 for part in raw)

    def fingerprint(self, precision: str, backend: str) -> dict[str, str]:
        return describe(self, precision, backend)


def kept_of_row(task: Task, split_name: str, rows: np.ndarray) -> np.ndarray:
    """Each sample of a split where it is one of `rows` and stays beside their sums, and -1 elsewhere."""
    split = task.splits[split_name]
    found = np.full(len(split), -1, dtype=np.int64)
    stays = rows[kept_samples(rows, kind_of(task.kind).row_counts(split.targets, rows), task.fingerprint)]
    found[stays] = stays
    return found


def _resolve_layers(backbone: Backbone, layers: Sequence[str] | str) -> tuple[str, ...]:
    known = backbone.layer_names
    asked = (layers,) if isinstance(layers, str) else layers
    named = [name for layer in asked for name in (known if layer == "all" else (layer,))]
    if named:
        check_layers(named, known, backbone.card.identifier, averages=backbone.averages_layers)
    return tuple(dict.fromkeys(named))


def _digest(rows: np.ndarray) -> str:
    import hashlib

    return hashlib.sha256(np.ascontiguousarray(rows, dtype="<i8").tobytes()).hexdigest()[:16]
