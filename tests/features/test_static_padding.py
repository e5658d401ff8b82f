"""Padding that a graph calculates for every batch is written down once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from hubscout.features.static_padding import write_padding_down  # noqa: E402


class Same(nn.Module):
    """A convolution with TensorFlow's padding, which hangs on the size of the images; or on their number."""

    def __init__(self, *, by_number: bool = False) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, stride=2)
        self.by_number = by_number

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        rows, columns = images.shape[-2:]
        after = images.shape[0] if self.by_number else max((-(-columns // 2) - 1) * 2 + 3 - columns, 0)
        before = max((-(-rows // 2) - 1) * 2 + 3 - rows, 0)
        return self.convolution(nn.functional.pad(images, (0, after, 0, before)))


def export(module: nn.Module, path: Path) -> torch.Tensor:
    torch.manual_seed(0)
    images = torch.randn(3, 3, 10, 10)
    with torch.no_grad():
        torch.onnx.export(
            module.eval(),
            (images,),
            str(path),
            input_names=["images"],
            output_names=["features"],
            dynamic_axes={"images": {0: "n"}},
            dynamo=False,
        )
    return images


def operators(path: Path) -> set[str]:
    """Those that are left when ONNX Runtime has improved the graph."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path.with_suffix(".improved"))
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return {node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node}


def run(path: Path, images: torch.Tensor) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"images": images.numpy()})[0]


@pytest.mark.filterwarnings("ignore")
def test_padding_that_hangs_on_the_size_becomes_part_of_the_convolution(tmp_path: Path) -> None:
    module, path = Same(), tmp_path / "graph.onnx"
    images = export(module, path)
    assert "Pad" in operators(path)
    assert write_padding_down(path, {"images": images.numpy()}, {}) == 1
    assert operators(path) & {"Pad", "Shape"} == set()
    for count in (1, 2, 3):
        with torch.no_grad():
            np.testing.assert_allclose(run(path, images[:count]), module(images[:count]).numpy(), atol=1e-5)
    assert write_padding_down(path, {"images": images.numpy()}, {}) == 0


@pytest.mark.filterwarnings("ignore")
def test_padding_that_hangs_on_the_number_of_samples_stays(tmp_path: Path) -> None:
    module, path = Same(by_number=True), tmp_path / "graph.onnx"
    images = export(module, path)
    assert write_padding_down(path, {"images": images.numpy()}, {}) == 0
    with torch.no_grad():
        np.testing.assert_allclose(run(path, images[:2]), module(images[:2]).numpy(), atol=1e-5)
