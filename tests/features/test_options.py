"""`ExtractionOptions`: every field reaches a model through `extract` and `rank` without a line in between."""

from __future__ import annotations

import dataclasses
import json
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from hubscout.errors import InputError, MissingDependencyError, UnknownNameError
from hubscout.features import ExtractionOptions, extract
from hubscout.features.extractor import Extractor
from hubscout.features.options import installed_runtimes
from hubscout.ranking import rank
from hubscout.tasks import Task

OTHERS: dict[str, Any] = {
    "layers": ("stem",),
    "device": "cpu",
    "precision": "float32",
    "batch_size": 7,
    "blocks": 4,
    "skip_bad": True,
}


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[ExtractionOptions]:
    """The options of every pass of a model."""
    found: list[ExtractionOptions] = []
    real = Extractor.__post_init__

    def watch(self: Extractor) -> None:
        found.append(self.options)
        real(self)

    monkeypatch.setattr(Extractor, "__post_init__", watch)
    return found


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(ExtractionOptions)])
def test_every_field_is_a_keyword_of_extract_and_rank(name, used, make_backbone, make_image_task):
    value = OTHERS.get(name, getattr(ExtractionOptions(), name))
    extract(make_backbone(), make_image_task(40), **{name: value})
    ranking = rank(make_image_task(40), make_backbone(), cache=False, measure_latency=False, **{name: value})
    assert not ranking.failures
    assert used == [ExtractionOptions.of(**{name: value})] * 2


def test_a_ranking_keeps_the_options_that_decide_what_comes_out(make_backbone, make_image_task):
    ranking = rank(make_image_task(40), make_backbone(), cache=False, extraction=ExtractionOptions(**OTHERS), blocks=5)
    kept = json.loads(json.dumps(ranking.settings))
    expected = {name: value for name, value in {**OTHERS, "blocks": 5}.items() if name not in ("device", "batch_size")}
    assert {name: kept[name] for name in expected} == {**expected, "layers": ["stem"]}
    assert not {"device", "batch_size"} & set(kept)
    assert ExtractionOptions.from_record(kept) == ExtractionOptions(**expected).replace(layers=["stem"])


def test_an_unknown_option_is_named_before_anything_runs(make_image_task):
    for function in (extract, rank):
        with pytest.raises(UnknownNameError, match=r"'devise'\. Did you mean 'device'"):
            function("no/such/model", make_image_task(40), devise="cpu")
    for name, function in (("extraction", rank), ("options", extract)):
        with pytest.raises(UnknownNameError, match=r"'devise'\. Did you mean 'device'"):
            function("no/such/model", make_image_task(40), devise="cpu", **{name: ExtractionOptions()})


pytest.importorskip("onnxruntime")


@pytest.fixture
def task(make_image_task: Any) -> Task:
    return make_image_task(800)


def large(backbone: Any) -> Any:
    backbone.card = dataclasses.replace(backbone.card, flops=10**9)
    return backbone


def test_auto_accelerates_what_is_large_enough(make_backbone: Any, make_image_task: Any) -> None:
    backends = [
        extract(backbone, make_image_task(n), device="cpu").backend
        for backbone, n in ((make_backbone(), 800), (large(make_backbone()), 500))
    ]
    assert backends == ["torch", "torch"]
    assert extract(large(make_backbone()), make_image_task(520), device="cpu").backend != "torch"


@pytest.mark.parametrize(("products", "backend"), [(0, "openvino"), (3, "onnxruntime"), (20, "torch")])
def test_of_networks_over_images_auto_accelerates_the_convolutional_ones(
    make_backbone: Any, task: Task, products: int, backend: str
) -> None:
    if backend not in ("torch", *installed_runtimes()):
        pytest.skip(f"{backend} is not installed")
    backbone = large(make_backbone())
    backbone.module.update({f"block{i}": torch.nn.Linear(2, 2) for i in range(products)})
    images = dataclasses.replace(task, modality="image")
    assert extract(backbone, images, device="cpu", indices=range(20)).backend == backend


def test_every_part_of_the_data_comes_to_the_same(make_backbone: Any, task: Task) -> None:
    parts = [{"indices": range(10)}, {"shards": [2]}, {}]
    found = {extract(large(make_backbone()), task, device="cpu", **part).backend for part in parts}
    assert len(found) == 1
    assert found != {"torch"}


def test_a_wrong_word(backbone: Any, task: Task) -> None:
    with pytest.raises(InputError, match="accelerate must be one of auto, off, onnxruntime, openvino; got 'onnx'"):
        extract(backbone, task, accelerate="onnx")


def test_a_reduced_precision_cannot_be_accelerated(backbone: Any, task: Task) -> None:
    with pytest.raises(InputError, match="in float32; got the device 'cpu' and the precision 'bfloat16'"):
        extract(backbone, task, accelerate="onnxruntime", precision="bfloat16")


@pytest.mark.parametrize(
    ("package", "auto"), [("onnx", "torch"), ("onnxruntime", "torch"), ("openvino", "onnxruntime")]
)
def test_auto_takes_what_is_installed(
    make_backbone: Any, task: Task, monkeypatch: pytest.MonkeyPatch, package: str, auto: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert extract(large(make_backbone()), task, device="cpu").backend == auto
    extra = "openvino" if package == "openvino" else "onnx"
    with pytest.raises(MissingDependencyError, match=rf"'{package}'.*hubscout\[{extra}\]"):
        extract(make_backbone(), task, accelerate="openvino")


def test_an_openvino_that_does_not_load_is_as_if_it_were_not_there(
    make_backbone: Any, task: Task, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "openvino.py").write_text("raise ImportError('libtbb.so.12: cannot open shared object file')")
    monkeypatch.delitem(sys.modules, "openvino", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    found = extract(large(make_backbone()), task, device="cpu")
    assert (found.backend, found.messages) == ("onnxruntime", ())
    with pytest.raises(InputError, match=r"does not load \(ImportError: libtbb.*use accelerate='auto'"):
        extract(make_backbone(), task, accelerate="openvino")


def test_an_openvino_that_is_too_old_is_as_if_it_were_not_there(
    make_backbone: Any, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = ModuleType("openvino")
    old.__spec__ = ModuleSpec("openvino", None)
    monkeypatch.setitem(sys.modules, "openvino", old)
    assert extract(large(make_backbone()), task, device="cpu").backend == "onnxruntime"
    with pytest.raises(InputError, match="it is too old"):
        extract(make_backbone(), task, accelerate="openvino")
