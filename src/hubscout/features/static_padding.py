"""Padding that an exported network works out anew for every batch, although all of its inputs are of one size.

TensorFlow's "SAME" padding hangs on height and width. The exporter writes that calculation into the graph, and ONNX
Runtime, which cannot know how it ends, pads apart from the convolution: for an EfficientNet-Lite0 that and the changes
of layout around it take a quarter of the time. With the numbers written down, padding becomes part of the convolution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.features.graph_export import drop_unused
from hubscout.features.graph_sessions import OnnxRuntimeSession

if TYPE_CHECKING:
    from torch import Tensor


def write_padding_down(path: Path, example: Mapping[str, np.ndarray], weights: Mapping[str, Tensor]) -> int:
    """Replace the padding that a graph calculates by its numbers, where they are the same for any number of samples.

    Args:
        path: the graph, which is written anew.
        example: inputs of two samples or more, of the size that all others have.
        weights: those that are not in the file, by name.

    Returns:
        How many paddings there were.

    """
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    constant = {value.name for value in model.graph.initializer}
    constant |= {name for node in model.graph.node if node.op_type == "Constant" for name in node.output}
    calculated = sorted({node.input[1] for node in model.graph.node if node.op_type == "Pad" and len(node.input) > 1})
    calculated = [name for name in calculated if name not in constant]
    if not calculated:
        return 0
    one, several = _values(model, calculated, ({name: value[:1] for name, value in example.items()}, example), weights)
    same = {name: one[name] for name in calculated if np.array_equal(one[name], several[name])}
    for number, (name, value) in enumerate(same.items()):
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, f"padding {number}"))
        for node in model.graph.node:
            if node.op_type == "Pad" and node.input[1] == name:
                node.input[1] = f"padding {number}"
                if len(node.input) == 3 and not node.input[2]:
                    del node.input[2]  # ONNX Runtime takes an input that is left out for one that it does not know
    drop_unused(model.graph)
    onnx.save(model, str(path))
    return len(same)


def _values(
    model: Any, names: list[str], examples: Sequence[Mapping[str, np.ndarray]], weights: Mapping[str, Tensor]
) -> list[dict[str, np.ndarray]]:
    """What the graph calculates under these names, for each of the examples."""
    import onnx

    outputs = list(model.graph.output)
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    content = model.SerializeToString()
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    session = OnnxRuntimeSession(content, weights, threads=1)
    return [
        dict(zip(names, session.run({name: inputs[name] for name in session.inputs}), strict=True))
        for inputs in examples
    ]
