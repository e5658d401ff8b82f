"""Batches of prepared inputs that stay on the device, for the next model that takes them alike.

Decoded images are kept in main memory (`hubscout.features.decoded`); from there each model has to stack them, pin them
and send them again. Where the device has room, a batch that was sent once is taken from there.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.hubs.device_resizing import decoded, resizing_on

if TYPE_CHECKING:
    from hubscout.features.decoded import PreparedSamples
    from hubscout.features.extraction_plan import ExtractionPlan
    from hubscout.hubs import Batch, Preprocessing

_SHARE = 0.25
"""Of the device's memory that is free when a batch comes; the rest is for the networks."""
_LOOKED_AT = 8
"""Images from all over the split: what they have in common, the others are taken to have too."""

Key = tuple[str, str, str, str]
"""Task, split, preprocessing and device."""


class DeviceBatches:
    """Batches by the rows that they hold. Where memory runs out, all of them go."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: dict[tuple[Key, bytes], Batch] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._batches)

    def get(self, key: Key, rows: np.ndarray) -> Batch | None:
        """The batch of these rows in this order, or None."""
        with self._lock:
            return self._batches.get((key, rows.tobytes()))

    def put(self, key: Key, rows: np.ndarray, batch: Batch) -> bool:
        """Keep a batch that is on the device, where there is room; whether it is kept."""
        size = sum(value.element_size() * value.numel() for value in batch.values())
        if any(len(value) != len(rows) for value in batch.values()):
            return False  # it could not be cut where memory runs out
        place = (key, rows.tobytes())
        with self._lock:
            if place in self._batches:
                return True
            if size > _SHARE * free_on(key[-1]):
                return False
            self._batches[place] = batch
            self.bytes += size
            return True

    def clear(self) -> bool:
        """Let all batches go; whether there were any."""
        with self._lock:
            found = bool(self._batches)
            self._batches.clear()
            self.bytes = 0
            return found


@dataclass(frozen=True)
class HeldBatches:
    """The batches of one split under one preprocessing on one device; what finds no room there is kept in `spare`."""

    batches: DeviceBatches
    key: Key
    spare: PreparedSamples

    def get(self, rows: np.ndarray) -> Batch | None:
        return self.batches.get(self.key, rows)

    def put(self, rows: np.ndarray, samples: Sequence[Any], batch: Batch) -> None:
        """Keep a batch that is on the device, or the samples that it was made of."""
        if not self.batches.put(self.key, rows, batch):
            for row, sample in zip(rows.tolist(), samples, strict=True):
                self.spare.put(row, sample)

    def clear(self) -> bool:
        return self.batches.clear()


@dataclass(frozen=True)
class HeldSamples(Sequence[Any]):
    """The samples of a batch that is on the device: they are cut without being stacked again."""

    batch: Batch

    def __len__(self) -> int:
        return len(next(iter(self.batch.values())))

    def __getitem__(self, place: Any) -> Any:
        return HeldSamples({name: value[place] for name, value in self.batch.items()})


def free_on(device: str) -> int:
    """Bytes that are free on a CUDA device; none elsewhere: on a CPU the decoded samples are there already."""
    if not device.startswith("cuda"):
        return 0
    import torch

    return torch.cuda.mem_get_info(device)[0]


def preprocessing_on(device: str, job: ExtractionPlan) -> Preprocessing:
    """The model's own preprocessing; for small images of one size and a GPU, one that resizes them there."""
    own = job.backbone.preprocessing
    if job.task.modality != "image" or job.backbone.module is None or not free_on(device):
        return own
    found = shape = None
    for place in np.unique(np.linspace(0, len(job.rows) - 1, _LOOKED_AT).astype(int)):
        try:
            seen = decoded(job.split.inputs[int(job.rows[place])]).shape
        except Exception:  # the reader meets the same error, and names the sample
            continue
        if shape is None:
            found, shape = resizing_on(device, own, seen), seen
        if found is None or seen != shape:
            return own
    return found or own
