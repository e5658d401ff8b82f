"""The backbone of a transformers model: hidden states pooled into features, layer by layer if asked."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.hubs.audio_preprocessing import LENGTHS
from hubscout.hubs.backbone import Backbone, Batch, ModelCard, Output, Preprocessing
from hubscout.hubs.checkpoints import fingerprint
from hubscout.hubs.cost import count_bytes, count_params, measure
from hubscout.hubs.image_preprocessing import PIXELS
from hubscout.hubs.pooling import Pooling, join_pair, pool, select_words
from hubscout.hubs.taps import check_layers
from hubscout.hubs.text_preprocessing import IDS, MASK, TYPES, WORDS, TextPreprocessing, is_siamese, model_inputs

if TYPE_CHECKING:
    from torch import Tensor, nn

TOKENS_FOR_FLOPS = 128
"""The length of the text that operations are counted for."""
_SAMPLES_FOR_FLOPS = 16_000

_MODALITIES = {"text": ("text", "text-pair", "tokens"), "image": ("image",), "audio": ("audio",)}


class TransformerBackbone(Backbone):
    """A network of transformers, with or without a source head.

    Layers are `layer.0` (what goes into the first block) to `layer.L` (what comes out of the last), pooled as the
    features are. For word-level inputs features and layers have one row a word, that of its first token.
    """

    module: nn.Module

    def __init__(
        self,
        module: Any,
        *,
        identifier: str,
        modality: str,
        preprocessing: Preprocessing,
        pooling: Pooling,
        downloads: int | None = None,
        commit: str | None = None,
        new_head: bool = False,
    ) -> None:
        """`new_head` says that the module's classifier was never trained: it has no logits worth giving."""
        self.module = module
        self.identifier = identifier
        self.modality = modality
        self.preprocessing = preprocessing
        self.pooling = pooling
        base = getattr(module, "base_model_prefix", "")
        self._has_head = bool(base) and hasattr(module, base) and hasattr(module.config, "num_labels")
        self._base: Any = getattr(module, base) if self._has_head else module
        self._new_head = new_head
        self._accepted = frozenset(inspect.signature(self._base.forward).parameters)
        if self._has_head and isinstance(preprocessing, TextPreprocessing) and module.config.pad_token_id is None:
            # Heads on the last token look for the padding by its id.
            module.config.pad_token_id = preprocessing.pad_id
        measured = measure(self, self._example())
        self.card = ModelCard(
            identifier=identifier,
            architecture=module.config.model_type,
            modalities=_MODALITIES[modality],
            feature_dim=measured.feature_dim,
            params=count_params(module),
            bytes=count_bytes(module),
            flops=measured.flops,
            source_classes=module.config.num_labels if self._has_head and not new_head else None,
            downloads=downloads,
            commit=commit,
            weights_fingerprint=fingerprint(module, type(self).__name__, pooling),
        )

    @property
    def layer_names(self) -> tuple[str, ...]:
        depth = getattr(self._base.config, "num_hidden_layers", None) or len(getattr(self._base.config, "depths", ()))
        return tuple(f"layer.{index}" for index in range(depth + 1)) if depth else ()

    def forward(self, batch: Batch, layers: Sequence[str] = ()) -> Output:
        if layers:
            check_layers(layers, self.layer_names, self.identifier)
        if is_siamese(batch):
            first = self._run(model_inputs(batch), batch, layers)
            second = self._run(model_inputs(batch, second=True), batch, layers)
            return Output(
                join_pair(first.features, second.features),
                layers={name: join_pair(first.layers[name], second.layers[name]) for name in layers},
            )
        inputs = model_inputs(batch) if self.modality == "text" else self._media_inputs(batch)
        return self._run(inputs, batch, layers)

    def _media_inputs(self, batch: Batch) -> Batch:
        if self.modality == "image":
            return {PIXELS: batch[PIXELS]}
        name = self.module.main_input_name
        inputs = {str(name): batch[str(name)]}
        extractor = getattr(self.preprocessing, "extractor", None)
        if inputs[str(name)].ndim == 2 and getattr(extractor, "return_attention_mask", False):
            inputs[MASK] = _mask(batch[LENGTHS], inputs[str(name)].shape[1])
        return inputs

    def _run(self, inputs: Batch, batch: Batch, layers: Sequence[str]) -> Output:
        arguments: dict[str, Any] = {name: value for name, value in inputs.items() if name in self._accepted}
        if "use_cache" in self._accepted:
            arguments["use_cache"] = False
        if layers:
            arguments["output_hidden_states"] = True
        found, logits, before_classes = self._call(arguments)
        mask = inputs.get(MASK) if self.modality == "text" else self._frame_mask(found, batch)
        words = batch.get(WORDS)

        def pooled(hidden: Tensor) -> Tensor:
            return pool(hidden, mask, self.pooling) if words is None else select_words(hidden, words)

        if self.pooling == "pooler" and words is None and found.get("pooler_output") is not None:
            features = found["pooler_output"].flatten(1)
        elif self.pooling == "head" and words is None and before_classes is not None and before_classes.ndim == 2:
            features = before_classes
        else:
            features = pooled(found["last_hidden_state"])
        if logits is not None and logits.ndim == 3 and words is not None:
            logits = select_words(logits, words)
        elif logits is not None and logits.ndim != 2:
            logits = None  # one row a token, for an input that is not taken by words
        states = found.get("hidden_states")
        return Output(features, logits, {name: pooled(states[int(name.rpartition(".")[2])]) for name in layers})

    def _call(self, arguments: dict[str, Any]) -> tuple[Any, Tensor | None, Tensor | None]:
        """In one pass the base model's output and, where there is a head, its logits and what its last layer took."""
        if not self._has_head:
            return self.module(**arguments), None, None
        caught: list[Any] = []
        taken: list[Tensor] = []
        handles = [self._base.register_forward_hook(lambda _module, _inputs, output: caught.append(output))]
        if (classifier := last_layer(self.module)) is not None:
            handles.append(classifier.register_forward_pre_hook(lambda _module, inputs: taken.append(inputs[0])))
        try:
            arguments.pop("use_cache", None)
            logits = self.module(**arguments).logits
        finally:
            for handle in handles:
                handle.remove()
        return caught[-1], None if self._new_head else logits, taken[-1] if taken else None

    def _frame_mask(self, found: Any, batch: Batch) -> Tensor | None:
        """Which frames of a padded recording are sound."""
        if LENGTHS not in batch or not hasattr(self._base, "_get_feat_extract_output_lengths"):
            return None
        frames = self._base._get_feat_extract_output_lengths(batch[LENGTHS])
        return _mask(frames.clamp_min(1), found["last_hidden_state"].shape[1])

    def _example(self) -> Batch:
        import torch

        if self.modality == "text":
            assert isinstance(self.preprocessing, TextPreprocessing)
            length = min(TOKENS_FOR_FLOPS, self.preprocessing.max_length)
            ids = torch.full((1, length), self.preprocessing.pad_id)
            batch = {IDS: ids, MASK: torch.ones_like(ids)}
            return batch | {TYPES: torch.zeros_like(ids)} if self.preprocessing.accepts_types else batch
        if self.modality == "image":
            from PIL import Image

            return self.preprocessing.collate([self.preprocessing(Image.new("RGB", (64, 64)))])
        silence = {"array": torch.zeros(_SAMPLES_FOR_FLOPS).numpy(), "sampling_rate": 16_000}
        return self.preprocessing.collate([self.preprocessing(silence)])

    def save(self, folder: Path, *, head: nn.Module, target_names: Sequence[str], kind: str) -> None:
        from hubscout.hubs.saving_transformers import save_transformer

        save_transformer(self, folder, head=head, target_names=target_names, kind=kind)


def last_layer(module: Any) -> nn.Linear | None:
    """The linear layer that gives a classifier of transformers its logits."""
    from torch import nn

    inside = {id(part) for part in getattr(module, module.base_model_prefix, nn.Module()).modules()}
    layers = [part for part in module.modules() if isinstance(part, nn.Linear) and id(part) not in inside]
    return next((part for part in reversed(layers) if part.out_features == module.config.num_labels), None)


def _mask(lengths: Tensor, longest: int) -> Tensor:
    import torch

    return (torch.arange(longest, device=lengths.device)[None] < lengths[:, None]).long()
