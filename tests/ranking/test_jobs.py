"""What is sent to a worker can be sent, and asks for no more of a machine than it needs."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from hubscout.engines import LocalEngine
from hubscout.hubs import load
from hubscout.ranking.candidates import Candidate
from hubscout.ranking.jobs import Needs, TaskReference, guess_params, job_needs
from hubscout.tasks import Task


class Machines(LocalEngine):
    """Eight cores for each of two GPUs."""

    def total(self, resource: str) -> float:
        return {"CPU": 16.0, "GPU": 2.0}[resource]


@pytest.mark.parametrize(
    ("params", "device", "cpus", "gpus"),
    [
        (5_000_000, "cuda", 2.0, 0.25),
        (100_000_000, "cuda", 4.0, 0.5),
        (300_000_000, "cuda", 8.0, 1.0),
        (None, "auto", 8.0, 1.0),
        (5_000_000, "cpu", 1.0, 0.0),
    ],
)
def test_small_models_share_a_gpu_and_its_cores(params: int | None, device: str, cpus: float, gpus: float) -> None:
    assert job_needs(params, 10, Machines(), device) == Needs(cpus, gpus, 10.0 * (params or 120_000_000))


def test_the_size_of_a_model_is_known_without_loading_it(zoo: str, tmp_path: Path) -> None:
    (tmp_path / "weights.pth").write_bytes(b"\0" * 4000)
    assert guess_params(Candidate(f"file:{tmp_path}/weights.pth?arch=timm/resnet18")) == 1000
    assert guess_params(Candidate(f"file:{tmp_path}/nowhere.pth")) is None
    assert guess_params(Candidate(f"python:{zoo}:look?first=0&last=4")) is None
    backbone = load(f"python:{zoo}:look?first=0&last=4")
    assert guess_params(Candidate("ready", backbone)) == backbone.card.params


def test_a_task_travels_by_reference(array_task: Task) -> None:
    here = TaskReference.of(array_task, LocalEngine())
    assert here.open() is array_task
    engine = LocalEngine(workers=1)
    try:
        sent = pickle.loads(pickle.dumps(TaskReference.of(array_task, engine)))
        assert sent.open().fingerprint == array_task.fingerprint
        assert sent.open() is sent.open()
    finally:
        engine.close()
