"""Which samples are in which batch: a pure function of the seed and the step, whoever asks.

Nothing is remembered between steps. A resumed run, a run on another number of processes and a run in one go see the
same samples in the same batches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

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
