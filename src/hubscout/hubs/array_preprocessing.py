"""Inputs that are arrays already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hubscout.errors import InputError
from hubscout.hubs.backbone import Batch

ARRAYS = "inputs"
"""The key of arrays in a batch."""


class ArrayPreprocessing:
    """Arrays of one shape, stacked as float32."""

    key = "array"

    def __call__(self, sample: Any) -> np.ndarray:
        return np.asarray(sample, dtype=np.float32)

    def collate(self, samples: Sequence[np.ndarray]) -> Batch:
        import torch

        shapes = {sample.shape for sample in samples}
        if len(shapes) > 1:
            raise InputError(f"Arrays of one batch must have one shape, got {sorted(shapes)[:4]}.")
        return {ARRAYS: torch.from_numpy(np.stack(samples))}

    def augmented(self) -> ArrayPreprocessing:
        return self
