"""`torchvision/NAME` or `torchvision/NAME.WEIGHTS`: the classifiers of torchvision."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.errors import CheckpointError, InputError, ModelError, ModelNotFoundError, did_you_mean
from hubscout.hubs.connection import absent, explain_failure, hub_silence, silence_of
from hubscout.hubs.image_preprocessing import ImageConfig, split_options
from hubscout.hubs.model_identifier import Identifier
from hubscout.hubs.model_listing import ModelEntry, ModelListing
from hubscout.hubs.random_weights import without_random_weights
from hubscout.hubs.torchvision_compat import prepare_torchvision
from hubscout.hubs.vision import HeadBackbone, PlainBackbone, TorchBackbone
from hubscout.hubs.weight_files import fit_state
from hubscout.optional import require

if TYPE_CHECKING:
    from torch import nn


def load(identifier: Identifier) -> TorchBackbone:
    """A torchvision classifier with its weights (the default ones unless named); `pretrained=false` leaves them out."""
    import torch

    image_options, options = split_options(identifier.options)
    pretrained = options.pop("pretrained", True)
    name, _, tag = identifier.name.partition(".")
    check_name(name)
    weights = _weights(name, tag)

    def with_weights() -> nn.Module:
        module = build(name, options)
        if not _file(weights).is_file() and (silence := _silence("/".join(weights.url.split("/")[:3]))) is not None:
            raise absent(str(identifier), silence)
        state = torch.hub.load_state_dict_from_url(weights.url, map_location="cpu", check_hash=True, weights_only=True)
        fit_state(module, _without_auxiliary(module, state), source=str(identifier))
        return module

    try:
        module = without_random_weights(with_weights) if pretrained else build(name, options)
    except Exception as error:
        raise explain_failure(error, str(identifier)) from error
    accuracy = weights.meta.get("_metrics", {}).get("ImageNet-1K", {}).get("acc@1")
    return wrap_network(
        module,
        identifier=str(identifier),
        architecture=name,
        config=_config(weights).updated(image_options),
        facts={
            "source_data": _source_data(weights) if pretrained else None,
            "source_accuracy": accuracy / 100 if accuracy and pretrained else None,
            "licence": "BSD-3-Clause",
        },
    )


def build(name: str, options: Mapping[str, Any]) -> nn.Module:
    """An architecture without weights."""
    check_name(name)
    _check_options(name, options)
    try:
        # These two would otherwise draw their weights twice, and warn that they do.
        quiet = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        return import_models().get_model(name, weights=None, **{**quiet, **options})
    except (TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"torchvision cannot build {name!r} with {dict(options)}: {error}") from error


def default_config(name: str) -> ImageConfig:
    """How images are prepared for the default weights of an architecture."""
    return _config(_weights(name, ""))


def wrap_network(module: nn.Module, **card: Any) -> TorchBackbone:
    """A backbone out of a torchvision network: with a source head if its classifier has a layer, else plain."""
    card.pop("source_classes", None)
    for auxiliary in ("AuxLogits", "aux1", "aux2"):  # heads that only their own training used
        if getattr(module, auxiliary, None) is not None:
            setattr(module, auxiliary, None)
    if hasattr(module, "aux_logits"):
        module.aux_logits = False  # type: ignore[assignment]
    if type(module).__name__ == "SwinTransformer":
        module.output_fmt = "NHWC"  # type: ignore[assignment]  # timm's word for maps with the channels last
    head = find_head(module)
    if head is None:
        return PlainBackbone(module, source_classes=None, **card)
    layer: Any = module.get_submodule(head)
    return HeadBackbone(
        module, head=head, source_classes=getattr(layer, "out_features", None) or layer.out_channels, **card
    )


def find_head(module: nn.Module) -> str | None:
    """The name of the last linear layer of the classifier part, or of its last convolution (SqueezeNet)."""
    from torch import nn

    for part in ("fc", "classifier", "heads", "head"):
        if not hasattr(module, part):
            continue
        inside = dict(module.get_submodule(part).named_modules(prefix=part))
        for kind in (nn.Linear, nn.Conv2d):
            layers = [name for name, layer in inside.items() if isinstance(layer, kind)]
            if layers:
                return layers[-1]
    return None


def list_models(pattern: str) -> ModelListing:
    """Classifiers of torchvision, one entry for each set of weights."""
    models = import_models()
    entries = []
    for name in models.list_models(module=models):
        for weights in models.get_model_weights(name):
            full = f"{name}.{weights.name}"
            if fnmatch.fnmatch(full, pattern) or fnmatch.fnmatch(name, pattern):
                entries.append(_entry(full, weights))
    if hub_silence() is None:
        return ModelListing(entries)
    note = "The network cannot be reached: only torchvision weights on this machine are listed."
    return ModelListing((entry for entry in entries if entry.on_this_machine), (note,))


def check_name(name: str) -> None:
    """Refuse a name that torchvision does not have, and offer the nearest one."""
    names = import_models().list_models(module=import_models())
    if name not in names:
        hint = did_you_mean(name, names, "torchvision/")
        raise ModelNotFoundError(f"torchvision has no classifier {name!r}.{hint}")


def _check_options(name: str, options: Mapping[str, Any]) -> None:
    wrong = sorted({"weights", "weights_backbone", "name", "progress"} & options.keys())
    if wrong:
        raise InputError(
            f"torchvision/{name} takes no option {wrong[0]!r}. Published weights are named torchvision/NAME.WEIGHTS; "
            f"for weights in a file write file:PATH?arch=torchvision/{name}."
        )


def import_models() -> Any:
    """torchvision.models, after making sure that torchvision can be imported."""
    prepare_torchvision()
    return require("torchvision.models", extra="vision", purpose="Models of torchvision")


def _weights(name: str, tag: str) -> Any:
    choices = import_models().get_model_weights(name)
    if not tag:
        return choices.DEFAULT
    if tag not in choices.__members__:
        raise ModelNotFoundError(
            f"torchvision has no weights {tag!r} for {name!r}; it has {', '.join(choices.__members__)}."
        )
    return choices[tag]


def _config(weights: Any) -> ImageConfig:
    transform = weights.transforms()
    try:
        crop, resize = transform.crop_size[0], transform.resize_size[0]
        return ImageConfig(
            input_size=(3, crop, crop),
            mean=tuple(transform.mean),
            std=tuple(transform.std),
            interpolation=transform.interpolation.value,
            # Half a pixel more, because the size to resize to is rounded down from this share.
            crop_pct=crop / (resize + 0.5) if resize != crop else 1.0,
        )
    except (AttributeError, IndexError, TypeError) as error:
        raise ModelError(f"The preprocessing of {weights} is not one of images alone: {transform}.") from error


def _without_auxiliary(module: nn.Module, state: dict[str, Any]) -> dict[str, Any]:
    """The published weights of GoogLeNet and Inception include the auxiliary heads, whether they are built or not."""
    known = module.state_dict().keys()
    return {name: value for name, value in state.items() if name in known or not name.lower().startswith("aux")}


def _source_data(weights: Any) -> str | None:
    return "ImageNet-1k" if "IMAGENET1K" in weights.name else None


def _file(weights: Any) -> Path:
    import torch

    return Path(torch.hub.get_dir()) / "checkpoints" / Path(weights.url).name


_silence = functools.cache(silence_of)
"""Why torchvision's host, which is not that of the Hugging Face Hub, cannot be asked; found out once."""


def _entry(full: str, weights: Any) -> ModelEntry:
    operations = weights.meta.get("_ops")
    return ModelEntry(
        identifier=f"torchvision/{full}",
        params=weights.meta.get("num_params"),
        # torchvision counts a multiply-add once, in billions.
        flops=int(2e9 * operations) if operations else None,
        source_data=_source_data(weights),
        licence="BSD-3-Clause",
        on_this_machine=_file(weights).is_file(),
        modalities=("image",),
    )
