"""Backbones that are torch networks over images (or arrays): timm's shape, a network with a head, a plain one."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.errors import InputError, ModelError
from hubscout.hubs.backbone import Backbone, Batch, Output, Preprocessing
from hubscout.hubs.cost import describe
from hubscout.hubs.image_preprocessing import IMAGE_OPTIONS, PIXELS, ImageConfig, ImagePreprocessing, normalise
from hubscout.hubs.pooling import check_layers, pool_map, pool_output, tap, watched
from hubscout.hubs.saving import HEAD_WEIGHTS, copy_linear, linear_layer, save_module, write_description

if TYPE_CHECKING:
    from torch import Tensor, nn

ARRAYS = "inputs"
"""The key of arrays in a batch."""


class ArrayPreprocessing:
    """Arrays of one shape, stacked as float32."""

    key = "array"

    def __call__(self, sample: Any) -> np.ndarray:
        return np.asarray(sample, dtype=np.float32)

    def collate(self, samples: Sequence[np.ndarray]) -> Batch:
        import torch

        shapes = {sample.shape for sample in samples}
        if len(shapes) > 1:
            raise InputError(f"Arrays of one batch must have one shape, got {sorted(shapes)[:4]}.")
        return {ARRAYS: torch.from_numpy(np.stack(samples))}

    def augmented(self) -> ArrayPreprocessing:
        return self


class TorchBackbone(Backbone):
    """The common part: normalisation on the device, taps, and the card.

    With `config` the inputs are images; without, arrays. `facts` are further fields of the card.
    """

    module: nn.Module
    settled_options = frozenset({"revision", "pickle", *IMAGE_OPTIONS})

    def __init__(
        self,
        module: nn.Module,
        *,
        identifier: str,
        architecture: str,
        config: ImageConfig | None,
        source_classes: int | None,
        input_size: tuple[int, ...] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        import torch

        self.module = module.float().eval()
        self.identifier = identifier
        self.config = config
        self.source_classes = source_classes
        self.preprocessing: Preprocessing = ImagePreprocessing(config) if config else ArrayPreprocessing()
        if config:
            self._mean, self._std = torch.tensor(config.mean), torch.tensor(config.std)
        self._channels_last = getattr(module, "output_fmt", None) == "NHWC"
        self._channels = {name: width for name, width in _levels(self.module).items() if not self.is_head(name)}
        parts = (name for name in _parts_with_weights(self.module) if not self.is_head(name))
        self._layer_names = tuple(self._channels) or tuple(parts)
        facts = {
            "identifier": identifier,
            "architecture": architecture,
            "modalities": ("image",) if config else ("array",),
            "source_classes": source_classes,
            **(facts or {}),
        }
        size = config.input_size if config else input_size
        example = {PIXELS if config else ARRAYS: torch.zeros(1, *size)} if size else None
        if example is None:
            facts["feature_dim"] = self._stated_feature_dim()
        self.card = describe(self, example, *((config.mean, config.std) if config else ()), **facts)

    def run(self, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """Features and source logits of normalised inputs."""
        raise NotImplementedError

    def is_head(self, layer: str) -> bool:
        """Whether a layer belongs to the source head, and so is none to take features from."""
        return False

    def forward(self, batch: Batch, layers: Sequence[str] = ()) -> Output:
        check_layers(layers, self.layer_names, self.identifier)

        def pool(layer: str, output: Any) -> Tensor:
            return pool_output(output, channels=self._channels.get(layer), channels_last=self._channels_last)

        with tap(self.module, layers, pool) as taps:
            features, logits = self.run(self._inputs(batch))
        silent = [name for name in layers if name not in taps]
        if silent:
            raise ModelError(f"The layer {silent[0]!r} of {self.identifier} takes no part in its forward pass.")
        return Output(features, logits, {name: taps[name] for name in layers})

    @property
    def layer_names(self) -> tuple[str, ...]:
        return self._layer_names

    def save(self, folder: Path, *, head: nn.Module, target_names: Sequence[str], kind: str) -> None:
        """The network's weights and the head's in two files, for architectures that only the caller's code can build.

        `load("file:FOLDER?arch=...")` opens it again.
        """
        layer = linear_layer(head, len(target_names), self.card.feature_dim)
        config = self.config.to_pretrained_cfg() if self.config else None
        write_description(folder, self, target_names=target_names, kind=kind, preprocessing=config)
        save_module(self.module, folder / "model.safetensors")
        save_module(layer, folder / HEAD_WEIGHTS)

    def _inputs(self, batch: Batch) -> Tensor:
        if not self.config:
            return batch[ARRAYS]
        pixels = batch[PIXELS]
        if pixels.is_floating_point():
            return pixels
        if self._mean.device != pixels.device:
            self._mean, self._std = self._mean.to(pixels.device), self._std.to(pixels.device)
        return normalise(pixels, self._mean, self._std)

    def _stated_feature_dim(self) -> int:
        stated = getattr(self.module, "num_features", None)
        if isinstance(stated, int):
            return stated
        raise ModelError(
            f"{type(self.module).__name__} says neither what it takes nor how many features it gives. Set "
            "module.pretrained_cfg = {'input_size': (3, 224, 224), 'mean': ..., 'std': ...} for images, or "
            "module.num_features for arrays."
        )


class HalvesBackbone(TorchBackbone):
    """A network in timm's two halves: `forward_features` to maps, `forward_head` from maps to features and logits."""

    def run(self, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        module: Any = self.module
        maps = module.forward_features(inputs)
        if type(module).__name__.endswith("Encoder"):  # Image halves of language models: timm gives them no head.
            return pool_map(maps, channels=module.num_features, channels_last=self._channels_last), None
        features = module.forward_head(maps, pre_logits=True).flatten(1)
        if self.source_classes is None:
            return features, None
        logits = module.forward_head(maps)
        # Distilled transformers in train mode give the logits of both their heads.
        return features, (logits[0] + logits[1]) / 2 if isinstance(logits, tuple) else logits

    def is_head(self, layer: str) -> bool:
        return layer.partition(".")[0] in ("fc", "classifier", "head")

    def save(self, folder: Path, *, head: nn.Module, target_names: Sequence[str], kind: str) -> None:
        """A folder for `timm.create_model("local-dir:FOLDER", pretrained=True)` where the network is timm's."""
        import timm
        from timm.models import save_for_hf
        from torch import nn

        layer = linear_layer(head, len(target_names), self.card.feature_dim)
        network: Any = self.module
        architecture = (getattr(network, "pretrained_cfg", None) or {}).get("architecture")
        classifier = None
        if architecture and timm.is_model(architecture) and hasattr(network, "reset_classifier"):
            network = copy.deepcopy(network).cpu()
            network.reset_classifier(len(target_names))
            classifier = network.get_classifier()
        if not isinstance(classifier, nn.Linear) or classifier.weight.shape != layer.weight.shape:
            super().save(folder, head=head, target_names=target_names, kind=kind)
            return
        copy_linear(layer, classifier)
        assert self.config is not None
        network.pretrained_cfg |= {**self.config.to_pretrained_cfg(), "num_classes": len(target_names)}
        save_for_hf(
            network,
            str(folder),
            model_config={"label_names": list(target_names)},
            model_args=getattr(network, "model_args", None),
            safe_serialization=True,
        )
        write_description(folder, self, target_names=target_names, kind=kind)


class HeadBackbone(TorchBackbone):
    """A classifier whose last layer is known by name: what goes into that layer are the features."""

    def __init__(self, module: nn.Module, *, head: str, **card: Any) -> None:
        self.head = head
        super().__init__(module, **card)

    def run(self, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        caught: list[Tensor] = []
        with watched((self.module.get_submodule(self.head), lambda arguments, _: caught.append(arguments[0]))):
            output = self.module(inputs)
        logits = output if hasattr(output, "ndim") else output[0]
        return pool_map(caught[-1]), logits.flatten(1)

    def is_head(self, layer: str) -> bool:
        return layer == self.head or self.head.startswith(f"{layer}.")


class PlainBackbone(TorchBackbone):
    """A network whose output is the features: maps are averaged over positions, sequences over tokens."""

    def run(self, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        output = self.module(inputs)
        return pool_map(output if hasattr(output, "ndim") else output[0]), None


def _levels(module: nn.Module) -> dict[str, int | None]:
    """The stages or blocks that timm lists as feature levels, with the width of each."""
    known = dict(module.named_modules())
    levels: Any = getattr(module, "feature_info", None) or ()
    listed = [level if isinstance(level, dict) else {"module": level} for level in levels]
    return {level["module"]: level.get("num_chs") for level in listed if level["module"] and level["module"] in known}


def _parts_with_weights(module: nn.Module) -> tuple[str, ...]:
    """The top-level parts of a network that lists no levels, or only its head; of a sequence its members."""
    names = []
    for name, part in module.named_children():
        inner = list(part.named_children())
        if type(part).__name__ in ("Sequential", "ModuleList") and len(inner) > 1:
            names += [f"{name}.{index}" for index, layer in inner if any(True for _ in layer.parameters())]
        elif any(True for _ in part.parameters()):
            names.append(name)
    return tuple(names)
