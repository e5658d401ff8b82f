"""Sufficient statistics out of a stream of rows that belong to different blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hubscout.tasks.kinds import kind_of

if TYPE_CHECKING:
    from torch import Tensor

    from hubscout.evidence.statistics import Statistics
    from hubscout.tasks import Kind

_FLUSH_ROWS = 512


class BlockAccumulator:
    """Statistics of one layer. Rows are held back until a block has enough of them for one matrix product.

    An update touches a whole D×D matrix however few rows it adds; with ten blocks interleaved in every batch, adding
    them at once would cost more than the products themselves. At most `flush_rows` rows a block are held.

    On a CUDA `device` the sums are kept there: the products, and the eigenproblem that comes after them, take
    milliseconds on a GPU and seconds on the processors that are busy decoding.
    """

    def __init__(
        self,
        kind: Kind,
        target_names: tuple[str, ...],
        *,
        flush_rows: int = _FLUSH_ROWS,
        device: str = "cpu",
    ) -> None:
        from hubscout.evidence.statistics import Statistics

        self._statistics = Statistics(kind_of(kind).row_kind, target_names)
        self._flush_rows = flush_rows
        self._device = device
        self._held: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
        self._held_rows: dict[int, int] = {}

    def add(
        self, features: np.ndarray, targets: np.ndarray, blocks: np.ndarray, kept: np.ndarray | None = None
    ) -> None:
        """Add rows; `blocks` has the block of each, `kept` its sample where the row stays, and -1 where it does not."""
        from hubscout.evidence.statistics import KeptRows

        if kept is not None and (stays := kept >= 0).any():
            self._statistics.kept.append(KeptRows(features[stays], targets[stays], kept[stays]))
        for block in np.unique(blocks).tolist():
            mine = blocks == block
            self._held.setdefault(block, []).append((features[mine], targets[mine]))
            self._held_rows[block] = self._held_rows.get(block, 0) + int(mine.sum())
            if self._held_rows[block] >= self._flush_rows:
                self._flush(block)

    def finish(self) -> Statistics:
        """The statistics of everything that was added."""
        for block in sorted(self._held):
            self._flush(block)
        return self._statistics

    def _flush(self, block: int) -> None:
        held = self._held.pop(block, [])
        self._held_rows.pop(block, None)
        if held:
            features = np.concatenate([rows for rows, _ in held])
            targets = np.concatenate([rows for _, rows in held])
            self._statistics.update(self._placed(features), targets, block=block)

    def _placed(self, features: np.ndarray) -> np.ndarray | Tensor:
        if not self._device.startswith("cuda"):
            return features
        import torch

        return torch.from_numpy(features).to(self._device)
