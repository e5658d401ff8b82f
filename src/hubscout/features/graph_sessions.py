"""Exported networks, ready to run: in ONNX Runtime or in OpenVINO, with the weights that torch has in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.features.options import ONNXRUNTIME, OPENVINO
from hubscout.optional import require

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


class Session(ABC):
    """A graph of `graph_export` with these weights."""

    inputs: list[str]
    """Those that a caller gives."""
    outputs: list[str]

    def __init__(self, graph: Path | bytes, weights: Mapping[str, Tensor], *, threads: int) -> None:
        content = graph if isinstance(graph, bytes) else graph.read_bytes()
        inputs = self._open(content, weights, threads)
        self._tables = {name: _array(weights[name]) for name in inputs if name in weights}
        self.inputs = [name for name in inputs if name not in weights]

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The outputs, in their order."""
        return self._run({**self._tables, **inputs})

    @abstractmethod
    def _open(self, content: bytes, weights: Mapping[str, Tensor], threads: int) -> list[str]:
        """Make ready to run, and say which inputs the graph has, tables among them."""

    @abstractmethod
    def _run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]: ...


class OnnxRuntimeSession(Session):
    """In ONNX Runtime. The weights stay in memory as long as it does."""

    def _open(self, content: bytes, weights: Mapping[str, Tensor], threads: int) -> list[str]:
        import onnx
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads
        # Threads that wait in a loop take the cores from those that decode the next batch.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        names = [tensor.name for tensor in _without_numbers(onnx.load_from_string(content))]
        arrays = [_array(weights[name]) for name in names]
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in arrays]
        options.add_external_initializers(names, values)
        self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self._held = (arrays, values)
        self.outputs = [place.name for place in self._session.get_outputs()]
        return [place.name for place in self._session.get_inputs()]

    def _run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        return self._session.run(None, inputs)


class OpenVinoSession(Session):
    """In OpenVINO, which has its own copy of the weights."""

    def _open(self, content: bytes, weights: Mapping[str, Tensor], threads: int) -> list[str]:
        import onnx

        core = _openvino_core()
        model = onnx.load_from_string(content)
        for tensor in _without_numbers(model):
            tensor.raw_data = _array(weights[tensor.name]).tobytes()
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
        settings = {
            "INFERENCE_PRECISION_HINT": "f32",  # by itself it takes bf16 where a processor has instructions for it
            "INFERENCE_NUM_THREADS": threads,
            "ENABLE_CPU_PINNING": False,  # others decode the next batch, on the same cores
        }
        compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", settings)
        self._request = compiled.create_infer_request()
        self.outputs = [place.name for place in model.graph.output]
        return [place.name for place in model.graph.input]

    def _run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        return list(self._request.infer(inputs, share_inputs=True).values())


@cache
def _openvino_core() -> Any:
    """The one that all sessions share, for as long as the process lives.

    What it loads gives the thread a stack for signals, and when it goes the stack that it found. If there were two and
    the first went first, the second would leave the thread one that is gone, and the next Ctrl-C would crash it.
    """
    return require("openvino", extra="openvino", purpose="Running networks in OpenVINO").Core()


SESSIONS: dict[str, type[Session]] = {ONNXRUNTIME: OnnxRuntimeSession, OPENVINO: OpenVinoSession}


def _array(weight: Tensor) -> np.ndarray:
    """The numbers of a weight where torch has them, if they lie there in order."""
    return weight.detach().contiguous().numpy()


def _without_numbers(model: Any) -> list[Any]:
    """The tensors of a graph whose numbers are not in the file."""
    import onnx

    return [tensor for tensor in model.graph.initializer if tensor.data_location == onnx.TensorProto.EXTERNAL]
