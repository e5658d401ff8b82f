"""A network as a graph in a file: what is computed is in it, the weights stay where torch has them.

The exporter copies weights three times on their way into a file, and whatever runs it reads them back. Here they are
inputs while the network is traced. In the file they are tensors without numbers, which a session (`graph_sessions`) is
given from torch's memory and packs for its products. Tables that rows are looked up in, such as embeddings of words,
stay inputs: a session would only copy them.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from hubscout.hubs import Backbone, Batch, Output

_SMALL_BYTES = 1 << 10
"""So much stands in the file: shapes and indices may hang on these numbers."""
_OWN_OPERATORS = "com.microsoft"
"""The name under which ONNX Runtime has operators beside the standard ones."""


def export(
    backbone: Backbone,
    layers: Sequence[str],
    batch: Batch,
    named: Callable[[Output], Mapping[str, Tensor]],
    outputs: Sequence[str],
    path: Path,
    *,
    free_length: Collection[str],
) -> None:
    """Write the graph of a backbone's `forward`, with a free number of samples.

    Args:
        backbone: in evaluation mode, on the CPU.
        layers: the layers that are tapped.
        batch: an example of the inputs.
        named: what a pass gives, by name.
        outputs: these names, in their order.
        path: the file.
        free_length: inputs whose second axis, the length, is free too.

    """
    import torch

    weights = weights_of(backbone)
    # A copy that shares the weights: where it has them, traced tensors take their place.
    kept: dict[int, Any] = {id(weight): weight for weight in weights.values()}
    twin = copy.deepcopy(backbone, {**kept, id(backbone.preprocessing): backbone.preprocessing})
    assert twin.module is not None
    number = {id(weight): place for place, weight in enumerate(weights.values(), len(batch))}
    slots = [
        (holder, name, number[id(tensor)])
        for part in twin.module.modules()
        for holder in (part._parameters, part._buffers)
        for name, tensor in holder.items()
        if tensor is not None
    ]

    def forward(*values: Tensor) -> tuple[Tensor, ...]:
        for holder, name, place in slots:
            holder[name] = values[place]  # type: ignore[assignment]
        return tuple(named(twin.forward(dict(zip(batch, values, strict=False)), layers)).values())

    # Not a class of its own: that would hold the network until somebody looks for garbage.
    whole = torch.nn.Module()
    whole.forward = forward

    axes = {name: {axis: f"{name} {axis}" for axis in range(2 if name in free_length else 1)} for name in batch}
    with torch.no_grad(), warnings.catch_warnings(), _nothing_printed():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            whole.eval(),
            (*batch.values(), *(weight.detach() for weight in weights.values())),
            str(path),
            input_names=[*batch, *weights],
            output_names=list(outputs),
            dynamic_axes=axes,
            dynamo=False,
        )
    _inputs_to_weights(path, weights)


def weights_of(backbone: Backbone) -> dict[str, Tensor]:
    """The parameters and buffers of a backbone by name, shared ones once."""
    module = backbone.module
    assert module is not None
    return {f"weight {name}": tensor for name, tensor in (*module.named_parameters(), *module.named_buffers())}


def _inputs_to_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Turn the inputs that are weights into tensors of the graph, large ones without numbers; not large tables."""
    import onnx

    model = onnx.load(str(path))
    tables = _tables(model.graph)
    inputs = list(model.graph.input)
    del model.graph.input[:]
    for place in inputs:
        if place.name not in weights or (place.name in tables and weights[place.name].nbytes > _SMALL_BYTES):
            model.graph.input.append(place)
            continue
        value = weights[place.name].detach().numpy()
        if value.nbytes <= _SMALL_BYTES:
            model.graph.initializer.append(onnx.numpy_helper.from_array(value, place.name))
            continue
        kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        tensor = onnx.TensorProto(name=place.name, dims=value.shape, data_type=kind)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="torch")
        model.graph.initializer.append(tensor)
    _transpose_in_products(model, weights)
    onnx.save(model, str(path))


def _transpose_in_products(model: Any, weights: Mapping[str, Tensor]) -> None:
    """Have products by transposed matrices, those of linear layers, transpose themselves.

    ONNX Runtime would otherwise write all of these matrices down transposed before it packs the first.
    """
    import onnx
    import torch

    matrices = {name for name, weight in weights.items() if weight.ndim == 2 and weight.dtype == torch.float32}
    turned = {
        node.output[0]: node.input[0]
        for node in model.graph.node
        if node.op_type == "Transpose" and node.input[0] in matrices and list(node.attribute[0].ints) == [1, 0]
    }
    products = [node for node in model.graph.node if node.op_type == "MatMul" and node.input[1] in turned]
    for node in products:
        node.op_type, node.domain = "FusedMatMul", _OWN_OPERATORS
        node.input[1] = turned[node.input[1]]
        node.attribute.append(onnx.helper.make_attribute("transB", 1))
    if products:
        model.opset_import.append(onnx.helper.make_opsetid(_OWN_OPERATORS, 1))
        drop_unused(model.graph)


def drop_unused(graph: Any) -> None:
    """Take the nodes out that no output hangs on: their calculation would be done for nobody."""
    if any(attribute.HasField("g") or attribute.graphs for node in graph.node for attribute in node.attribute):
        return  # branches and loops use values without naming them as inputs
    wanted = {output.name for output in graph.output}
    for place in reversed(range(len(graph.node))):
        node = graph.node[place]
        if wanted & set(node.output):
            wanted |= set(node.input)
        else:
            del graph.node[place]


def _tables(graph: Any) -> set[str]:
    """The names of tensors of which the graph looks up rows and does nothing else with."""
    rows = {node.input[0] for node in graph.node if node.op_type == "Gather"}
    elsewhere = {
        name
        for node in graph.node
        for place, name in enumerate(node.input)
        if node.op_type != "Gather" or place or any(item.name == "axis" and item.i for item in node.attribute)
    }
    return rows - elsewhere


@contextmanager
def _nothing_printed() -> Iterator[None]:
    """Keep the exporter from printing the whole graph, past Python, where it does not know an operator."""
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
