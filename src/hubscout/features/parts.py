"""Some shards of a model on a task, ready to travel, and how they become one extraction again.

What travels is whichever is smaller: the features of the rows, or their sums. Parts are put together in the order of
the rows however they arrive, so the result does not depend on who was first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hubscout.errors import EngineError, NothingReadableError
from hubscout.features.accumulate import BlockAccumulator
from hubscout.features.job import kept_of_row
from hubscout.features.result import Extraction, LayerStatistics
from hubscout.features.sharding import assign_blocks
from hubscout.features.shards import LOGITS, MemoryStore, ShardData
from hubscout.tasks.kinds import kind_of

if TYPE_CHECKING:
    from hubscout.evidence.statistics import Statistics
    from hubscout.hubs import ModelCard
    from hubscout.tasks import Task


@dataclass(frozen=True)
class Part:
    """What a model gave for some shards: `arrays` by layer, or the `statistics` of each layer, or neither where both
    were left in a cache. `rows` are the samples that went through, `skipped` those that could not be read.
    """

    card: ModelCard
    layers: tuple[str, ...]
    rows: np.ndarray
    skipped: tuple[int, ...]
    seconds: float
    samples_per_second: float = 0.0
    from_cache: bool = False
    device: str = ""
    precision: str = ""
    batch_size: int = 0
    messages: tuple[str, ...] = ()
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    statistics: Mapping[str, Statistics] = field(default_factory=dict)
    latency_seconds: float | None = None
    latency_busy: bool = False


def sums_are_smaller(rows: int, feature_dim: int, blocks: int) -> bool:
    """Whether the sums of a job's rows take less room than their features: `blocks` float64 matrices of D×D against
    float32 rows of D.

    >>> sums_are_smaller(50_000, 512, 10), sums_are_smaller(256, 2048, 10)
    (True, False)
    """
    return 8 * blocks * feature_dim * feature_dim < 4 * rows * feature_dim


def pack(extraction: Extraction, *, arrays: bool, statistics: bool) -> Part:
    """An extraction of some shards with its features and logits, or with its sums, or without either."""
    features = {layer: extraction.features(layer) for layer in extraction.layers} if arrays else {}
    if arrays and (logits := extraction.logits) is not None:
        features[LOGITS] = logits
    return Part(
        card=extraction.card,
        layers=extraction.layers,
        rows=extraction.rows,
        skipped=extraction.skipped,
        seconds=extraction.seconds,
        samples_per_second=extraction.samples_per_second,
        from_cache=extraction.from_cache,
        device=extraction.device,
        precision=extraction.precision,
        batch_size=extraction.batch_size,
        messages=extraction.messages,
        arrays=features,
        statistics={layer: extraction.statistics[layer] for layer in extraction.layers} if statistics else {},
    )


class Merger:
    """Puts the parts of one model together; `expected` are the samples that all of them must account for."""

    def __init__(self, task: Task, split: str, expected: np.ndarray, *, parts: int, blocks: int, keep: bool) -> None:
        self._task = task
        self._split = split
        self._expected = expected
        self._missing = set(range(parts))
        self._blocks = blocks
        self._keep = keep
        self._early: dict[int, Part] = {}
        self._taken: list[Part] = []
        self._store = MemoryStore()
        self._accumulators: dict[str, BlockAccumulator] = {}
        self._statistics: dict[str, Statistics] = {}
        self._block_of_row: np.ndarray | None = None
        self._kept_of_row: np.ndarray

    @property
    def complete(self) -> bool:
        """Whether all parts are in."""
        return not self._missing and not self._early

    def add(self, number: int, part: Part) -> None:
        """Take a part; a number counts once."""
        if number not in self._missing:
            raise EngineError(f"part {number} of {part.card.identifier} came twice")
        self._missing.remove(number)
        self._early[number] = part
        while len(self._taken) in self._early:
            self._fold(self._early.pop(len(self._taken)))

    def extraction(self) -> Extraction:
        """The whole, once it is complete. Every sample is in it exactly once or was left out by name."""
        parts = [part for part in self._taken if len(part.rows)]
        skipped = tuple(sorted(row for part in self._taken for row in part.skipped))
        if not parts:
            raise NothingReadableError(f"No sample of split {self._split!r} of task {self._task.name!r} could be read.")
        rows = np.concatenate([part.rows for part in parts])
        accounted = np.sort(np.concatenate([rows, np.array(skipped, dtype=np.int64)]))
        if not np.array_equal(accounted, np.sort(self._expected)):
            raise EngineError(
                f"{parts[0].card.identifier}: the parts hold {len(rows)} of {len(self._expected)} samples"
            )
        ready = {**self._statistics, **{layer: sums.finish() for layer, sums in self._accumulators.items()}}
        layers = parts[0].layers
        numbers = tuple(number for number, part in enumerate(self._taken) if len(part.rows))
        later = {layer: partial(self._sums_of, layer, numbers) for layer in layers if layer not in ready}
        run = [part for part in parts if part.samples_per_second > 0]
        slowness = sum(len(part.rows) / part.samples_per_second for part in run)
        return Extraction(
            card=parts[0].card,
            split=self._split,
            rows=rows,
            targets=self._targets(rows),
            layers=layers,
            statistics=LayerStatistics(ready, later),
            seconds=sum(part.seconds for part in self._taken),
            samples_per_second=sum(len(part.rows) for part in run) / slowness if run else 0.0,
            from_cache=all(part.from_cache for part in parts),
            device=parts[0].device,
            precision=parts[0].precision,
            batch_size=min(part.batch_size for part in parts),
            skipped=skipped,
            messages=tuple(dict.fromkeys(message for part in self._taken for message in part.messages)),
            shards=numbers,
            store=self._store,
        )

    def _fold(self, part: Part) -> None:
        self._taken.append(Part(**{**vars(part), "arrays": {}, "statistics": {}}))
        if not len(part.rows):
            return
        for layer, sums in part.statistics.items():
            if layer in self._statistics:
                self._statistics[layer].merge(sums)
            else:
                self._statistics[layer] = type(sums)(sums.kind, sums.target_names).merge(sums)
        if self._keep:
            self._store.put(ShardData(len(self._taken) - 1, part.rows, dict(part.arrays)))
            return
        for layer in part.layers if part.arrays else ():
            accumulator = self._accumulators.setdefault(layer, self._accumulator())
            accumulator.add(part.arrays[layer], *self._about(part.rows))

    def _accumulator(self) -> BlockAccumulator:
        return BlockAccumulator(self._task.kind, self._task.target_names)

    def _sums_of(self, layer: str, numbers: tuple[int, ...]) -> Statistics:
        accumulator = self._accumulator()
        for number in numbers:
            rows = self._taken[number].rows
            accumulator.add(self._store.read(number, layer), *self._about(rows))
        return accumulator.finish()

    def _targets(self, rows: np.ndarray) -> np.ndarray:
        return kind_of(self._task.kind).rows_of(self._task.splits[self._split].targets, rows)

    def _about(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Target, block, and sample or -1 (see `Job.kept`) of the rows of features of these samples."""
        split = self._task.splits[self._split]
        if self._block_of_row is None:
            self._block_of_row = assign_blocks(len(split), self._blocks, self._task.fingerprint)
            self._kept_of_row = kept_of_row(self._task, self._split, self._expected)
        counts = kind_of(self._task.kind).row_counts(split.targets, rows)
        blocks, kept = np.repeat(self._block_of_row[rows], counts), np.repeat(self._kept_of_row[rows], counts)
        return self._targets(rows), blocks, kept
