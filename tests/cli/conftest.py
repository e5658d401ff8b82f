"""A small folder of images and a file of small networks, for commands that need both."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from small_models import COLOUR_NETWORKS, write_colour_images

ZOO = (
    COLOUR_NETWORKS
    + """

def broken():
    raise RuntimeError("these weights are cursed")


class Stop(Channels):
    def forward(self, image):
        raise KeyboardInterrupt


def stop():
    return Stop([1.0, 1.0, 1.0])
"""
)


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
    return write_colour_images(tmp_path_factory.mktemp("data") / "colours")


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
