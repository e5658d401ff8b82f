"""`onnx:PATH`: networks that ONNX Runtime runs, for ranking only; there is nothing in them to train."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.errors import CheckpointError, InputError, ModelNotFoundError
from hubscout.hubs.backbone import Backbone, Batch, ModelCard, Output, Preprocessing
from hubscout.hubs.connection import explain_failure
from hubscout.hubs.image_preprocessing import (
    IMAGE_OPTIONS,
    PIXELS,
    ImageConfig,
    ImagePreprocessing,
    normalise,
    split_options,
)
from hubscout.hubs.model_identifier import Identifier
from hubscout.hubs.model_listing import TEXT_MODALITIES, ModelListing
from hubscout.hubs.pooling import Pooling, check_layers, check_pooling, join_pair, pool, select_words
from hubscout.hubs.processors import check_vocabulary, tokenize_with
from hubscout.hubs.text_preprocessing import (
    IDS,
    MASK,
    WORD_ENDS,
    WORDS,
    TextPreprocessing,
    is_siamese,
    model_inputs,
)
from hubscout.hubs.vision import ARRAYS, ArrayPreprocessing
from hubscout.optional import require

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_OPTIONS = ("features", "logits", "pooling", "words", "pairs", "max_length", "tokenizer")
_DEFAULT_TEXT_LENGTH = 512


def load(identifier: Identifier) -> OnnxBackbone:
    """A network from an .onnx file.

    Where it ends in a linear layer over vectors, that layer is the source head: its input becomes the features and
    its output the logits. Else the first output is the features. `features` and `logits` name tensors of the graph
    to take instead. Text networks find their tokenizer beside the file, or at `tokenizer`.
    """
    path = Path(os.path.expanduser(identifier.name))
    if not path.is_file():
        raise ModelNotFoundError(f"There is no ONNX file {path}.")
    identifier.check_options((*_OPTIONS, *IMAGE_OPTIONS))
    image_options, options = split_options(identifier.options)
    graph = read_graph(path, features=options.get("features"), logits=options.get("logits"))
    return OnnxBackbone(path, graph, identifier, image_options=image_options, options=options)


@dataclass(frozen=True)
class OnnxGraph:
    """A graph, changed to give `features` and `logits`; `content` is what ONNX Runtime opens."""

    content: bytes
    features: str
    logits: str | None
    params: int
    operators: int


def read_graph(path: Path, *, features: str | None, logits: str | None) -> OnnxGraph:
    """Read a graph and make the tensors for features and logits outputs of it."""
    onnx = require("onnx", extra="onnx", purpose="ONNX models")
    try:
        model = onnx.load(str(path))
        onnx.checker.check_model(model)
    except Exception as error:
        raise CheckpointError(
            f"{path} is not a valid ONNX model: {str(error).strip().partition(chr(10))[0]}"
        ) from error
    graph = model.graph
    produced = {name for node in graph.node for name in node.output}
    for name in (features, logits):
        if name is not None and name not in produced:
            known = ", ".join(output.name for output in graph.output)
            raise InputError(f"{path} has no tensor {name!r}. Its outputs are: {known}.")
    if features is None:
        features, found = _find_head(graph)
        logits = logits or found
    outputs = {output.name for output in graph.output}
    for name in (features, logits):
        if name is not None and name not in outputs:
            graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    sizes = [int(np.prod(tensor.dims)) for tensor in graph.initializer]
    return OnnxGraph(model.SerializeToString(), features, logits, sum(sizes), len(graph.node))


def _find_head(graph: Any) -> tuple[str, str | None]:
    """The tensor before the last linear layer and the one after it, if the first output comes from such a layer."""
    weights = {tensor.name for tensor in graph.initializer}
    producer = {name: node for node in graph.node for name in node.output}
    output = graph.output[0].name
    name = output
    while (node := producer.get(name)) is not None and node.op_type in ("Softmax", "LogSoftmax", "Sigmoid", "Identity"):
        name = node.input[0]
    logits = name
    node = producer.get(name)
    if node is not None and node.op_type == "Add":
        inner = [producer[part] for part in node.input if part in producer and part not in weights]
        node = inner[0] if len(inner) == 1 and inner[0].op_type == "MatMul" else None
    weights |= {
        other.output[0]
        for other in graph.node
        if other.op_type in ("Transpose", "Identity") and other.input[0] in weights
    }
    if node is None or node.op_type not in ("Gemm", "MatMul") or node.input[1] not in weights:
        return output, None
    shape = graph.output[0].type.tensor_type
    if shape.HasField("shape") and len(shape.shape.dim) != 2:
        return output, None
    return node.input[0], logits


class OnnxBackbone(Backbone):
    """A graph that ONNX Runtime runs, on CUDA where its CUDA provider is installed and asked for."""

    module = None
    settled_options = frozenset({"pooling", "words", "pairs", "max_length", *IMAGE_OPTIONS})

    def __init__(
        self,
        path: Path,
        graph: OnnxGraph,
        identifier: Identifier,
        *,
        image_options: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        self.identifier = str(identifier)
        self._graph = graph
        self._session = self._open(["CPUExecutionProvider"])
        self._inputs = {value.name: value for value in self._session.get_inputs()}
        self.pooling: Pooling = check_pooling(options.get("pooling") or "mean")
        self.config: ImageConfig | None = None
        self._channels_last = False
        self.preprocessing: Preprocessing
        if IDS in self._inputs:
            self.modality = "text"
            self.preprocessing = _text_preprocessing(path, self._inputs, options)
        elif len(self._inputs) == 1 and len(next(iter(self._inputs.values())).shape) == 4:
            self.modality = "image"
            self.config = self._image_config().updated(image_options)
            self.preprocessing = ImagePreprocessing(self.config)
        elif len(self._inputs) == 1:
            self.modality = "array"
            self.preprocessing = ArrayPreprocessing()
        else:
            raise InputError(f"{path} takes {', '.join(self._inputs)}: neither one image or array, nor {IDS}.")
        digest = hashlib.blake2b(graph.content, digest_size=16)
        digest.update(repr((self.pooling, self.config and (self.config.mean, self.config.std))).encode())
        feature_dim, source_classes = self._measure()
        self.card = ModelCard(
            identifier=self.identifier,
            architecture=f"onnx graph of {graph.operators} operators",
            modalities=TEXT_MODALITIES if self.modality == "text" else (self.modality,),
            feature_dim=feature_dim,
            params=graph.params,
            bytes=len(graph.content),
            source_classes=source_classes,
            weights_fingerprint=digest.hexdigest(),
        )

    def to(self, device: str | torch.device) -> OnnxBackbone:
        if str(device).startswith("cuda"):
            self._session = self._open(["CUDAExecutionProvider", "CPUExecutionProvider"])
        return self

    def forward(self, batch: Batch, layers: Sequence[str] = ()) -> Output:
        check_layers(layers, (), self.identifier)
        if self.modality != "text":
            return self._run({next(iter(self._inputs)): self._plain_input(batch)})
        if is_siamese(batch):
            return join_pair(*(self._run(model_inputs(batch, second=second)) for second in (False, True)))
        return self._run(model_inputs(batch), batch.get(WORDS), batch.get(WORD_ENDS))

    def _plain_input(self, batch: Batch) -> Tensor:
        import torch

        if self.modality == "array":
            return batch[ARRAYS]
        assert self.config is not None
        pixels = batch[PIXELS].cpu()
        if not pixels.is_floating_point():
            pixels = normalise(pixels, torch.tensor(self.config.mean), torch.tensor(self.config.std))
        return pixels.permute(0, 2, 3, 1) if self._channels_last else pixels

    def _run(self, inputs: Batch, words: Tensor | None = None, ends: Tensor | None = None) -> Output:
        import torch

        wanted = [self._graph.features, *filter(None, [self._graph.logits])]
        arrays = {
            # onnxruntime refuses an input of a neighbouring type.
            name: np.ascontiguousarray(inputs[name].detach().cpu().numpy(), dtype=_TYPES.get(place.type))
            for name, place in self._inputs.items()
            if name in inputs
        }
        found = [torch.from_numpy(value).float() for value in self._session.run(wanted, arrays)]
        if words is not None and found[0].ndim == 3:
            return Output(select_words(found[0], words.cpu(), None if ends is None else ends.cpu()))
        mask = inputs[MASK].cpu() if MASK in inputs else None
        return Output(pool(found[0], mask, self.pooling).flatten(1), found[1] if len(found) > 1 else None)

    def _open(self, providers: list[str]) -> Any:
        runtime = require("onnxruntime", extra="onnx", purpose="ONNX models")
        available = [provider for provider in providers if provider in runtime.get_available_providers()]
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        try:
            return runtime.InferenceSession(self._graph.content, options, providers=available)
        except Exception as error:
            raise explain_failure(error, self.identifier) from error

    def _image_config(self) -> ImageConfig:
        shape = next(iter(self._inputs.values())).shape
        self._channels_last = shape[3] in (1, 3) and shape[1] not in (1, 3)
        channels, height, width = (shape[3], *shape[1:3]) if self._channels_last else shape[1:]
        sizes = [side if isinstance(side, int) else 224 for side in (height, width)]
        return ImageConfig().updated({"input_size": (channels if isinstance(channels, int) else 3, *sizes)})

    def _measure(self) -> tuple[int, int | None]:
        sample: Any = "one"
        if self.config is not None:
            channels, height, width = self.config.input_size
            sample = np.zeros((height, width, channels), dtype=np.uint8)
        elif self.modality == "array":
            shape = [side if isinstance(side, int) else 1 for side in next(iter(self._inputs.values())).shape[1:]]
            sample = np.zeros(shape, dtype=np.float32)
        output = self.forward(self.preprocessing.collate([self.preprocessing(sample)]))
        return output.features.shape[1], None if output.logits is None else output.logits.shape[1]


_TYPES: dict[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
}


def _text_preprocessing(path: Path, inputs: Mapping[str, Any], options: Mapping[str, Any]) -> TextPreprocessing:
    from hubscout.hubs import huggingface

    transformers = huggingface.import_transformers()
    places = [Path(options["tokenizer"])] if "tokenizer" in options else [path.parent, path.parent.parent]
    folder = next((place for place in places if any(place.glob("tokenizer*.json")) or any(place.glob("vocab*"))), None)
    if folder is None:
        raise ModelNotFoundError(f"No tokenizer beside {path}: name its folder with ?tokenizer=PATH.")
    with huggingface.quiet(transformers):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    check_vocabulary(tokenizer, None, [folder], f"onnx:{path}")
    return tokenize_with(tokenizer, None, options, usual=_DEFAULT_TEXT_LENGTH, accepts_types="token_type_ids" in inputs)


def list_models(pattern: str) -> ModelListing:
    """Nothing: files are not listed, they are named."""
    return ModelListing(notes=("ONNX files are not listed; name one as onnx:PATH.",))
