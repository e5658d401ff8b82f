"""Memory that processes share, in slots that are used again and again.

A pipe costs two copies and the time of the process that reads; and fresh memory is handed out page by page, which can
take longer than copying what comes into it.
"""

from __future__ import annotations

import math
import os
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hubscout.features.decoded import free_bytes

_SLOTS = 32
_SHARE_OF_FREE_MEMORY = 0.1


@dataclass(frozen=True)
class Slot:
    """A piece of memory that processes share, by the file that stands for it and by its name."""

    path: str
    name: str
    """The number of a file that was closed is soon that of another one."""
    start: int
    size: int


@dataclass(frozen=True)
class Written:
    """An array that a process has put into its slot, its axes in the order in which they lie there."""

    shape: tuple[int, ...]
    dtype: np.dtype
    axes: tuple[int, ...]

    def view(self, place: np.ndarray) -> np.ndarray:
        """The array in a slot."""
        size = math.prod(self.shape) * self.dtype.itemsize
        lying = place[:size].view(self.dtype).reshape([self.shape[axis] for axis in self.axes])
        return lying.transpose(np.argsort(self.axes))


class SharedMemory:
    """The owner's side. The memory goes with the processes that have it open, however they end."""

    def __init__(self, slot_bytes: int, slots: int) -> None:
        name = f"hubscout-{uuid.uuid4().hex}"
        self._file = os.memfd_create(name)
        os.ftruncate(self._file, slots * slot_bytes)
        path = f"/proc/{os.getpid()}/fd/{self._file}"
        self._memory = _open(path, name)
        self._free = deque(Slot(path, name, start, slot_bytes) for start in range(0, slots * slot_bytes, slot_bytes))

    @classmethod
    def of(cls, slot_bytes: int) -> SharedMemory | None:
        """Slots of a size; None where the system has no such memory, or little of it."""
        room = _SHARE_OF_FREE_MEMORY * (free_bytes() or 0)
        if not hasattr(os, "memfd_create") or not 0 < _SLOTS * slot_bytes < room:
            return None
        try:
            return cls(slot_bytes, _SLOTS)
        except OSError:  # a system that does not permit it
            return None

    def take(self) -> Slot | None:
        return self._free.popleft() if self._free else None

    def release(self, slot: Slot) -> None:
        self._free.append(slot)

    def read(self, slot: Slot, written: Written) -> np.ndarray:
        """A copy of what is in a slot, which is free again."""
        found = np.array(written.view(self._memory[slot.start : slot.start + slot.size]), order="K")
        self.release(slot)
        return found

    def close(self) -> None:
        os.close(self._file)


def write(samples: Sequence[np.ndarray], slot: Slot) -> Written | None:
    """In another process: put samples of one shape into a slot; None where they do not fit, or it is not there."""
    shape, dtype = (len(samples), *samples[0].shape), samples[0].dtype
    if math.prod(shape) * dtype.itemsize > slot.size or dtype.hasobject:
        return None
    # As the first sample lies in memory: images have their colours side by side, and turning them takes eight times
    # as long as copying.
    inner = sorted(range(samples[0].ndim), key=lambda axis: -abs(samples[0].strides[axis]))
    written = Written(shape, dtype, (0, *(axis + 1 for axis in inner)))
    try:
        memory = _opened(slot.path, slot.name)
    except OSError:  # its owner has closed it meanwhile, or others may not open it
        return None
    np.stack(samples, out=written.view(memory[slot.start : slot.start + slot.size]))
    return written


def _open(path: str, name: str) -> np.ndarray:
    with open(path, "r+b") as file:
        if os.readlink(f"/proc/self/fd/{file.fileno()}") != f"/memfd:{name} (deleted)":
            raise FileNotFoundError(path)
        return np.asarray(np.memmap(file, np.uint8, "r+"))


_opened = lru_cache(maxsize=1)(_open)
