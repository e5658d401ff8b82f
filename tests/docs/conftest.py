"""Small real data to run the pages on, as a user would have it: a folder of images and a few tables."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "docs" / "tools"))
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def common(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all test processes share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "documentation"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def data(common: Path) -> Path:
    """See `write_data`."""
    return write_data(common)


def write_data(common: Path) -> Path:
    """The files of `write_examples`, once for all test processes."""
    from filelock import FileLock

    from hubscout.cli.demo_data import write_examples

    folder = common / "data"
    with FileLock(common / "data.lock"):
        if not (folder / "pairs.csv").is_file():
            write_examples(folder)
    return folder


@pytest.fixture
def workplace(data: Path, common: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a copy of the data to run a page in; features are cached across pages."""
    folder = tmp_path / "work"
    shutil.copytree(data, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HUBSCOUT_CACHE", str(common / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "path", [*sys.path])
    return folder
