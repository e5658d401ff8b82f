"""Sums of rows that are in memory: of every block, or of all with what they were after each block.

The error bar needs some sum over every block that is linear in its Gram matrix, and a float64 Gram matrix per block is
memory that takes longer to be handed out than all the rest of the error bar. One that is added to, with a copy in
float32 after every block, does as well: the blocks are differences.
"""

from __future__ import annotations

import numpy as np

from hubscout.evidence.array_backend import Array, is_torch, sum_of_squares, to_device_of
from hubscout.evidence.block import Block
from hubscout.evidence.checks import Targets
from hubscout.evidence.statistics import Statistics

RUNNING_FROM = 256
"""Dimensions. From here on memory for a float64 Gram matrix per block costs more than the error bar is worth."""
SMALL_SQUARE = 1e-20
"""Sums of squares from here to its inverse leave products room in float32."""


def sums_of_rows(
    rows: Array, labels: Targets, block_of_row: np.ndarray, *, together: bool
) -> tuple[Statistics, list[Block]]:
    """The sums of every block; or of all samples `together`, with what they were after each block."""
    statistics, values = Statistics(labels.kind, labels.names), labels.values
    running: list[Block] = []
    count = int(block_of_row.max()) + 1
    if count == 1:
        statistics.add_checked(rows, values, block=0)
        return statistics, running
    if together:  # blocks of rows go through the same memory, since new memory is dear
        most = int(np.bincount(block_of_row).max())
        taken, wide = np.empty((most, rows.shape[1]), rows.dtype), np.empty((most, rows.shape[1]))
    for block in range(count):
        indices = np.flatnonzero(block_of_row == block)
        chosen = to_device_of(indices, rows)
        part = values[indices if isinstance(values, np.ndarray) else chosen]
        if not together:
            statistics.add_checked(rows[chosen], part, block=block)
            continue
        np.take(rows, indices, axis=0, out=taken[: len(indices)], mode="clip")
        wide[: len(indices)] = taken[: len(indices)]
        statistics.add_checked(wide[: len(indices)], part, block=0)
        running.append(statistics.blocks[0].rounded())
    return statistics, running


def may_be_rounded(rows: Array, labels: Targets) -> bool:
    """Whether it pays, and float32 holds the products of these arrays on the host and the inverses of the products."""
    if rows.shape[1] < RUNNING_FROM:
        return False
    arrays = (rows,) if labels.kind == "classification" else (rows, labels.values)
    return all(not is_torch(array) and SMALL_SQUARE < sum_of_squares(array) < 1 / SMALL_SQUARE for array in arrays)
