"""A race on a real cluster: arms side by side, and a machine that is lost costs at most a rung of one arm."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubscout.engines import RayEngine
from hubscout.racing import race
from hubscout.runs.events import Raced
from hubscout.tasks import Task

pytestmark = pytest.mark.ray

QUICK: dict[str, Any] = {"steps": 60, "batch_size": 32, "device": "cpu", "bootstrap_resamples": 20, "workers": 0}
NETWORKS = '''
import os
import time
from pathlib import Path

import torch
from torch import nn


def once(flag):
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def make(width=16, seed=0, flag="", pace=0.0):
    """With a flag, a network that in the middle of training says where it is, and waits to be lost with its machine."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
    net.num_features = width
    net.pretrained_cfg = {"input_size": (6,)}
    steps = []

    def meet(module, inputs):
        time.sleep(pace)
        if not module.training:
            return
        with open(Path(__file__).parent / f"steps-{width}-{seed}.txt", "a") as file:
            file.write(f"{os.getpid()}\\n")
        steps.append(1)
        if flag and len(steps) == 6 and once(flag + ".met"):
            import ray

            Path(flag + ".tmp").write_text(ray.get_runtime_context().get_node_id())
            os.replace(flag + ".tmp", flag)
            time.sleep(1000)

    net.register_forward_pre_hook(meet)
    return net
'''


@pytest.fixture
def networks(tmp_path: Path) -> Path:
    (tmp_path / "nets.py").write_text(NETWORKS)
    return tmp_path / "nets.py"


@pytest.fixture
def signs() -> Task:
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(500, 6)).astype(np.float32)
    return Task.from_arrays(inputs, (inputs[:, 0] * inputs[:, 1] > 0).astype(int), kind="classification", name="signs")


def steps_of(networks: Path, width: int) -> int:
    """Steps of training that networks of this width have seen, over all processes."""
    return len((networks.parent / f"steps-{width}-0.txt").read_text().split())


def seen(found: Any) -> dict[Any, Any]:
    return {
        (look.arm.learning_rate, look.arm.model.partition("&flag")[0], look.rung): look.metric for look in found.looks
    }


@pytest.mark.slow
def test_arms_run_side_by_side_to_the_same_end(
    signs: Task, networks: Path, engine: RayEngine, cluster: Any, tmp_path: Path
) -> None:
    models = [f"python:{networks}:make?width={width}&pace=0.01" for width in (8, 32)]
    deploy = f"python:{networks}:make?seed=3&width=6"
    here = race(signs, models, out=tmp_path / "here", deploy=deploy, **QUICK)
    for file in networks.parent.glob("steps-*"):
        file.unlink()
    heard: list[Any] = []
    there = race(signs, models, out=tmp_path / "there", deploy=deploy, engine=engine, observer=heard.append, **QUICK)
    assert seen(there) == pytest.approx(seen(here), abs=0.02)
    assert there.winner.model == here.winner.model
    assert there.tuned is not None
    assert there.deployed is not None
    assert there.deployed.metric("test").value == pytest.approx(here.deployed.metric("test").value, abs=0.05)  # type: ignore[union-attr]
    processes = {line for file in networks.parent.glob("steps-*") for line in file.read_text().split()}
    assert len(processes) >= 2
    assert sum(isinstance(event, Raced) and event.line["event"] == "look" for event in heard) == len(there.looks)


@pytest.mark.slow
def test_a_lost_machine_costs_at_most_a_rung_of_one_arm(
    signs: Task, networks: Path, engine: RayEngine, cluster: Any, tmp_path: Path
) -> None:
    flag = tmp_path / "where"
    models = [f"python:{networks}:make?width=8&flag={flag}", f"python:{networks}:make?width=32"]
    whole = race(signs, [models[0].partition("&flag")[0], models[1]], out=tmp_path / "whole", **QUICK)
    needed = steps_of(networks, 8)
    for file in networks.parent.glob("steps-*"):
        file.unlink()

    def lose() -> None:
        while not flag.exists():
            time.sleep(0.1)
        lost = flag.read_text()
        machine = next(node for node in cluster.worker_nodes if node.node_id == lost)
        cluster.remove_node(machine, allow_graceful=False)

    thread = threading.Thread(target=lose)
    thread.start()
    try:
        found = race(signs, models, out=tmp_path / "cut", engine=engine, **QUICK)
    finally:
        thread.join(timeout=60)
        cluster.add_node(num_cpus=1, num_gpus=1, object_store_memory=100_000_000)
    assert flag.exists()
    assert not [look.failure for look in found.looks if look.failure]
    assert seen(found) == pytest.approx(seen(whole), abs=0.02)
    assert 0 < steps_of(networks, 8) - needed <= max(whole.told.rungs)
    lines = [json.loads(line) for line in (tmp_path / "cut" / "race.jsonl").open()]
    assert len([line for line in lines if line["event"] == "look"]) == len(whole.looks)
