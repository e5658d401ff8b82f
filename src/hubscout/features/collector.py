"""From batches in whatever order they were run to whole shards in the order of the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from hubscout.features.shards import ShardData, word_positions


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
        results = self._results.setdefault(result.part, [])
        results.append(result)
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
    # The place of each planned row among those that came, in planned order.
    came = {int(row): place for place, row in enumerate(rows)}
    order = np.array([came[int(row)] for row in planned if int(row) in came], dtype=np.int64)
    positions = word_positions(counts, order)
    arrays = {
        name: np.ascontiguousarray(np.concatenate([result.arrays[name] for result in full])[positions])
        for name in full[0].arrays
    }
    return ShardData(part, rows[order], arrays, skipped)
