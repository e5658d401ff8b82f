"""A backbone with a new head, written so that the library it came from opens it again."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.credentials import strip_credentials
from hubscout.errors import ModelError

if TYPE_CHECKING:
    from torch import nn

    from hubscout.hubs.backbone import Backbone
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


def save_timm(
    backbone: TorchBackbone, folder: Path, *, head: nn.Module, target_names: Sequence[str], kind: str
) -> bool:
    """A folder for `timm.create_model("local-dir:FOLDER", pretrained=True)`; False where the network is not timm's."""
    import timm
    import torch
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
    with torch.no_grad():
        classifier.weight.copy_(layer.weight.cpu())
        if classifier.bias is not None:
            classifier.bias.zero_() if layer.bias is None else classifier.bias.copy_(layer.bias.cpu())
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
    from safetensors.torch import save_file

    layer = linear_layer(head, backbone.card.feature_dim, len(target_names))
    config = backbone.config.to_pretrained_cfg() if backbone.config else None
    write_description(folder, backbone, target_names=target_names, kind=kind, preprocessing=config)
    save_file({name: value.contiguous() for name, value in _on_cpu(backbone.module)}, folder / "model.safetensors")
    save_file({name: value.contiguous() for name, value in _on_cpu(layer)}, folder / HEAD_WEIGHTS)


def _on_cpu(module: nn.Module) -> list[tuple[str, Any]]:
    return [(name, value.detach().cpu().clone()) for name, value in module.state_dict().items()]
