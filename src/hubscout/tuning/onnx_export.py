"""ONNX: the tuned network as one graph, checked against torch."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from hubscout.errors import TuningError
from hubscout.hubs import Backbone
from hubscout.hubs.pooling import PAIR_PARTS
from hubscout.optional import require
from hubscout.tasks.kinds import kind_of

if TYPE_CHECKING:
    from hubscout.tuning.tuned import Tuned


class _Graph(nn.Module):
    """Named inputs in, head outputs out."""

    def __init__(self, backbone: Backbone, head: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.backbone, self.head, self.names = backbone, head, names
        self.body = backbone.module

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.head(self.backbone.forward(dict(zip(self.names, inputs, strict=True))).features)


def export_onnx(tuned: Tuned, path: Path, *, tolerance: float = 1e-3) -> float:
    """Write the graph, run it on random inputs of two batch sizes, and return the largest difference from torch.

    Inputs are the preprocessing's batch (for images: uint8 pixels, normalised inside the graph), outputs are logits,
    or numbers in the targets' own units.
    """
    require("onnx", extra="onnx", purpose="ONNX export")
    runtime = require("onnxruntime", extra="onnx", purpose="The check of the ONNX export")
    backbone, head = tuned.deployable()
    backbone.to("cpu")
    assert backbone.module is not None
    batch = _example(tuned)
    graph = _Graph(backbone, head, tuple(batch)).eval()
    path.parent.mkdir(parents=True, exist_ok=True)
    axes = {name: {0: "batch", **({1: "length"} if value.ndim == 2 else {})} for name, value in batch.items()}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            graph,
            tuple(batch.values()),
            str(path),
            input_names=list(batch),
            output_names=["outputs"],
            dynamic_axes={**axes, "outputs": {0: "batch"}},
            dynamo=False,
        )
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    largest = 0.0
    for repeats in (1, 2):
        inputs = {name: torch.cat([value] * repeats) for name, value in batch.items()}
        with torch.no_grad():
            expected = graph(*inputs.values()).numpy()
        # The exporter leaves out inputs that the graph does not look at, such as counts for a report.
        wanted = {place.name for place in session.get_inputs()}
        (found,) = session.run(None, {name: value.numpy() for name, value in inputs.items() if name in wanted})
        difference = float(np.abs(found - expected).max())
        if not difference <= tolerance * max(1.0, float(np.abs(expected).max())):
            path.unlink(missing_ok=True)
            raise TuningError(
                f"The ONNX graph gives other outputs than torch (largest difference {difference:.3g}); it was removed."
            )
        largest = max(largest, difference)
    return largest


def _example(tuned: Tuned) -> dict[str, Tensor]:
    """Two samples that the preprocessing makes out of noise, of the kind of input that the backbone reads."""
    generator = np.random.default_rng(0)
    modality = tuned.backbone.card.modalities[0]
    samples: list[object]
    if modality == "image":
        samples = [generator.integers(0, 256, size=(256, 320, 3), dtype=np.uint8) for _ in range(2)]
    elif modality in ("text", "text-pair", "tokens"):
        texts = ["the quick brown fox jumps", "a small cat"]
        samples = [text.split() if kind_of(tuned.kind).rows_are_words else text for text in texts]
        if getattr(tuned.head, "in_features", 0) == PAIR_PARTS * tuned.backbone.card.feature_dim:
            samples = [(texts[0], texts[1]), (texts[1], texts[1])]
    else:
        raise TuningError(f"ONNX export knows images and text, not {modality} inputs.")
    preprocessing = tuned.backbone.preprocessing
    return preprocessing.collate([preprocessing(sample) for sample in samples])
