"""A backbone with a new head: written so that the library it came from opens it again, and read back.

Where no library has a place for the head, it lies in a file of its own beside the backbone.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.credentials import strip_credentials
from hubscout.errors import CheckpointError, ModelError
from hubscout.hubs.backbone import Backbone, Batch, Output
from hubscout.hubs.weight_files import fingerprint, read_state

if TYPE_CHECKING:
    from torch import nn

    from hubscout.hubs.vision import TorchBackbone

DESCRIPTION = "hubscout.json"
"""The file that says what a saved folder holds: kind of task, target names, where the backbone came from."""
HEAD_WEIGHTS = "head.safetensors"
_FORMAT = 1


def write_description(folder: Path, backbone: Backbone, *, target_names: Sequence[str], kind: str, **more: Any) -> None:
    """Write `hubscout.json`."""
    content = {
        "format": _FORMAT,
        "backbone": backbone.card.identifier,
        "architecture": backbone.card.architecture,
        "feature_dim": backbone.card.feature_dim,
        "kind": kind,
        "target_names": list(target_names),
        **more,
    }
    folder.mkdir(parents=True, exist_ok=True)
    text = strip_credentials(json.dumps(content, indent=2, ensure_ascii=False))
    (folder / DESCRIPTION).write_text(text + "\n", encoding="utf-8")


def read_description(folder: Path) -> dict[str, Any]:
    """What `write_description` wrote; empty where there is none."""
    path = folder / DESCRIPTION
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def linear_layer(head: nn.Module, feature_dim: int, targets: int) -> nn.Linear:
    """The one linear layer that a head is; dropout around it does not count."""
    from torch import nn

    layers = [part for part in head.modules() if isinstance(part, nn.Linear)]
    if len(layers) != 1 or (layers[0].in_features, layers[0].out_features) != (feature_dim, targets):
        raise ModelError(
            f"Only a head of one linear layer from {feature_dim} features to {targets} targets can be saved, "
            f"got {head}."
        )
    return layers[0]


def copy_linear(layer: nn.Linear, into: nn.Linear) -> None:
    """Give one linear layer the weights of another of the same shape; a bias that the first does not have is zero."""
    import torch

    with torch.no_grad():
        into.weight.copy_(layer.weight)
        if into.bias is not None:
            into.bias.zero_() if layer.bias is None else into.bias.copy_(layer.bias)


def save_timm(
    backbone: TorchBackbone, folder: Path, *, head: nn.Module, target_names: Sequence[str], kind: str
) -> bool:
    """A folder for `timm.create_model("local-dir:FOLDER", pretrained=True)`; False where the network is not timm's."""
    import timm
    from timm.models import save_for_hf
    from torch import nn

    network: Any = backbone.module
    architecture = (getattr(network, "pretrained_cfg", None) or {}).get("architecture")
    if not architecture or not timm.is_model(architecture) or not hasattr(network, "reset_classifier"):
        return False
    layer = linear_layer(head, backbone.card.feature_dim, len(target_names))
    network = copy.deepcopy(network).cpu()
    network.reset_classifier(len(target_names))
    classifier = network.get_classifier()
    if not isinstance(classifier, nn.Linear) or classifier.weight.shape != layer.weight.shape:
        return False
    copy_linear(layer, classifier)
    assert backbone.config is not None
    network.pretrained_cfg = {
        **network.pretrained_cfg,
        **backbone.config.to_pretrained_cfg(),
        "num_classes": len(target_names),
    }
    save_for_hf(
        network,
        str(folder),
        model_config={"label_names": list(target_names)},
        model_args=getattr(network, "model_args", None),
        safe_serialization=True,
    )
    write_description(folder, backbone, target_names=target_names, kind=kind)
    return True


def save_parts(
    backbone: TorchBackbone, folder: Path, *, head: nn.Module, target_names: Sequence[str], kind: str
) -> None:
    """The network's weights and the head's in two files, for architectures that only the caller's code can build.

    `load("file:FOLDER?arch=...")` opens it again.
    """
    layer = linear_layer(head, backbone.card.feature_dim, len(target_names))
    config = backbone.config.to_pretrained_cfg() if backbone.config else None
    write_description(folder, backbone, target_names=target_names, kind=kind, preprocessing=config)
    save_module(backbone.module, folder / "model.safetensors")
    save_module(layer, folder / HEAD_WEIGHTS)


def save_module(module: nn.Module, path: Path) -> None:
    """Write the weights of a module as safetensors."""
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    state = {name: value.detach().cpu().clone().contiguous() for name, value in module.state_dict().items()}
    save_file(state, path)


class HeadedBackbone(Backbone):
    """The features of one backbone, and as logits what a linear layer makes of them."""

    def __init__(self, inner: Backbone, head: nn.Linear) -> None:
        from torch import nn

        assert inner.module is not None
        self._inner, self.head = inner, head
        self.preprocessing = inner.preprocessing
        self.module = nn.ModuleDict({"backbone": inner.module, "head": head}).eval()
        prints = inner.card.weights_fingerprint, fingerprint(head)
        self.card = replace(inner.card, source_classes=head.out_features, weights_fingerprint="-".join(prints)[:48])

    @property
    def layer_names(self) -> tuple[str, ...]:
        return self._inner.layer_names

    @property
    def averages_layers(self) -> bool:
        return self._inner.averages_layers

    def forward(self, batch: Batch, layers: Sequence[str] = ()) -> Output:
        found = self._inner.forward(batch, layers)
        return Output(found.features, self.head(found.features), found.layers)

    def save(self, folder: Path, *, head: nn.Module, target_names: Sequence[str], kind: str) -> None:
        self._inner.save(folder, head=head, target_names=target_names, kind=kind)


def add_saved_head(backbone: Backbone, folder: Path) -> Backbone:
    """The backbone with the head that lies beside it in the folder, or as it is where there is none."""
    from torch import nn

    path = folder / HEAD_WEIGHTS
    if not path.is_file():
        return backbone
    state = read_state(path)
    if "weight" not in state or state["weight"].ndim != 2:
        raise CheckpointError(f"{path} holds no linear layer; its tensors are {', '.join(state)}.")
    head = nn.Linear(state["weight"].shape[1], state["weight"].shape[0], bias="bias" in state)
    head.load_state_dict(state)
    return HeadedBackbone(backbone, head)
