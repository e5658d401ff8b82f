"""What is sent to a worker can be sent, and asks for no more of a machine than it needs."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hubscout.engines import LocalEngine
from hubscout.features import ExtractionOptions
from hubscout.hubs import load
from hubscout.ranking import jobs
from hubscout.ranking.assess import Settings
from hubscout.ranking.candidates import Candidate
from hubscout.ranking.jobs import ImportForModels, Needs, TaskReference, guess_params, job_needs, workers_ahead
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


def test_a_folder_of_images_is_not_read_again_where_its_files_are_seen(pictures: Path) -> None:
    task = Task.from_image_folder(pictures)
    engine = LocalEngine(workers=1)
    try:
        sent = TaskReference.of(task, engine)
        assert sent.source is None
        opened = pickle.loads(pickle.dumps(sent)).open()
        assert opened.fingerprint == task.fingerprint
        assert np.array_equal(np.asarray(opened.train.inputs[3]), np.asarray(task.train.inputs[3]))
        elsewhere = SimpleNamespace(elsewhere=True, shares_files=lambda: False)
        assert TaskReference.of(task, elsewhere).source == task.source  # type: ignore[arg-type]
    finally:
        engine.close()


def test_workers_begin_before_the_data_are_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    monkeypatch.setattr(LocalEngine, "prepare", lambda self, work: begun.append(work))
    for models in ("timm/resnet18", ["timm/resnet18", "file:a.pth?arch=timm/vgg11"]):
        with workers_ahead("local", {"workers": 2}, models) as (engine, options):
            assert isinstance(engine, LocalEngine)
            assert (engine.workers, options) == (2, None)
            assert begun.pop() == ImportForModels(("timm",))
    named = ["timm/resnet18"]
    for given in [("local", {"workers": 0}, named), ("ray", {"workers": 2}, named), ("local", {"workers": 2}, None)]:
        with workers_ahead(*given) as unchanged:
            assert unchanged == given[:2]
    assert begun == []


PREPARED = """
import sys
from hubscout import rank
from hubscout.ranking.jobs import ImportForModels

ImportForModels(("timm",))()
assert "torch._dynamo.config" not in sys.modules
before = set(sys.modules)
model = "timm/resnet18?pretrained=False&input_size=32"
ranking = rank(sys.argv[1], model, device="cpu", cache=False, progress=False)
assert len(ranking) == 1, ranking.failures
large = {"mpmath", "numpy", "scipy", "sympy", "timm", "torch", "torchvision", "transformers"}
print(*sorted(name for name in set(sys.modules) - before if name.partition(".")[0] in large))
"""


def test_workers_have_what_models_need_before_they_are_forked(pictures: Path) -> None:
    pytest.importorskip("timm")
    given = [sys.executable, "-c", PREPARED, str(pictures)]
    done = subprocess.run(given, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


def test_what_workers_import_goes_by_the_names_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = LocalEngine()
    begun: list[object] = []
    monkeypatch.setattr(engine, "prepare", begun.append)
    names = [
        "timm/resnet18",
        "file:w.pth?arch=torchvision/resnet18",
        "timm/resnet*",
        "onnx:a.onnx",
        "small",
        "python:a:b",
    ]
    ImportForModels.begin(engine, names)
    ImportForModels.begin(engine)
    assert begun == [ImportForModels(("", "timm", "torchvision")), ImportForModels(())]
    assert pickle.loads(pickle.dumps(begun[0])) == begun[0]
    ImportForModels(("", "no such hub"))()


@pytest.mark.parametrize(("in_worker", "device"), [(True, "cuda"), (True, "cpu"), (False, "cuda")])
def test_a_gpu_is_started_while_a_worker_opens_its_first_model(
    array_task: Task, zoo: str, monkeypatch: pytest.MonkeyPatch, in_worker: bool, device: str
) -> None:
    order: list[str] = []
    monkeypatch.setattr(jobs, "pick_device", lambda asked: asked)
    monkeypatch.setattr(jobs, "warm_up", order.append)
    monkeypatch.setattr(jobs, "assess", lambda *_: order.append("assess"))
    settings = Settings(metrics=("logme",), extraction=ExtractionOptions(device=device), in_worker=in_worker)
    task = TaskReference.of(array_task, LocalEngine())
    jobs.AssessModel(jobs.SentModel(f"python:{zoo}:look", "one"), task, settings, (None,))()
    assert order == (["cuda", "assess"] if in_worker and device == "cuda" else ["assess"])
