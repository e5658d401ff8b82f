"""Targets by row: a row is a sample, or a word of a tagging task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hubscout.tasks import Split
from hubscout.tasks.kinds import kind_of
from hubscout.tuning.losses import TaskLoss


@dataclass(frozen=True)
class Rows:
    """The encoded targets of a split and the way from samples to rows."""

    targets: Tensor
    starts: Tensor | None
    """Tagging: (samples + 1,) where each sentence's words begin; None where a sample is a row."""

    @classmethod
    def of(cls, split: Split, loss: TaskLoss, device: torch.device | str = "cpu") -> Rows:
        """The rows of a split."""
        kind = kind_of(loss.kind)
        targets = loss.encode(kind.rows_of(split.targets)).to(device)
        if not kind.rows_are_words:
            return cls(targets, None)
        return cls(targets, torch.as_tensor(np.concatenate([[0], np.cumsum(kind.row_counts(split.targets))])))

    def count(self, samples: np.ndarray) -> int:
        """How many rows these samples have."""
        if self.starts is None:
            return len(samples)
        starts = self.starts.numpy()
        return int((starts[samples + 1] - starts[samples]).sum())

    def of_samples(self, samples: Tensor) -> Tensor:
        """Row numbers of the samples, in order; on the device of the targets."""
        if self.starts is None:
            return samples.to(self.targets.device, non_blocking=True)
        bounds = zip(self.starts[samples].tolist(), self.starts[samples + 1].tolist(), strict=True)
        return torch.cat([torch.arange(low, high) for low, high in bounds]).to(self.targets.device)
