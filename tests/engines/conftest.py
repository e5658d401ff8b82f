"""A real Ray cluster on this machine, and small networks that misbehave once, or always."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubscout.engines import RayEngine
from hubscout.tasks import Task

ZOO = '''
import os, signal, sys, time
from pathlib import Path
import torch
from torch import nn


def once(flag):
    """Whether this is the first time, over all processes."""
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


class Look(nn.Module):
    """Sees some columns of the input. In its second batch it meets its fault."""

    def __init__(self, first, last, fault, flag, pace):
        super().__init__()
        self.num_features = 8
        self.mix = nn.Linear(20, 16, bias=False)
        self.out = nn.Linear(16, 8, bias=False)
        self.fault, self.flag, self.pace, self.batches = fault, flag, pace, 0
        self.load_state_dict(torch.load(Path(__file__).parent / f"{first}-{last}.pt", weights_only=True))

    def forward(self, inputs):
        self.batches += 1
        time.sleep(self.pace)
        if self.batches == 2 and self.fault:
            getattr(sys.modules[__name__], self.fault)(self.flag)
        return self.out(self.mix(inputs))


def kill_once(flag):
    if once(flag):
        os.kill(os.getpid(), signal.SIGKILL)


def kill_always(flag):
    with open(flag, "a") as file:
        file.write("x")
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for_company(flag):
    Path(flag).touch()
    log = Path(__file__).parent / "loads.txt"
    for _ in range(2400):
        if any(line.split()[0] != str(os.getpid()) for line in log.read_text().splitlines()):
            return
        time.sleep(0.05)
    raise RuntimeError("no other process has opened a model for two minutes")


def hang(flag):
    Path(flag).touch()
    time.sleep(1000)


def lose_machine(flag):
    import ray
    if once(flag + ".met"):
        Path(flag + ".tmp").write_text(ray.get_runtime_context().get_node_id())
        os.replace(flag + ".tmp", flag)
        time.sleep(1000)


def fill_memory(flag):
    if once(flag):
        held = []
        for _ in range(80):
            held.append(bytearray(os.urandom(1 << 20) * 100))
            time.sleep(0.05)
        raise RuntimeError("nobody stopped me at 8 GB")


def look(first, last, fault="", flag="", pace=0.0):
    with open(Path(__file__).parent / "loads.txt", "a") as file:
        file.write(f"{os.getpid()} {first}-{last}\\\\n")
    return Look(first, last, fault, flag, pace)


def broken():
    raise RuntimeError("these weights are cursed")
'''


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with networks and their weights; `python:{zoo}/zoo.py:look?first=0&last=4` opens one."""
    import torch

    folder = tmp_path_factory.mktemp("zoo")
    (folder / "zoo.py").write_text(ZOO.replace("\\\\n", "\\n"))
    for seed, (first, last) in enumerate([(0, 4), (4, 8), (12, 20)]):
        generator = torch.Generator().manual_seed(seed)
        mix = torch.zeros(16, 20)
        mix[:, first:last] = torch.randn(16, last - first, generator=generator)
        weights = {"mix.weight": mix, "out.weight": torch.randn(8, 16, generator=generator) / 4}
        torch.save(weights, folder / f"{first}-{last}.pt")
    return folder


def columns(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The first four columns tell most about the class, the next four the rest, the others nothing."""
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((rows, 20)).astype(np.float32)
    signal = inputs[:, 0:3] + 0.7 * inputs[:, 4:7] + 0.3 * generator.standard_normal((rows, 3))
    return inputs, np.array(["a", "b", "c"])[signal.argmax(axis=1)]


@pytest.fixture(scope="session")
def task() -> Task:
    """2,100 train rows: nine shards."""
    return Task.from_arrays(*columns(3000), name="columns")


_kept: dict[str, Any] = {}
_to_close = ExitStack()


def kept_in_this_folder(request: pytest.FixtureRequest, name: str, make: Callable[[], AbstractContextManager]) -> Any:
    """What `make` opens, until a test of another folder is next: the processes of an idle cluster are never idle."""
    if name not in _kept:
        if not _kept:
            nodes = request.node.listchain()
            next(node for node in nodes if node.path == Path(__file__).parent).addfinalizer(close_all)
        _kept[name] = _to_close.enter_context(make())
    return _kept[name]


def close_all() -> None:
    _kept.clear()
    _to_close.close()


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Any:
    """A head that runs no jobs and two machines of one core each."""
    return kept_in_this_folder(request, "cluster", start_cluster)


@contextmanager
def start_cluster() -> Iterator[object]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # The two machines of the test are one; its memory is not theirs to watch.
    os.environ["RAY_memory_monitor_refresh_ms"] = "0"  # noqa: SIM112
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 100_000_000, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1, num_gpus=1, object_store_memory=100_000_000)
        yield cluster
    finally:
        import ray

        ray.shutdown()
        cluster.shutdown()
        del os.environ["RAY_memory_monitor_refresh_ms"]  # noqa: SIM112


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest, cluster: Any) -> RayEngine:
    """An engine on the cluster; its workers stay between tests."""
    return kept_in_this_folder(request, "engine", lambda: closing(RayEngine(address=cluster.address)))
