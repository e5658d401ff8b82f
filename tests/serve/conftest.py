"""Real servers over real runs: small networks on small images, ranked by real subprocesses."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from small_models import COLOUR_NETWORKS, write_colour_images

ZOO = (
    COLOUR_NETWORKS
    + """

def green():
    return Channels([0.0, 1.0, 0.0])


def steady():
    return Channels([1.0, 1.0, 0.0], 0.4)


def endless():
    return Channels([1.0, 1.0, 1.0], 600.0)


def broken():
    raise RuntimeError("these weights are <b>cursed</b>")
"""
)


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("zoo") / "networks.py"
    path.write_text(ZOO)
    return f"python:{path}"


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder: 90 noisy images, reddish, greenish or bluish, in `colours`; a table; and what is no data."""
    home = tmp_path_factory.mktemp("data")
    write_colour_images(home / "colours")
    (home / "words.csv").write_text("text,label\ngood,1\nbad,0\n")
    (home / "notes.md").write_text("nothing to rank")
    (home / "empty").mkdir()
    return home


def rank(data: Path, models: list[str], out: Path, **options: Any) -> None:
    from hubscout.ranking import rank as rank_models
    from hubscout.tasks import open_task

    rank_models(open_task(data), models, cache=False, out=out, **options)


@pytest.fixture(scope="session")
def made_runs(tmp_path_factory: pytest.TempPathFactory, data: Path, zoo: str) -> Path:
    """Two rankings of the same data and a tuning, made once; tests copy them."""
    runs = tmp_path_factory.mktemp("made")
    rank(data / "colours", [f"{zoo}:{name}" for name in ("colours", "red", "broken")], runs / "first")
    rank(
        data / "colours",
        [f"{zoo}:{name}" for name in ("colours", "red", "green")],
        runs / "team" / "second",
        metrics=("logme", "knn"),
        limit=45,
    )
    return runs


@pytest.fixture
def runs(made_runs: Path, tmp_path: Path) -> Path:
    """A folder of runs of the test's own."""
    return Path(shutil.copytree(made_runs, tmp_path / "runs"))


@dataclass
class Served:
    """A running `hubscout serve`."""

    process: subprocess.Popen[str]
    address: str
    token: str | None
    runs: Path
    data: Path

    @property
    def port(self) -> int:
        return int(self.address.rstrip("/").rpartition(":")[2])

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.address, timeout=120, trust_env=False, **options)

    def csrf(self) -> dict[str, str]:
        with self.client() as client:
            return {"X-CSRF-Token": client.get("/api/session").json()["csrf"]}

    def state(self, name: str) -> str:
        with self.client() as client:
            return str(client.get(f"/api/runs/{name}").json().get("state"))

    def wait_for(self, name: str, state: str, seconds: float = 200) -> None:
        deadline = time.monotonic() + seconds
        while (found := self.state(name)) != state:
            assert time.monotonic() < deadline, f"{name} is {found}, not {state}"
            time.sleep(0.1)


def start_server(runs: Path, data: Path, *options: str) -> Served:
    environment = {key: value for key, value in os.environ.items() if key != "HUBSCOUT_TOKEN"}
    environment |= {"HUBSCOUT_CACHE": str(runs.parent / "cache"), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "hubscout", "serve", str(runs), "--data", str(data), "--port", "0", *options],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    assert process.stderr is not None
    said = process.stderr.readline()
    found = re.search(r"at (http://\S+?:\d+/)(?:\?token=(\S+))?", said)
    if found is None:
        process.kill()
        raise AssertionError(said + process.stderr.read())
    return Served(process, found[1], found[2], runs, data)


@pytest.fixture
def serve(data: Path, zoo: str, tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Start real servers; they are stopped, and what they started with them.

    It asks for `tmp_path`, where tests keep their runs, which is then removed after they were stopped.
    """
    from hubscout.serve.run_index import RunIndex
    from hubscout.serve.run_processes import read_note

    started: list[Served] = []

    def start(runs: Path, *options: str) -> Served:
        offered = [
            word for name in ("colours", "red", "steady", "endless", "broken") for word in ("-m", f"{zoo}:{name}")
        ]
        started.append(start_server(runs, data, *offered, *options))
        return started[-1]

    yield start
    for served in started:
        for name in RunIndex(served.runs).names():
            note = read_note(served.runs / name)
            if note is not None:
                note.stop(force=True)
        if served.process.poll() is None:
            served.process.terminate()
            served.process.wait(20)
        assert served.process.stderr is not None
        served.process.stderr.close()


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go: $HUBSCOUT_ARTEFACTS, to look at them, or a temporary folder."""
    given = os.environ.get("HUBSCOUT_ARTEFACTS")
    folder = Path(given) if given else tmp_path_factory.mktemp("artefacts")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
