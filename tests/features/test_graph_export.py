"""A graph without weights, in every session that takes them from torch."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from hubscout.features.graph_export import export, weights_of  # noqa: E402
from hubscout.features.graph_sessions import SESSIONS, Session  # noqa: E402
from hubscout.features.options import installed_runtimes  # noqa: E402
from hubscout.hubs import Batch, Output  # noqa: E402


class Network(nn.Module):
    """Convolution, norm, a weight that two layers share, a table that no pass looks at, and one of indices."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution = nn.Conv2d(3, 32, 3, padding=1)
        self.norm = nn.BatchNorm2d(32)
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)
        self.second.weight = self.first.weight
        self.unused = nn.Parameter(torch.zeros(1000))
        self.register_buffer("order", torch.arange(31, -1, -1))
        nn.init.uniform_(self.norm.running_var, 0.5, 2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = self.norm(self.convolution(images)).mean((2, 3))
        return self.second(self.first(maps)[:, self.order])


def named(output: Output) -> dict[str, torch.Tensor]:
    return {"features": output.features}


@pytest.fixture
def backbone(make_backbone: Any) -> Any:
    class Own(make_backbone):  # type: ignore[misc]
        def forward(self, batch: Batch, layers: Sequence[str] = ()) -> Output:
            return Output(self.module(batch["inputs"]), None, {})

    found = Own()
    found.module = Network().eval()
    return found


@pytest.fixture(params=list(SESSIONS))
def session(request: pytest.FixtureRequest) -> type[Session]:
    if request.param not in installed_runtimes():
        pytest.skip(f"{request.param} is not installed")
    return SESSIONS[request.param]


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    return {"inputs": torch.rand(2, 3, 8, 8)}


def test_a_session_with_the_weights_gives_what_torch_gives(
    backbone: Any, batch: Any, tmp_path: Path, session: type[Session]
) -> None:
    before = list(backbone.module.parameters())
    export(backbone, (), batch, named, ["features"], tmp_path / "graph.onnx", free_length=())
    assert all(one is other for one, other in zip(before, backbone.module.parameters(), strict=True))
    assert all(type(one) is nn.Parameter for one in backbone.module.parameters())
    for layout in (torch.contiguous_format, torch.channels_last):
        backbone.module.to(memory_format=layout)
        opened = session(tmp_path / "graph.onnx", weights_of(backbone), threads=1)
        images = torch.rand(5, 3, 8, 8)
        (found,) = opened.run({"inputs": images.numpy()})
        with torch.no_grad():
            np.testing.assert_allclose(found, backbone.module(images).numpy(), rtol=1e-4, atol=1e-5)


def test_the_file_has_no_large_weights(backbone: Any, batch: Any, tmp_path: Path) -> None:
    path = tmp_path / "graph.onnx"
    export(backbone, (), batch, named, ["features"], path, free_length=())
    tensors = onnx.load(str(path), load_external_data=False).graph.initializer
    outside = {tensor.name for tensor in tensors if tensor.data_location == onnx.TensorProto.EXTERNAL}
    assert outside == {"weight convolution.weight", "weight first.weight"}
    assert "weight norm.bias" in {tensor.name for tensor in tensors} - outside
    assert "weight unused" not in {tensor.name for tensor in tensors}
    sizes = {name: weight.nbytes for name, weight in weights_of(backbone).items()}
    assert path.stat().st_size < sizes["weight first.weight"] + sizes["weight convolution.weight"]


class Words(nn.Module):
    """Two tables that rows are looked up in, one of which is also a matrix."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.tied = nn.Embedding(2000, 64), nn.Embedding(300, 64)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found = self.words(ids).mean(1) + self.tied(ids[:, 0] % 300)
        return found @ self.tied.weight.T


def test_a_session_looks_rows_up_where_torch_has_them_and_copies_no_table(
    backbone: Any, tmp_path: Path, session: type[Session]
) -> None:
    backbone.module = Words().eval()
    ids = {"inputs": torch.arange(12).reshape(2, 6)}
    path = tmp_path / "graph.onnx"
    export(backbone, (), ids, named, ["features"], path, free_length=("inputs",))
    graph = onnx.load(str(path), load_external_data=False).graph
    assert [place.name for place in graph.input] == ["inputs", "weight words.weight"]
    opened = session(path, weights_of(backbone), threads=1)
    assert opened.inputs == ["inputs"]
    asked = torch.tensor([[1999, 5, 7], [3, 3, 299]])
    for _ in range(2):
        (found,) = opened.run({"inputs": asked.numpy()})
        with torch.no_grad():
            np.testing.assert_allclose(found, backbone.module(asked).numpy(), rtol=1e-4, atol=1e-5)
            backbone.module.words.weight[1999] += 1.0  # the second pass sees it: it is torch's own memory


class Encoder(nn.Module):
    """Linear layers over sequences, one of which also gives out its transposed weight."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.wide, self.narrow = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return (self.narrow(self.wide(tokens)) @ self.narrow.weight).mean(1) + self.narrow.weight.T.mean(1)


def test_products_transpose_their_own_weights(backbone: Any, tmp_path: Path, session: type[Session]) -> None:
    backbone.module, path = Encoder().eval(), tmp_path / "graph.onnx"
    export(backbone, (), {"inputs": torch.rand(2, 5, 32)}, named, ["features"], path, free_length=("inputs",))
    nodes = onnx.load(str(path), load_external_data=False).graph.node
    assert [node.input[1] for node in nodes if node.op_type == "FusedMatMul"] == [
        "weight wide.weight",
        "weight narrow.weight",
    ]
    transposed = [node.input[0] for node in nodes if node.op_type == "Transpose"]
    assert "weight wide.weight" not in transposed
    assert "weight narrow.weight" in transposed
    tokens = torch.rand(3, 7, 32)
    (found,) = session(path, weights_of(backbone), threads=1).run({"inputs": tokens.numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(found, backbone.module(tokens).numpy(), rtol=1e-4, atol=1e-5)


def test_the_memory_of_weights_is_gone_with_their_last_user(backbone: Any, batch: Any, tmp_path: Path) -> None:
    numbers = np.ones((32, 3, 3, 3), dtype=np.float32)
    backbone.module.convolution.weight = nn.Parameter(torch.from_numpy(numbers))
    memory = weakref.ref(numbers)
    del numbers
    gc.disable()
    try:
        export(backbone, (), batch, named, ["features"], tmp_path / "graph.onnx", free_length=())
        backbone.module = None
        assert memory() is None
    finally:
        gc.enable()
