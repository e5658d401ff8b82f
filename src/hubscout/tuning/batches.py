"""From a split to batches: which samples, decoded by worker processes as training goes, augmented reproducibly.

Which samples are in which batch is a pure function of the seed and the step, whoever asks: a resumed run, a run on
another number of processes and a run in one go see the same samples in the same batches.

A *view* is the input as one preprocessing makes it. The model has one; teachers that run live have theirs, of the
same crop: each sample is augmented under a seed made of the run's seed, the epoch and the sample's index, the same
for all views, so the teachers see what the model sees, at their own resolution and normalisation.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from hubscout.hubs import Batch, Preprocessing
from hubscout.hubs.length_groups import length_groups, trimmed
from hubscout.runs.run_folder import usable_cores

MODEL = "model"
"""The name of the view of the model that is tuned."""
_CPU = torch.device("cpu")
_MASK = (1 << 64) - 1


@dataclass(frozen=True)
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
        order, count = _order(self.samples, self.seed, epoch), self.batches_per_epoch
        return order[position * self.samples // count : (position + 1) * self.samples // count]

    def share(self, step: int, process: int, processes: int) -> np.ndarray:
        """The part of a step's batch that one of several processes works on."""
        return np.array_split(self.batch(step), processes)[process]


@lru_cache(maxsize=2)
def _order(samples: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(samples)


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


@dataclass(frozen=True)
class Share:
    """What one process works on in one step."""

    samples: Tensor
    views: Mapping[str, Batch]
    partners: Tensor | None = None
    """Mixup: the sample that each one was mixed with."""
    weight: float = 1.0
    """Mixup: of the sample itself; its partner has the rest."""

    def by_length(self, device: str) -> list[Share]:
        """Cut into groups of texts or sounds of similar length where that saves padding; else itself alone."""
        groups = length_groups(self.views[MODEL], device) if self.partners is None else None
        if groups is None:
            return [self]
        return [
            Share(
                self.samples[places],
                {
                    name: trimmed({key: value[places] for key, value in batch.items()})
                    for name, batch in self.views.items()
                },
            )
            for places in groups
        ]

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
        return replace(self, views=pinned)

    def to(self, device: torch.device) -> Share:
        """The views on a device; the sample numbers stay where they are."""
        return replace(self, views={name: move(batch, device) for name, batch in self.views.items()})


@dataclass(eq=False)
class Batches(ABC):
    """Where the steps' data comes from: decoded as it is needed, or held in memory."""

    inputs: Sequence[Any]
    preprocessings: Mapping[str, Preprocessing]
    """By the names of the views."""
    _: KW_ONLY
    seed: int
    augment: bool
    workers: int
    """Processes or threads that decode."""
    device: torch.device = _CPU
    fixed_views: int = 0
    """See `view_of`."""

    @abstractmethod
    def __post_init__(self) -> None:
        """Make ready."""

    @abstractmethod
    def train(self, plan: BatchPlan, steps: range, process: int, processes: int) -> Iterator[Share]:
        """The shares of a process for a range of steps."""

    @abstractmethod
    def evaluate(self, samples: np.ndarray, batch_size: int) -> Iterator[Share]:
        """The samples in order, without augmentation."""


def move(batch: Batch, device: torch.device) -> Batch:
    """A batch on a device."""
    return {name: value.to(device, non_blocking=True) for name, value in batch.items()}


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
    available = usable_cores()
    return min(8 if available <= 8 else 16, max(available // processes, 1))


class StreamedBatches(Batches):
    """Batches decoded by worker processes ahead of their use."""

    def __post_init__(self) -> None:
        self.augmented = {name: p.augmented() if self.augment else p for name, p in self.preprocessings.items()}

    def train(self, plan: BatchPlan, steps: range, process: int, processes: int) -> Iterator[Share]:
        parts = ((plan.share(step, process, processes), view_of(plan.epoch(step), self.fixed_views)) for step in steps)
        return self._load(_Prepared(self.inputs, self.augmented, self.seed), parts, len(steps))

    def evaluate(self, samples: np.ndarray, batch_size: int) -> Iterator[Share]:
        starts = range(0, len(samples), batch_size)
        parts = ((samples[start : start + batch_size], None) for start in starts)
        return self._load(_Prepared(self.inputs, {MODEL: self.preprocessings[MODEL]}), parts, len(starts))

    def _load(self, prepared: _Prepared, parts: Iterator[_Part], count: int) -> Iterator[Share]:
        yield from DataLoader(
            prepared,
            batch_size=None,
            sampler=parts,
            num_workers=min(self.workers, count),
            pin_memory=self.device.type == "cuda",
            # The workers' own base seeds come from here, not from the run's generator, which stays untouched.
            generator=torch.Generator().manual_seed(0),
        )


_Part = tuple[np.ndarray, int | None]
"""Samples, and the number of the view that they are augmented under; None: as they are."""


@dataclass(frozen=True)
class _Prepared(Dataset[Share]):
    """Item `(samples, view)` is these samples, decoded and prepared."""

    inputs: Sequence[Any]
    preprocessings: Mapping[str, Preprocessing]
    seed: int = 0

    def __getitem__(self, part: _Part) -> Share:
        samples, view = part
        prepared: dict[str, list[Any]] = {name: [] for name in self.preprocessings}
        with own_randomness():
            for sample in samples.tolist():
                raw = self.inputs[sample]
                for name, preprocessing in self.preprocessings.items():
                    if view is not None:
                        reseed(mixed_seed(self.seed, view, sample))
                    prepared[name].append(preprocessing(raw))
        views = {name: preprocessing.collate(prepared[name]) for name, preprocessing in self.preprocessings.items()}
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
