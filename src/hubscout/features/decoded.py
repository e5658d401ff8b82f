"""Prepared inputs, kept for the next model that shares the preprocessing: each image is decoded once.

Where a GPU has room, batches stay there as they were sent; what finds none is kept in main memory.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.errors import check_least
from hubscout.features import device_batches

if TYPE_CHECKING:
    from hubscout.hubs import Batch
    from hubscout.tasks import Task

_MOST_BYTES = 4 << 30
_SHARE_OF_FREE_MEMORY = 0.25
_BYTES_WHERE_UNKNOWN = 1 << 30
_LOOK_EVERY_BYTES = 1 << 26
_SHARE_OF_DEVICE = 0.25
"""Of the memory of a device that is free when a batch comes; the rest is for the networks."""


def free_bytes() -> int | None:
    """Memory that can be had now, also that of files which can be read again; None where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def default_limit_bytes() -> int:
    """A quarter of the memory that is free now, at most 4 GiB."""
    free = free_bytes()
    return _BYTES_WHERE_UNKNOWN if free is None else int(min(_MOST_BYTES, _SHARE_OF_FREE_MEMORY * free))


class Room:
    """Memory for what is kept: a quarter of what is free now, at most 4 GiB, until half of what is free now is gone.

    Several processes that keep at the same time do not know of each other, and together leave that half.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        self.left = default_limit_bytes() if limit_bytes is None else limit_bytes
        self._least_free = (free_bytes() or 0) // 2
        self._since_look = 0

    def take(self, size: int) -> bool:
        """Whether so many bytes may be kept; counts them in if so."""
        self._since_look += size
        if self._since_look > _LOOK_EVERY_BYTES:
            self._since_look = 0
            if (free_bytes() or self._least_free) < self._least_free:
                self.left = 0
        if size > self.left:
            return False
        self.left -= size
        return True


def size_bytes(sample: Any) -> int | None:
    """Bytes of a prepared sample; None for what is no array: tokens cost less to make than to keep.

    >>> size_bytes(np.zeros((3, 4, 4), dtype=np.uint8)), size_bytes([101, 7592, 102])
    (48, None)
    """
    if isinstance(sample, np.ndarray):
        return int(sample.nbytes)
    if hasattr(sample, "element_size") and hasattr(sample, "numel"):
        return int(sample.element_size() * sample.numel())
    if isinstance(sample, dict) and sample:
        sizes = [size_bytes(value) for value in sample.values()]
        return None if None in sizes else sum(size for size in sizes if size is not None)
    return None


class PreparedSamples:
    """The prepared samples of one split under one preprocessing, by row. Made by `PreparedPool.samples`."""

    def __init__(self, pool: PreparedPool) -> None:
        self._pool = pool
        self._samples: dict[int, Any] = {}
        self.batches: dict[tuple[str, bytes], Batch] = {}
        """Those on a device, by the device and the rows that they hold."""
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._samples)

    def get(self, row: int) -> Any | None:
        """The prepared sample of a row, or None."""
        return self._samples.get(row)

    def put(self, row: int, sample: Any) -> None:
        """Keep a sample while there is room; the first ones stay, since every model reads them in the same order."""
        size = size_bytes(sample)
        if size is not None and row not in self._samples and self._pool.make_room(self, size):
            self._samples[row] = sample

    def batch(self, device: str, rows: np.ndarray) -> Batch | None:
        """The batch of these rows in this order, if it is on the device."""
        return self.batches.get((device, rows.tobytes()))

    def put_batch(self, device: str, rows: np.ndarray, samples: Sequence[Any], batch: Batch) -> None:
        """Keep a batch that is on the device where there is room; else the samples that it was made of."""
        if self.batch(device, rows) is not None:
            return
        size = sum(value.element_size() * value.numel() for value in batch.values())
        # Where memory runs out, a batch is cut into pieces of so many rows.
        in_rows = all(len(value) == len(rows) for value in batch.values())
        if in_rows and size <= _SHARE_OF_DEVICE * device_batches.free_on(device):
            self.batches[device, rows.tobytes()] = batch
            return
        for row, sample in zip(rows.tolist(), samples, strict=True):
            self.put(row, sample)

    def clear(self) -> None:
        """Forget all samples in main memory."""
        self._samples.clear()
        self.bytes = 0


class PreparedPool:
    """Prepared samples of many preprocessings. Pass one pool to every `extract` of a ranking.

    A whole preprocessing that has not been used for the longest time makes room for another.

    Args:
        limit_bytes: what it may keep; None for a quarter of the memory that is free now, at most 4 GiB.

    Raises:
        InputError: a negative limit.

    Example:
        >>> PreparedPool(1 << 20).bytes
        0

    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        self.limit_bytes = default_limit_bytes() if limit_bytes is None else limit_bytes
        check_least("limit_bytes", self.limit_bytes, 0)
        self._lock = threading.Lock()
        self._sets: OrderedDict[tuple[str, str, str], PreparedSamples] = OrderedDict()

    @property
    def bytes(self) -> int:
        """Bytes in use in main memory."""
        return sum(samples.bytes for samples in self._sets.values())

    def clear_devices(self) -> bool:
        """Let go of all batches on devices, for whose memory there is better use.

        Returns:
            Whether there were any.

        """
        found = any(samples.batches for samples in self._sets.values())
        for samples in self._sets.values():
            samples.batches.clear()
        return found

    def samples(self, task: Task, split: str, key: str) -> PreparedSamples:
        """The samples of a split under the preprocessing of this key.

        Args:
            task: the labelled data.
            split: which of its splits.
            key: what tells the preprocessing from others.

        Returns:
            The same object each time.

        """
        with self._lock:
            place = (task.fingerprint, split, key)
            if place not in self._sets:
                self._sets[place] = PreparedSamples(self)
            self._sets.move_to_end(place)
            return self._sets[place]

    def make_room(self, asking: PreparedSamples, size: int) -> bool:
        """Whether `size` more bytes may be kept; counts them in if so.

        Args:
            asking: for whose samples.
            size: how many bytes.

        Returns:
            Whether they may be kept.

        """
        with self._lock:
            used = self.bytes
            for other in self._sets.values():
                if used + size <= self.limit_bytes:
                    break
                if other is not asking:
                    used -= other.bytes
                    other.clear()
            if used + size > self.limit_bytes:
                return False
            asking.bytes += size
            return True
