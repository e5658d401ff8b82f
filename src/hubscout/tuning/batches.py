"""From a split to batches: decoded by worker processes as training goes, augmented reproducibly.

A *view* is the input as one preprocessing makes it. The model has one; teachers that run live have theirs, of the
same crop: each sample is augmented under a seed made of the run's seed, the epoch and the sample's index, the same
for all views, so the teachers see what the model sees, at their own resolution and normalisation.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from hubscout.hubs import Batch, Preprocessing

_MASK = (1 << 64) - 1


@dataclass
class BatchPlan:
    """The order of the data: a new permutation for each epoch, cut into equal batches of at most `batch_size`.

    Equal, because a last batch of one sample is what breaks batch normalisation.

    >>> plan = BatchPlan(samples=65, batch_size=64, seed=0)
    >>> plan.batches_per_epoch, [len(plan.batch(step)) for step in range(4)]
    (2, [32, 33, 32, 33])
    """

    samples: int
    batch_size: int
    seed: int
    _epoch: int = field(default=-1, repr=False)
    _order: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64), repr=False)

    @property
    def batches_per_epoch(self) -> int:
        """How many optimiser steps an epoch takes."""
        return math.ceil(self.samples / self.batch_size)

    def epoch(self, step: int) -> int:
        """The epoch of a step, from 0."""
        return step // self.batches_per_epoch

    def batch(self, step: int) -> np.ndarray:
        """Sample indices of a step, over all processes."""
        epoch, position = divmod(step, self.batches_per_epoch)
        if epoch != self._epoch:
            self._order = np.random.default_rng([self.seed, epoch]).permutation(self.samples)
            self._epoch = epoch
        count = self.batches_per_epoch
        return self._order[position * self.samples // count : (position + 1) * self.samples // count]

    def share(self, step: int, process: int, processes: int) -> np.ndarray:
        """The part of a step's batch that one of several processes works on."""
        return np.array_split(self.batch(step), processes)[process]


def mixed_seed(*parts: int) -> int:
    """One 63-bit seed out of several whole numbers (the splitmix64 mix).

    >>> mixed_seed(0, 1) != mixed_seed(1, 0)
    True
    """
    state = 0x243F6A8885A308D3
    for part in parts:
        state = (state ^ (part & _MASK)) + 0x9E3779B97F4A7C15 & _MASK
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state >> 1


def uniforms(indices: np.ndarray, count: int, *seeds: int) -> np.ndarray:
    """(len(indices), count) numbers in [0, 1), a function of the seeds, the index and the column alone."""
    with np.errstate(over="ignore"):
        state = np.asarray(indices, dtype=np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15)
        state = (
            state + np.uint64(mixed_seed(*seeds)) + np.arange(count, dtype=np.uint64) * np.uint64(0xD1342543DE82EF95)
        )
        for _ in range(2):
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state = state ^ (state >> np.uint64(31))
    return (state >> np.uint64(11)).astype(np.float64) / float(1 << 53)


MODEL = "model"


@dataclass(frozen=True)
class Share:
    """What one process works on in one step."""

    samples: Tensor
    views: Mapping[str, Batch]
    partners: Tensor | None = None
    """Mixup: the sample that each one was mixed with."""
    weight: float = 1.0
    """Mixup: of the sample itself; its partner has the rest."""

    def slices(self, size: int) -> Iterator[Share]:
        """Cut into micro-batches of at most `size` samples, of nearly equal length."""
        count = len(self.samples)
        parts = -(-count // size)
        for part in range(parts):
            low, high = part * count // parts, (part + 1) * count // parts
            views = {name: {key: value[low:high] for key, value in batch.items()} for name, batch in self.views.items()}
            partners = None if self.partners is None else self.partners[low:high]
            yield Share(self.samples[low:high], views, partners, self.weight)

    def pin_memory(self) -> Share:
        """The views in memory that a device reads directly (called by the loader)."""
        pinned = {name: {key: value.pin_memory() for key, value in batch.items()} for name, batch in self.views.items()}
        return Share(self.samples, pinned, self.partners, self.weight)

    def to(self, device: torch.device) -> Share:
        """The views on a device; the sample numbers stay where they are."""
        views = {name: move(batch, device) for name, batch in self.views.items()}
        return Share(self.samples, views, self.partners, self.weight)


class Batches(Protocol):
    """Where the steps' data comes from: decoded as it is needed, or held in memory."""

    def train(self, plan: BatchPlan, steps: range, process: int, processes: int) -> Iterator[Share]:
        """The shares of a process for a range of steps."""
        ...

    def evaluate(self, samples: np.ndarray, batch_size: int) -> Iterator[Share]:
        """The samples in order, without augmentation."""
        ...


def move(batch: Batch, device: torch.device) -> Batch:
    """A batch on a device; images there in the memory layout that convolutions are fastest with."""
    moved = {}
    for name, value in batch.items():
        tensor = value.to(device, non_blocking=True)
        if device.type == "cuda" and tensor.ndim == 4:
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        moved[name] = tensor
    return moved


def distinct_views(preprocessings: Mapping[str, Preprocessing]) -> tuple[dict[str, Preprocessing], dict[str, str]]:
    """The preprocessings that really differ, and for each name the one that serves it."""
    by_key: dict[str, str] = {}
    served = {name: by_key.setdefault(preprocessing.key, name) for name, preprocessing in preprocessings.items()}
    return {name: preprocessings[name] for name in by_key.values()}, served


def view_of(epoch: int, fixed_views: int) -> int:
    """The number of the view that is shown in an epoch: a new one each time, or the fixed ones in turn.

    >>> [view_of(epoch, 2) for epoch in range(4)], [view_of(epoch, 0) for epoch in range(4)]
    ([0, 1, 0, 1], [0, 1, 2, 3])
    """
    return epoch % fixed_views if fixed_views else epoch


def default_workers(workers: int | None, samples: int, processes: int = 1) -> int:
    """How many decoding processes: one per processor, eight at most, none where starting them costs more."""
    if workers is not None:
        return workers
    if samples < 512:
        return 0
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8 if available <= 8 else 16, max(available // processes, 1))


class StreamedBatches:
    """Batches decoded by worker processes ahead of their use."""

    def __init__(
        self,
        inputs: Sequence[Any],
        preprocessings: Mapping[str, Preprocessing],
        *,
        seed: int,
        augment: bool,
        workers: int,
        pin_memory: bool = False,
        fixed_views: int = 0,
    ) -> None:
        self.fixed_views = fixed_views
        self.inputs = inputs
        self.preprocessings = dict(preprocessings)
        self.seed = seed
        self.augmented = {name: p.augmented() if augment else p for name, p in self.preprocessings.items()}
        self.workers = workers
        self.pin_memory = pin_memory

    def train(self, plan: BatchPlan, steps: range, process: int, processes: int) -> Iterator[Share]:
        """The shares of a process for a range of steps."""
        dataset = _Steps(self.inputs, self.augmented, plan, process, processes, self.seed, self.fixed_views)
        yield from self._load(dataset, steps)

    def evaluate(self, samples: np.ndarray, batch_size: int) -> Iterator[Share]:
        """The samples in order, without augmentation."""
        dataset = _Chunks(self.inputs, {MODEL: self.preprocessings[MODEL]}, samples, batch_size)
        yield from self._load(dataset, range(len(dataset)))

    def _load(self, dataset: Dataset[Share], items: range) -> Iterator[Share]:
        if not len(items):
            return
        yield from DataLoader(
            dataset,
            batch_size=None,
            sampler=_Fixed(items),
            num_workers=min(self.workers, len(items)),
            collate_fn=_unchanged,
            pin_memory=self.pin_memory,
            # The workers' own base seeds come from here, not from the run's generator, which stays untouched.
            generator=torch.Generator().manual_seed(0),
        )


class _Fixed(Sampler[int]):
    def __init__(self, items: range) -> None:
        self.items = items

    def __iter__(self) -> Iterator[int]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


def _unchanged(item: Any) -> Any:
    return item


class _Steps(Dataset[Share]):
    """Item s is a process's share of step s."""

    def __init__(
        self,
        inputs: Sequence[Any],
        preprocessings: Mapping[str, Preprocessing],
        plan: BatchPlan,
        process: int,
        processes: int,
        seed: int,
        fixed_views: int,
    ) -> None:
        self.inputs, self.preprocessings, self.plan = inputs, preprocessings, plan
        self.process, self.processes, self.seed, self.fixed_views = process, processes, seed, fixed_views

    def __getitem__(self, step: int) -> Share:
        samples = self.plan.share(step, self.process, self.processes)
        prepared: dict[str, list[Any]] = {name: [] for name in self.preprocessings}
        view = view_of(self.plan.epoch(step), self.fixed_views)
        with own_randomness():
            for sample in samples.tolist():
                raw = self.inputs[sample]
                for name, preprocessing in self.preprocessings.items():
                    reseed(mixed_seed(self.seed, view, sample))
                    prepared[name].append(preprocessing(raw))
        views = {name: preprocessing.collate(prepared[name]) for name, preprocessing in self.preprocessings.items()}
        return Share(torch.as_tensor(samples), views)


class _Chunks(Dataset[Share]):
    """Item i is the i-th chunk of a list of samples."""

    def __init__(
        self, inputs: Sequence[Any], preprocessings: Mapping[str, Preprocessing], samples: np.ndarray, size: int
    ) -> None:
        self.inputs, self.preprocessings, self.samples, self.size = inputs, preprocessings, samples, size

    def __len__(self) -> int:
        return -(-len(self.samples) // self.size)

    def __getitem__(self, chunk: int) -> Share:
        samples = self.samples[chunk * self.size : (chunk + 1) * self.size]
        raw = [self.inputs[sample] for sample in samples.tolist()]
        views = {name: p.collate([p(sample) for sample in raw]) for name, p in self.preprocessings.items()}
        return Share(torch.as_tensor(samples), views)


@contextmanager
def own_randomness() -> Iterator[None]:
    """Leave the process's random generators as they were found: augmentation has its own seeds."""
    python, numpy, pytorch = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(pytorch)


def reseed(seed: int) -> None:
    """Seed the three generators that augmentations draw from (on the CPU: the device's is the network's)."""
    random.seed(seed)
    np.random.seed(seed % (1 << 32))
    torch.default_generator.manual_seed(seed)
