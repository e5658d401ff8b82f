from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hubscout.ranking.assess as module
from hubscout import rank
from hubscout.errors import InputError
from hubscout.evidence import Evidence, logme
from hubscout.features import ExtractionOptions
from hubscout.hubs import Backbone
from hubscout.metrics import METRICS, Score, metric, score
from hubscout.ranking.assess import Settings, assess
from hubscout.ranking.candidates import Candidate
from hubscout.ranking.layer_scores import scan_layers
from hubscout.runs.events import Observer
from hubscout.tasks import Split, Task


@pytest.fixture
def posterior_norm() -> Iterator[str]:
    """A metric of its own that is read from the evidence."""
    name = "test-posterior-norm"

    @metric(name, from_evidence=True, kinds=("classification",))
    def posterior_norm(evidence: Evidence, *, power: float = 2.0) -> Score:
        """The size of the posterior weights."""
        value = float((np.abs(evidence.weights) ** power).sum())
        return Score(value, evidence.standard_error, details={"evidence": evidence})

    yield name
    METRICS._entries.pop(name)


def test_a_new_metric_read_from_the_evidence_touches_nothing_else(
    posterior_norm: str, array_task: Task, zoo: str
) -> None:
    model = f"python:{zoo}:look?first=0&last=20"
    alone = rank(array_task, model, metrics=posterior_norm, cache=False).best
    beside = rank(array_task, model, metrics=("logme", posterior_norm), cache=False, layers="all", layer="best").best
    assert alone.score == alone.scores[posterior_norm] > 0
    assert alone.gain is not None
    assert alone.block_scores
    plain = rank(array_task, model, cache=False, layers="all", layer="best").best
    assert (beside.score, beside.layer) == (plain.score, plain.layer)
    assert beside.layer != ""  # of the layer that was chosen, so another number than that of the final features
    assert beside.scores[posterior_norm] != alone.scores[posterior_norm]


def test_it_is_scored_from_arrays_as_well(posterior_norm: str) -> None:
    generator = np.random.default_rng(0)
    features, labels = generator.standard_normal((60, 5)), generator.integers(0, 3, 60)
    given = {"features": features, "targets": labels, "kind": "classification"}
    for center in (False, True):
        weights = logme(features, labels, center=center).weights
        found = score(posterior_norm, **given, center=center, power=1.0)
        assert found.value == pytest.approx(np.abs(weights).sum())
    ready = score(posterior_norm, evidence=logme(features, labels), kind="classification")
    assert ready == score(posterior_norm, **given)
    with pytest.raises(InputError, match="has no option 'center'; it has: power"):
        score(posterior_norm, evidence=logme(features, labels), kind="classification", center=True)


def test_increments_that_ran_in_different_ways_run_again_in_one(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "network.py").write_text(
        "import torch\n\n\nclass Moments(torch.nn.Module):\n    num_features = 3\n\n    def forward(self, x):\n"
        "        return torch.stack([x.mean(1), x.amax(1), x.std(1)], dim=1)\n"
    )
    generator = np.random.default_rng(0)
    inputs = list(generator.standard_normal((60, 20)).astype(np.float32))
    inputs[1] = inputs[1][:10]  # the exported network takes 20 numbers, and was checked with other samples
    split = Split(inputs, generator.integers(0, 2, 60))
    task = Task("arrays", "classification", "array", ("a", "b"), {"train": split}, "arrays")
    model = Candidate(f"python:{tmp_path / 'network.py'}:Moments")
    rows = {}
    for accelerate in ("off", "onnxruntime"):
        options = ExtractionOptions(accelerate=accelerate, batch_size=1, device="cpu")
        settings = Settings(extraction=options, measure_latency=False)
        rows[accelerate] = assess(model, task, settings, [np.arange(20, 60), np.arange(20)])
    assert rows["off"].score == rows["onnxruntime"].score


@pytest.mark.parametrize("accelerate", ["off", "onnxruntime"])
def test_a_network_is_gone_before_its_layers_are_scored(
    accelerate: str, array_task: Task, zoo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if accelerate == "onnxruntime":
        pytest.importorskip("onnxruntime")
    opened: list[weakref.ref[Backbone]] = []
    there: list[bool] = []

    class Watched(Candidate):
        def open(self, observer: Observer | None = None) -> Backbone:
            found = super().open(observer)
            opened.append(weakref.ref(found))
            return found

    def scan(*args: Any, **options: Any) -> Any:
        there.append(opened[0]() is not None)
        return scan_layers(*args, **options)

    monkeypatch.setattr("hubscout.ranking.assess.scan_layers", scan)
    options = ExtractionOptions(accelerate=accelerate, layers="all", device="cpu")
    gc.disable()
    try:
        row = assess(Watched(f"python:{zoo}:look?first=0&last=20"), array_task, Settings(extraction=options), [None])
    finally:
        gc.enable()
    assert there == [False]
    assert row.backend == ("torch" if accelerate == "off" else accelerate)
    assert len(row.layers) > 1


@pytest.mark.parametrize(
    ("in_worker", "device", "shared"), [(True, "cuda:0", True), (True, "cpu", False), (False, "cuda:0", False)]
)
def test_a_gpu_is_shared_by_workers(
    array_task: Task, zoo: str, monkeypatch: pytest.MonkeyPatch, in_worker: bool, device: str, shared: bool
) -> None:
    told: list[bool] = []
    extraction = SimpleNamespace(device=device, rows=[0], backend="torch")
    monkeypatch.setattr(module, "_extract", lambda *_: extraction)
    monkeypatch.setattr(module, "measure_latency", lambda *_, device, shared: told.append(shared))
    monkeypatch.setattr(module, "check_latency", lambda *_: None)
    module.run_model(Candidate(f"python:{zoo}:look?first=0&last=20"), array_task, Settings(in_worker=in_worker), [None])
    assert told == [shared]


def test_a_worker_prepares_with_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubscout.features.preparing.default_threads", lambda: 16)
    for threads, expected in [(1, 2), (4, 4), (32, 16)]:
        monkeypatch.setattr("torch.get_num_threads", lambda threads=threads: threads)
        assert module.resources(Settings(in_worker=True))["workers"] == expected
    assert "workers" not in module.resources(Settings())
