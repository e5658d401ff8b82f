"""A small folder of images and a file of small networks, for commands that need both."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

ZOO = '''
import torch
from torch import nn

CONFIG = {"input_size": (3, 16, 16), "mean": (0.5,) * 3, "std": (0.5,) * 3, "crop_pct": 1.0}


class Channels(nn.Module):
    """Averages of patches of some colour channels."""

    def __init__(self, keep):
        super().__init__()
        self.pretrained_cfg = CONFIG
        self.num_features = 12
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.keep = nn.Parameter(torch.tensor(keep), requires_grad=False)

    def forward(self, image):
        return self.pool(image * self.keep[:, None, None]).flatten(1)


def colours():
    return Channels([1.0, 1.0, 1.0])


def red():
    return Channels([1.0, 0.0, 0.0])


def broken():
    raise RuntimeError("these weights are cursed")


class Stop(Channels):
    def forward(self, image):
        raise KeyboardInterrupt


def stop():
    return Stop([1.0, 1.0, 1.0])
'''


@pytest.fixture(autouse=True)
def _folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without --out goes to runs/ of the current folder."""
    here = tmp_path / "current"
    here.mkdir()
    monkeypatch.chdir(here)


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("zoo") / "networks.py"
    path.write_text(ZOO)
    return f"python:{path}"


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """90 noisy images, reddish, greenish or bluish."""
    folder = tmp_path_factory.mktemp("data") / "colours"
    generator = np.random.default_rng(0)
    for place, name in enumerate(("red", "green", "blue")):
        (folder / name).mkdir(parents=True)
        for index in range(30):
            pixels = generator.integers(0, 256, (16, 16, 3)) * 0.5
            pixels[:, :, place] += generator.integers(10, 60)
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / name / f"{index}.png")
    return folder


@pytest.fixture
def hubscout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """Run the command line in this process: `hubscout("rank", ...)` gives exit_code, stdout, stderr.

    `seconds_ago` is how long the command has been under way when its options are read.
    """
    monkeypatch.setenv("HUBSCOUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.delenv("HUBSCOUT_DEBUG", raising=False)

    def run(*arguments: str | Path, seconds_ago: float = 0.0) -> Any:
        from hubscout.cli.app import app

        obj = {"began": time.perf_counter() - seconds_ago}
        return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="hubscout", obj=obj)

    return run


@pytest.fixture(scope="session")
def slow_zoo(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A network that takes a second a batch, and the quick one beside it."""
    path = tmp_path_factory.mktemp("slow") / "slow_networks.py"
    path.write_text(ZOO + SLOW)
    return f"python:{path}"


SLOW = """

class Slow(Channels):
    def forward(self, image):
        import time

        time.sleep(1.0)
        return super().forward(image)


def slow():
    return Slow([1.0, 1.0, 1.0])
"""


@pytest.fixture
def run_folder(hubscout: Callable[..., Any], images: Path, zoo: str, tmp_path: Path) -> Path:
    """A ranking of two models."""
    folder = tmp_path / "run"
    result = hubscout("rank", images, "-m", f"{zoo}:red,{zoo}:colours", "--out", folder, "-q")
    assert result.exit_code == 0
    return folder
