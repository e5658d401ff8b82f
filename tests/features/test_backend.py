from __future__ import annotations

import dataclasses
import sys
from typing import Any

import pytest
import torch

from hubscout.errors import InputError, MissingDependencyError
from hubscout.features import extract
from hubscout.tasks import Task

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
        for backbone, n in ((make_backbone(), 800), (large(make_backbone()), 700))
    ]
    assert backends == ["torch", "torch"]
    assert extract(large(make_backbone()), make_image_task(800), device="cpu").backend == "onnxruntime"


@pytest.mark.parametrize(("products", "backend"), [(1, "onnxruntime"), (20, "torch")])
def test_of_networks_over_images_auto_accelerates_the_convolutional_ones(
    make_backbone: Any, task: Task, products: int, backend: str
) -> None:
    backbone = large(make_backbone())
    backbone.module.update({f"block{i}": torch.nn.Linear(2, 2) for i in range(products)})
    images = dataclasses.replace(task, modality="image")
    assert extract(backbone, images, device="cpu", indices=range(20)).backend == backend


def test_every_part_of_the_data_comes_to_the_same(make_backbone: Any, task: Task) -> None:
    parts = [{"indices": range(10)}, {"shards": [2]}, {}]
    found = {extract(large(make_backbone()), task, device="cpu", **part).backend for part in parts}
    assert found == {"onnxruntime"}


def test_a_wrong_word(backbone: Any, task: Task) -> None:
    with pytest.raises(InputError, match="accelerate must be one of auto, off, onnxruntime; got 'onnx'"):
        extract(backbone, task, accelerate="onnx")


def test_a_reduced_precision_cannot_be_accelerated(backbone: Any, task: Task) -> None:
    with pytest.raises(InputError, match="in float32; got the device 'cpu' and the precision 'bfloat16'"):
        extract(backbone, task, accelerate="onnxruntime", precision="bfloat16")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_without_the_packages_auto_is_off(
    make_backbone: Any, task: Task, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert extract(large(make_backbone()), task, device="cpu").backend == "torch"
    with pytest.raises(MissingDependencyError, match=rf"'{package}'.*hubscout\[onnx\]"):
        extract(make_backbone(), task, accelerate="onnxruntime")
