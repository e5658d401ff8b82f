"""ONNX: the tuned network as one graph, checked against torch, with labels and preprocessing in its metadata."""

from __future__ import annotations

import json
import math
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from hubscout.credentials import strip_credentials
from hubscout.errors import TuningError, first_line
from hubscout.hubs import Backbone
from hubscout.hubs.image_preprocessing import ImagePreprocessing
from hubscout.hubs.pooling import PAIR_PARTS
from hubscout.hubs.processors import ImageProcessorPreprocessing
from hubscout.hubs.text_preprocessing import TextPreprocessing
from hubscout.optional import require_onnx
from hubscout.runs.files import is_full, temporary_file, why_not_written
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
    or numbers in the targets' own units. The file's metadata are those of `metadata`. Where anything fails, an older
    file stays as it was.
    """
    onnx, runtime = require_onnx()
    backbone, head = tuned.deployable()
    backbone.to("cpu")
    assert backbone.module is not None
    batch = _example(tuned)
    graph = _Graph(backbone, head, tuple(batch)).eval()
    axes = {name: {0: "batch", **({1: "length"} if value.ndim == 2 else {})} for name, value in batch.items()}
    try:
        with temporary_file(path) as temporary:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.onnx.export(
                    graph,
                    tuple(batch.values()),
                    str(temporary),
                    input_names=list(batch),
                    output_names=["outputs"],
                    dynamic_axes={**axes, "outputs": {0: "batch"}},
                    dynamo=False,
                )
            written = onnx.load(str(temporary), load_external_data=False)
            onnx.helper.set_model_props(written, metadata(tuned))
            onnx.save(written, str(temporary))
            session = runtime.InferenceSession(str(temporary), providers=["CPUExecutionProvider"])
            largest = _largest_difference(graph, session, batch, tolerance)
            os.replace(temporary, path)
    except TuningError:
        raise
    except Exception as error:  # of the exporter or of the runtime: they raise what they like
        if isinstance(error, OSError) or is_full(error):
            raise TuningError(f"{path} cannot be written: {why_not_written(error)}.") from error
        raise TuningError(
            f"{tuned.model} cannot be written as ONNX: {first_line(error).rstrip('.')}. The tuned model itself is not "
            "touched by this; use it in torch, or export another architecture."
        ) from error
    return largest


def _largest_difference(graph: nn.Module, session: Any, batch: dict[str, Tensor], tolerance: float) -> float:
    """Between the outputs of the file and those of torch, for the batch and for twice as many."""
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
            raise TuningError(
                f"The ONNX graph gives other outputs than torch (largest difference {difference:.3g}); it is not kept."
            )
        largest = max(largest, difference)
    return largest


def metadata(tuned: Tuned) -> dict[str, str]:
    """What the file says of itself, so that it can be used without hubscout.

    `labels` and `preprocessing` are JSON; `activation` turns the outputs into probabilities (`softmax`, `sigmoid`, or
    `none` for numbers); `tokenizer` is the whole `tokenizer.json` of a model of texts.
    """
    from hubscout import __version__

    kind = kind_of(tuned.kind)
    activation = "none" if kind.is_real_valued else "softmax" if kind.has_classes else "sigmoid"
    found = {
        "hubscout_version": __version__,
        "model": strip_credentials(tuned.model),
        "kind": tuned.kind,
        "labels": json.dumps(list(tuned.target_names), ensure_ascii=False),
        "activation": activation,
        "preprocessing": json.dumps(_preprocessing(tuned), ensure_ascii=False),
    }
    tokenizer = getattr(getattr(tuned.backbone.preprocessing, "tokenizer", None), "backend_tokenizer", None)
    return found if tokenizer is None else {**found, "tokenizer": tokenizer.to_str()}


def _preprocessing(tuned: Tuned) -> dict[str, Any]:
    steps = tuned.backbone.preprocessing
    if isinstance(steps, ImagePreprocessing):
        config = steps.config
        channels, *crop = config.input_size
        return {
            "modality": "image",
            "input": {"dtype": "uint8", "layout": "NCHW", "channels": "RGB" if channels == 3 else "L"},
            # The shorter side, as timm resizes it before it crops from the centre.
            "resize": math.floor(min(crop) / config.crop_pct) if config.crop_mode == "center" else None,
            "crop": crop,
            "crop_mode": config.crop_mode,
            "interpolation": config.interpolation,
            "normalised_in_graph": {"mean": config.mean, "std": config.std},
        }
    if isinstance(steps, ImageProcessorPreprocessing):
        return {"modality": "image", "image_processor": json.loads(steps.processor.to_json_string())}
    if isinstance(steps, TextPreprocessing):
        limits = {"max_length": steps.max_length, "pairs": steps.pairs, "prompt": steps.prompt, "pad_id": steps.pad_id}
        return {"modality": tuned.backbone.card.modalities[0], **limits}
    return {"modality": tuned.backbone.card.modalities[0]}


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
