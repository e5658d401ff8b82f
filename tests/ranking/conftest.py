"""Networks and arrays to rank."""

from __future__ import annotations

import numpy as np
import pytest

from hubscout.tasks import Task

ZOO = '''
import torch
from torch import nn


class Look(nn.Module):
    """Sees the columns `first` to `last` of the input, mixed, with an inner layer to tap."""

    def __init__(self, first, last, seed=0, noise=0.0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.num_features = 8
        self.mix = nn.Linear(20, 16, bias=False)
        self.out = nn.Linear(16, 8, bias=False)
        with torch.no_grad():
            self.mix.weight.zero_()
            self.mix.weight[:, first:last] = torch.randn(16, last - first, generator=generator)
            self.out.weight.copy_(torch.randn(8, 16, generator=generator) / 4)
            if noise:
                self.mix.weight.add_(noise * torch.randn(16, 20, generator=generator))

    def forward(self, inputs):
        return self.out(self.mix(inputs))


def look(first, last, seed=0, noise=0.0):
    return Look(first, last, seed, noise)


def broken():
    raise RuntimeError("these weights are cursed")


class Crash(Look):
    def forward(self, inputs):
        raise ZeroDivisionError("in the forward pass")


def crash():
    return Crash(0, 4)


class Interrupt(Look):
    def forward(self, inputs):
        raise KeyboardInterrupt


def interrupt():
    return Interrupt(0, 4)


def sleepy():
    import time

    time.sleep(0.6)
    return Look(0, 4)
'''


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of small networks; `python:{zoo}:look?first=0&last=4` opens one."""
    path = tmp_path_factory.mktemp("zoo") / "zoo.py"
    path.write_text(ZOO)
    return str(path)


@pytest.fixture(scope="session")
def array_task() -> Task:
    """600 rows of 20 columns: the first four tell most about the class, the next four the rest, the others nothing."""
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((600, 20)).astype(np.float32)
    signal = inputs[:, 0:3] + 0.7 * inputs[:, 4:7] + 0.3 * generator.standard_normal((600, 3))
    return Task.from_arrays(inputs, np.array(["a", "b", "c"])[signal.argmax(axis=1)], name="columns")


@pytest.fixture
def models(zoo: str) -> dict[str, str]:
    return {
        "strong": f"python:{zoo}:look?first=0&last=4",
        "weak": f"python:{zoo}:look?first=4&last=8",
        "blind": f"python:{zoo}:look?first=12&last=20",
        "broken": f"python:{zoo}:broken",
        "crash": f"python:{zoo}:crash",
        "interrupt": f"python:{zoo}:interrupt",
    }
