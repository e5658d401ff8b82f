"""What runs a graph, and how."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from hubscout.features.graph_sessions import SESSIONS, Session  # noqa: E402
from hubscout.features.options import installed_runtimes  # noqa: E402


@pytest.fixture(params=list(SESSIONS))
def session(request: pytest.FixtureRequest) -> type[Session]:
    if request.param not in installed_runtimes():
        pytest.skip(f"{request.param} is not installed")
    return SESSIONS[request.param]


def graph(outputs: list[str]) -> bytes:
    """Rows times a matrix that is not in the file, under several names."""
    matrix = onnx.TensorProto(name="weight", dims=(64, 64), data_type=onnx.TensorProto.FLOAT)
    matrix.data_location = onnx.TensorProto.EXTERNAL
    matrix.external_data.add(key="location", value="torch")
    nodes = [onnx.helper.make_node("MatMul", ["rows", "weight"], ["product"])]
    nodes += [onnx.helper.make_node("Identity", ["product"], [name]) for name in outputs[:-1]]
    nodes.append(onnx.helper.make_node("Neg", ["product"], outputs[-1:]))
    place = onnx.helper.make_tensor_value_info
    ends = [place(name, onnx.TensorProto.FLOAT, ["n", 64]) for name in outputs]
    start = place("rows", onnx.TensorProto.FLOAT, ["n", 64])
    made = onnx.helper.make_graph(nodes, "product", [start], ends, [matrix])
    model = onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


def test_outputs_of_the_same_numbers_keep_names_and_order(session: type[Session]) -> None:
    rows, weight = torch.rand(3, 64), torch.rand(64, 64)
    opened = session(graph(["second", "first", "third"]), {"weight": weight}, threads=1)
    assert (opened.inputs, opened.outputs) == (["rows"], ["second", "first", "third"])
    found = opened.run({"rows": rows.numpy()})
    expected = (rows @ weight).numpy()
    for one, other in zip(found, (expected, expected, -expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4)


def test_products_are_of_float32(session: type[Session]) -> None:
    """A processor with instructions for bfloat16 would be tempted: 1 + 2⁻¹² is 1 there."""
    weight = torch.eye(64)
    rows = torch.full((2, 64), 1 + 2**-12)
    (found, _) = session(graph(["one", "other"]), {"weight": weight}, threads=1).run({"rows": rows.numpy()})
    np.testing.assert_array_equal(found, rows.numpy())


def test_what_a_run_gave_stays_as_it_was(session: type[Session]) -> None:
    opened = session(graph(["one", "other"]), {"weight": torch.eye(64)}, threads=2)
    first = opened.run({"rows": np.ones((2, 64), np.float32)})
    opened.run({"rows": np.zeros((2, 64), np.float32)})
    assert (first[0] == 1).all()
    assert (first[1] == -1).all()


def test_openvino_is_kept_from_reporting(tmp_path: Path) -> None:
    """It makes a file with an identity in the home folder, and sends that it was imported."""
    if "openvino" not in installed_runtimes():
        pytest.skip("openvino is not installed")
    (tmp_path / "graph.onnx").write_bytes(graph(["one", "other"]))
    code = (
        "import sys, torch; from pathlib import Path; from hubscout.features.graph_sessions import OpenVinoSession; "
        f"OpenVinoSession(Path({str(tmp_path / 'graph.onnx')!r}), {{'weight': torch.eye(64)}}, threads=1); "
        "print([name for name in sys.modules if name.startswith('openvino_telemetry.')])"
    )
    environment = {**os.environ, "HOME": str(tmp_path), "CI": ""}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"
    assert [path.name for path in tmp_path.iterdir()] == ["graph.onnx"]


def test_signals_are_heard_after_sessions_are_gone(session: type[Session], tmp_path: Path) -> None:
    """Those that OpenVINO opens set the stack that handlers run on, and may go in any order."""
    (tmp_path / "graph.onnx").write_bytes(graph(["one", "other"]))
    code = f"""
import gc, signal, threading
from pathlib import Path
import torch
from hubscout.features import graph_sessions

def opened():
    return graph_sessions.{session.__name__}(Path("graph.onnx"), {{"weight": torch.eye(64)}}, threads=1)

signal.signal(signal.SIGCHLD, lambda *_: print("heard"))
first, second = opened(), opened()
del first
gc.collect()
del second
gc.collect()
signal.raise_signal(signal.SIGCHLD)
elsewhere = [opened()]
thread = threading.Thread(target=elsewhere.clear)
thread.start()
thread.join()
gc.collect()
signal.raise_signal(signal.SIGCHLD)
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout.split()) == (0, ["heard", "heard"]), ran.stderr
