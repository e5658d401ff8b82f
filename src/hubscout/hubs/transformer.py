"""The backbone of a transformers model: hidden states pooled into features, layer by layer if asked."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.errors import InputError
from hubscout.hubs.backbone import Backbone, Batch, Output, Preprocessing
from hubscout.hubs.cost import describe
from hubscout.hubs.image_preprocessing import PIXELS
from hubscout.hubs.length_groups import trimmed
from hubscout.hubs.model_listing import TEXT_MODALITIES
from hubscout.hubs.pooling import (
    Pooling,
    check_layers,
    default_pooling,
    join_pair,
    layer_state,
    pool,
    select_words,
    state_pooling,
    watched,
)
from hubscout.hubs.processors import LENGTHS
from hubscout.hubs.text_preprocessing import MASK, WORD_ENDS, WORDS, TextPreprocessing, is_siamese, model_inputs

if TYPE_CHECKING:
    from torch import Tensor, nn

TOKENS_FOR_FLOPS = 128
"""The length of the text that operations are counted for."""
_SAMPLES_FOR_FLOPS = 16_000

_SEE_PADDING = frozenset(
    {"canine", "convbert", "fnet", "funnel", "reformer", "siglip_text_model", "siglip2_text_model", "yoso"}
)
"""Families that mix tokens past the attention mask, so that padding would change the features of what is padded."""


class TransformerBackbone(Backbone):
    """A network of transformers, with or without a source head.

    Layers are `layer.0` (what goes into the first block) to `layer.L` (what comes out of the last), pooled as the
    features are; `mean` is the average of `layer.1` to `layer.L`. For word-level inputs features and layers have one
    row per word: that of its first token, or as the option `words` says.
    """

    module: nn.Module
    settled_options = frozenset({"pooling", "words", "pairs", "max_length", "tower", "head", "revision", "pickle"})

    def __init__(
        self,
        module: Any,
        *,
        identifier: str,
        preprocessing: Preprocessing,
        pooling: Pooling | None = None,
        facts: Mapping[str, Any] | None = None,
        new_head: bool = False,
    ) -> None:
        """`facts` are further fields of the card. With `new_head` the classifier was never trained: no logits.

        Without a `pooling` it is the default of the architecture.
        """
        self.module = module
        self._config: Any = module.config
        self.identifier = identifier
        self.modality = modality = modality_of(module)
        self.preprocessing = preprocessing
        causal, family = _is_causal(module), module.config.model_type
        self.pooling = pooling = pooling or default_pooling(family, modality, causal=causal)
        self._state_pooling = state_pooling(pooling, family, modality, causal=causal)
        # By the class's name: base models, too, have parts that are called as `base_model_prefix` says (DINOv3).
        self._has_head = bool(re.search("For[A-Z]", type(module).__name__)) and hasattr(module.config, "num_labels")
        self._base: Any = getattr(module, module.base_model_prefix, module) if self._has_head else module
        if module.config.model_type == "vit_mae":
            module.config.mask_ratio = 0.0  # It would hide three quarters of the image, others at every pass.
        self._new_head = new_head
        self._accepted = frozenset(inspect.signature(module.forward).parameters)
        if self._has_head and isinstance(preprocessing, TextPreprocessing) and module.config.pad_token_id is None:
            # Heads on the last token look for the padding by its id.
            module.config.pad_token_id = preprocessing.pad_id
        self.card = describe(
            self,
            self._example(),
            pooling,
            identifier=identifier,
            architecture=module.config.model_type,
            modalities=TEXT_MODALITIES if modality == "text" else (modality,),
            source_classes=module.config.num_labels if self._has_head and not new_head else None,
            **(facts or {}),
        )

    @property
    def layer_names(self) -> tuple[str, ...]:
        return tuple(f"layer.{index}" for index in range(len(self._layer_shapes)))

    @property
    def averages_layers(self) -> bool:
        return len(set(self._layer_shapes[1:])) == 1

    @property
    def _masks_sounds(self) -> bool:
        return bool(getattr(getattr(self.preprocessing, "extractor", None), "return_attention_mask", False))

    @property
    def ignores_padding(self) -> bool:
        # A norm of each channel over all of the time counts the silence in.
        return self._masks_sounds and getattr(self._config, "feat_extract_norm", "layer") != "group"

    @cached_property
    def _layer_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of as many layers as one pass shows: configurations count layers, stages or neither."""
        import torch

        device = next(self.module.parameters()).device
        batch = {name: tensor.to(device) for name, tensor in self._example().items()}
        with torch.no_grad():
            states = self._call(self._arguments(self._inputs(batch)) | {"output_hidden_states": True})[0]
        return tuple(tuple(state.shape) for state in states.get("hidden_states") or ())

    def forward(self, batch: Batch, layers: Sequence[str] = ()) -> Output:
        if layers:
            check_layers(layers, self.layer_names, self.identifier, averages=self.averages_layers)
        if is_siamese(batch):
            return join_pair(
                *(self._run(model_inputs(batch, second=second), batch, layers) for second in (False, True))
            )
        if self._config.model_type in _SEE_PADDING and MASK in batch and not batch[MASK].all():
            return Output.joined([self.forward(row, layers) for row in _without_padding(batch)])
        return self._run(self._inputs(batch), batch, layers)

    def _inputs(self, batch: Batch) -> Batch:
        if self.modality == "text":
            return model_inputs(batch)
        if self.modality == "image":
            return batch
        name = self.module.main_input_name
        inputs = {str(name): batch[str(name)]}
        if inputs[str(name)].ndim == 2 and self._masks_sounds:
            inputs[MASK] = _mask(batch[LENGTHS], inputs[str(name)].shape[1])
        return inputs

    def _run(self, inputs: Batch, batch: Batch, layers: Sequence[str]) -> Output:
        arguments = self._arguments(inputs)
        if layers:
            arguments["output_hidden_states"] = True
        found, logits, before_classes = self._call(arguments)
        mask = inputs.get(MASK) if self.modality == "text" else self._frame_mask(found, batch)
        words, ends = batch.get(WORDS), batch.get(WORD_ENDS)

        def pooled(hidden: Tensor) -> Tensor:
            return pool(hidden, mask, self._state_pooling) if words is None else select_words(hidden, words, ends)

        if self.pooling == "pooler" and words is None and found.get("pooler_output") is not None:
            features = found["pooler_output"].flatten(1)
        elif self.pooling == "head" and words is None and before_classes is not None and before_classes.ndim == 2:
            features = before_classes
        elif self._has_head and self._base is self.module and before_classes is not None:
            features = before_classes.flatten(1)  # a classifier that is not built around a base model
        else:
            features = pooled(found["last_hidden_state"])
        if logits is not None and logits.ndim == 3 and words is not None:
            logits = select_words(logits, words, ends)
        elif logits is not None and logits.ndim != 2:
            logits = None  # one row per token, for an input that is not taken by words
        states = found.get("hidden_states")
        return Output(features, logits, {name: pooled(layer_state(states, name)) for name in layers})

    def _arguments(self, inputs: Batch) -> dict[str, Any]:
        arguments: dict[str, Any] = {name: value for name, value in inputs.items() if name in self._accepted}
        if "use_cache" in self._accepted:
            arguments["use_cache"] = False
        if self._config.model_type == "vit_mae":  # Noise would set the order of the patches: this one keeps it.
            import torch

            pixels, side = inputs[PIXELS], int(self._config.patch_size)
            patches = (pixels.shape[2] // side) * (pixels.shape[3] // side)
            arguments["noise"] = torch.linspace(0, 1, patches, device=pixels.device).expand(len(pixels), -1)
        return arguments

    def _call(self, arguments: dict[str, Any]) -> tuple[Any, Tensor | None, Tensor | None]:
        """In one pass the base model's output and, where there is a head, its logits and what its last layer took."""
        if not self._has_head:
            return self.module(**arguments), None, None
        caught: list[Any] = []
        taken: list[Tensor] = []
        base = self._base if self._base is not self.module else None
        arguments.pop("use_cache", None)
        with watched(
            (base, lambda _, output: caught.append(output)),
            (last_layer(self.module), lambda inputs, _: taken.append(inputs[0])),
        ):
            output = self.module(**arguments)
        logits = None if self._new_head else output.get("logits")
        return caught[-1] if caught else output, logits, taken[-1] if taken else None

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
            return self.preprocessing.example(TOKENS_FOR_FLOPS)
        if self.modality == "image":
            from PIL import Image

            return self.preprocessing.collate([self.preprocessing(Image.new("RGB", (64, 64)))])
        silence = {"array": torch.zeros(_SAMPLES_FOR_FLOPS).numpy(), "sampling_rate": 16_000}
        return self.preprocessing.collate([self.preprocessing(silence)])

    def save(self, folder: Path, *, head: nn.Module, target_names: Sequence[str], kind: str) -> None:
        from hubscout.hubs.huggingface import import_transformers, quiet
        from hubscout.hubs.saving import save_transformer

        with quiet(import_transformers()):
            save_transformer(self, folder, head=head, target_names=target_names, kind=kind)


def _without_padding(batch: Batch) -> list[Batch]:
    """Each sample as a batch of its own, cut to its length."""
    rows = ({name: value[place : place + 1] for name, value in batch.items()} for place in range(len(batch[MASK])))
    return [trimmed(row) for row in rows]


def last_layer(module: Any) -> nn.Linear | None:
    """The linear layer that gives a classifier of transformers its logits."""
    from torch import nn

    inside = {id(part) for part in getattr(module, module.base_model_prefix, nn.Module()).modules()}
    layers = [part for part in module.modules() if isinstance(part, nn.Linear) and id(part) not in inside]
    return next((part for part in reversed(layers) if part.out_features == module.config.num_labels), None)


def _mask(lengths: Tensor, longest: int) -> Tensor:
    import torch

    return (torch.arange(longest, device=lengths.device)[None] < lengths[:, None]).long()


def modality_of(network: Any) -> str:
    """What a network of transformers reads."""
    names = {"pixel_values": "image", "input_values": "audio", "input_features": "audio", "input_ids": "text"}
    if network.main_input_name not in names:
        raise InputError(f"{type(network).__name__} takes {network.main_input_name!r}, which is not supported.")
    return names[network.main_input_name]


def _is_causal(network: Any) -> bool:
    """Whether a token sees only those before it: models that transformers knows as text generators."""
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    )

    config = network.config
    if getattr(config, "is_encoder_decoder", False):
        return False
    generates = config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    fills_in = config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return generates and (not fills_in or bool(getattr(config, "is_decoder", False)))
