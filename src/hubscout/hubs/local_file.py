"""`file:PATH`: a checkpoint on this machine, a whole folder or a file of weights with its architecture named."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.errors import CheckpointError, InputError, ModelNotFoundError
from hubscout.hubs import python_callable, timm_hub, torchvision_hub
from hubscout.hubs.backbone import Backbone, Batch, Output
from hubscout.hubs.cost import fingerprint
from hubscout.hubs.image_preprocessing import split_options
from hubscout.hubs.model_identifier import Identifier
from hubscout.hubs.model_listing import ModelEntry, ModelListing
from hubscout.hubs.random_weights import without_random_weights
from hubscout.hubs.repository import PLACE_OPTIONS
from hubscout.hubs.saving import DESCRIPTION, HEAD_WEIGHTS, lineage, read_description, read_settings
from hubscout.hubs.vision import HalvesBackbone
from hubscout.hubs.weight_files import State, find_weights, fit_state, read_state, without_attribute

if TYPE_CHECKING:
    from torch import nn


def load(identifier: Identifier) -> Backbone:
    """Open what lies at the path: see `load_folder` and `load_weights`."""
    path = Path(os.path.expanduser(identifier.name))
    if path.is_dir():
        return load_folder(path, identifier)
    if path.suffix == ".onnx":
        from hubscout.hubs import onnx_hub

        return onnx_hub.load(identifier)
    if not path.is_file():
        raise ModelNotFoundError(f"There is no file or folder {path}.")
    return load_weights(path, identifier)


def load_folder(folder: Path, identifier: Identifier) -> Backbone:
    """A folder saved by timm, transformers, sentence-transformers or hubscout; with `arch`, weights of that one.

    Where no library has a place for the head, it lies in a file of its own beside the backbone, and gives the logits.
    """
    from torch import nn

    backbone, path = _load_backbone(folder, identifier), folder / HEAD_WEIGHTS
    backbone.card = replace(backbone.card, **lineage(read_description(folder), str(folder / DESCRIPTION)))
    if not path.is_file():
        return backbone
    state = read_state(path)
    if "weight" not in state or state["weight"].ndim != 2:
        raise CheckpointError(f"{path} holds no linear layer; its tensors are {', '.join(state)}.")
    head = nn.Linear(state["weight"].shape[1], state["weight"].shape[0], bias="bias" in state)
    head.load_state_dict(state)
    return HeadedBackbone(backbone, head)


class HeadedBackbone(Backbone):
    """The features of one backbone, and as logits what a linear layer makes of them."""

    def __init__(self, inner: Backbone, head: nn.Linear) -> None:
        from torch import nn

        assert inner.module is not None
        self._inner, self.head = inner, head
        self.preprocessing = inner.preprocessing
        self.module = nn.ModuleDict({"backbone": inner.module, "head": head}).eval()
        prints = inner.card.weights_fingerprint, fingerprint(head.state_dict())
        self.card = replace(inner.card, source_classes=head.out_features, weights_fingerprint="-".join(prints)[:48])

    @property
    def layer_names(self) -> tuple[str, ...]:
        return self._inner.layer_names

    @property
    def averages_layers(self) -> bool:
        return self._inner.averages_layers

    @property
    def ignores_padding(self) -> bool:
        return self._inner.ignores_padding

    def forward(self, batch: Batch, layers: Sequence[str] = ()) -> Output:
        found = self._inner.forward(batch, layers)
        return Output(found.features, self.head(found.features), found.layers)

    def save(self, folder: Path, *, head: nn.Module, target_names: Sequence[str], kind: str) -> None:
        self._inner.save(folder, head=head, target_names=target_names, kind=kind)


def _load_backbone(folder: Path, identifier: Identifier) -> Backbone:
    if "arch" in identifier.options:
        return load_weights(find_weights(folder), identifier, read_description(folder).get("preprocessing") or {})
    if (folder / "modules.json").is_file():
        from hubscout.hubs import sentence_transformers_hub

        return sentence_transformers_hub.load_folder(folder, identifier)
    config = read_settings(folder / "config.json") if (folder / "config.json").is_file() else {}
    if "architecture" in config:
        return load_timm_folder(folder, config, identifier)
    if "model_type" in config:
        from hubscout.hubs import huggingface

        return huggingface.open_model(folder, identifier)
    described = read_description(folder)
    if described:
        raise InputError(
            f"{folder} holds weights of {described['architecture']}, from {described['backbone']}: say how to build "
            "it with ?arch=timm/NAME, ?arch=torchvision/NAME or ?arch=python:module:function."
        )
    raise CheckpointError(
        f"{folder} is not a folder of timm, transformers or sentence-transformers (its config.json names neither "
        "an architecture nor a model_type). For bare weights add ?arch=timm/NAME or ?arch=torchvision/NAME."
    )


def load_weights(path: Path, identifier: Identifier, preprocessing: Mapping[str, Any] | None = None) -> Backbone:
    """A file of weights in the architecture that the option `arch` names, float32 whatever the file holds.

    Other options go to the architecture; `num_classes` is read off the head's weights where it is not given.
    `preprocessing` is what a saved folder says of images; options win over it.
    """
    options = dict(identifier.options)
    arch = options.pop("arch", None)
    if arch is None:
        raise InputError(
            f"'{identifier}' needs its architecture: add ?arch=timm/NAME, ?arch=torchvision/NAME or "
            "?arch=python:module:function."
        )
    image_options, options = split_options(options)
    image_options = {**(preprocessing or {}), **image_options}
    named = Identifier.parse(str(arch))
    state = read_state(path)
    if named.hub in ("timm", "torchvision"):
        state = without_attribute(state)
    if named.hub == "timm":
        module = _filled(build_timm, named.name, state, options, str(path))
        return timm_hub.wrap(module, identifier, image_options=image_options, facts={})
    if named.hub == "torchvision":
        module = _filled(build_torchvision, named.name, state, options, str(path))
        config = torchvision_hub.default_config(named.name).updated(image_options)
        return torchvision_hub.wrap_network(module, identifier=str(identifier), architecture=named.name, config=config)
    if named.hub == "python":
        made = python_callable.call(named.with_options(**options))
        if isinstance(made, Backbone):
            raise InputError(f"{arch} gives a whole Backbone; for a file of weights it must give the torch module.")
        fit_state(made, state, source=str(path))
        return python_callable.with_code(python_callable.wrap(made, identifier, image_options=image_options), named)
    raise InputError(f"arch must be timm/NAME, torchvision/NAME or python:module:function, got {arch!r}.")


def _filled(
    build: Callable[[str, State, Mapping[str, Any]], nn.Module],
    name: str,
    state: State,
    options: Mapping[str, Any],
    source: str,
) -> nn.Module:
    """The architecture with the weights in it."""

    def with_weights() -> nn.Module:
        module = build(name, state, options)
        fit_state(module, state, source=source)
        return module

    return without_random_weights(with_weights)


def build_timm(name: str, state: State, options: Mapping[str, Any]) -> nn.Module:
    """The architecture with a head as wide as the checkpoint's; without one if the checkpoint has none."""
    chosen = dict(options)
    timm_hub.check_name(name)
    classifier = timm_hub.import_timm().get_pretrained_cfg(name)
    heads = getattr(classifier, "classifier", None) or ()
    first = heads if isinstance(heads, str) else next(iter(heads), None)
    if "num_classes" not in chosen and first:
        weight = state.get(f"{first}.weight")
        chosen["num_classes"] = 0 if weight is None else weight.shape[0]
    module: Any = timm_hub.build(name, chosen)
    module.model_args = dict(options)
    return module


def build_torchvision(name: str, state: State, options: Mapping[str, Any]) -> nn.Module:
    """The architecture with a head as wide as the checkpoint's, and without the auxiliary heads that it lacks."""
    chosen = dict(options)
    if name in ("googlenet", "inception_v3") and "aux_logits" not in chosen:
        chosen["aux_logits"] = any(key.lower().startswith("aux") for key in state)
    module = torchvision_hub.build(name, chosen)
    head = torchvision_hub.find_head(module)
    if "num_classes" not in chosen and head and f"{head}.weight" in state:
        width = state[f"{head}.weight"].shape[0]
        if width != module.state_dict()[f"{head}.weight"].shape[0]:
            module = torchvision_hub.build(name, {**chosen, "num_classes": width})
    return module


def load_timm_folder(folder: Path, config: Mapping[str, Any], identifier: Identifier) -> HalvesBackbone:
    """A folder that timm saved."""
    image_options, options = split_options(identifier.options)
    stored = dict(config.get("pretrained_cfg") or {})
    # The wrapper of transformers writes the same folder, with its own name before every weight.
    state = {name.removeprefix("timm_model."): tensor for name, tensor in read_state(find_weights(folder)).items()}
    foreign = sorted(timm_hub.NO_OPTIONS & (config.get("model_args") or {}).keys())
    if foreign:
        raise CheckpointError(
            f"{folder / 'config.json'} gives its network the option {foreign[0]!r}, which is not one."
        )
    options = {key: value for key, value in options.items() if key not in PLACE_OPTIONS}
    arguments = {**(config.get("model_args") or {}), **options}
    if "num_classes" in config:
        arguments.setdefault("num_classes", config["num_classes"])
    module: Any = _filled(build_timm, config["architecture"], state, arguments, str(folder))
    module.pretrained_cfg = {**module.pretrained_cfg, **stored, "architecture": config["architecture"]}
    module.model_args = {key: value for key, value in arguments.items() if key != "num_classes"}
    return timm_hub.wrap(module, identifier, image_options=image_options, facts={"licence": stored.get("license")})


def list_models(pattern: str) -> ModelListing:
    """Folders of models, and files of weights, at the paths that match a shell pattern such as `models/*`."""
    if pattern in ("*", ""):
        return ModelListing(notes=("Files are not listed; name one as file:PATH, or a folder of them as file:PATH/*.",))
    found = (Path(path) for path in sorted(glob.glob(os.path.expanduser(pattern))))
    return ModelListing(
        ModelEntry(identifier=f"file:{path}", on_this_machine=True) for path in found if _looks_like_a_model(path)
    )


def _looks_like_a_model(path: Path) -> bool:
    if path.is_dir():
        return any((path / name).is_file() for name in ("config.json", "modules.json")) or bool(read_description(path))
    return path.suffix in (".safetensors", ".onnx", ".pth", ".pt", ".bin")
