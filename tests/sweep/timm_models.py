"""One architecture of timm with random weights through hubscout, against what timm itself gives."""

from __future__ import annotations

from typing import Any

import torch

from hubscout.hubs import load, prepare_torchvision

prepare_torchvision()
import timm  # noqa: E402
from timm.models._registry import _model_to_module  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
torch.backends.cudnn.allow_tf32 = False
SMALL = 128
"""Pixels a side for architectures that take any size."""


def family(name: str) -> str:
    """The module of timm that the architecture is defined in."""
    return _model_to_module[name]


SIZES = (
    ("test_",),
    ("atto", "femto", "pico", "nano", "xxs", "xxtiny", "zepto"),
    ("xtiny", "_xs", "_ti", "tiny", "mini", "050", "075", "035"),
    ("small", "_s", "_t", "_b0", "10", "18", "100"),
    ("base", "_b", "50", "medium", "_m"),
    ("large", "_l", "101", "152", "_b5", "_b6", "_b7"),
    ("huge", "giant", "_h", "_g", "xlarge", "xl", "so400m", "so150m"),
)


def guess_size(name: str) -> tuple[int, int]:
    """From small to large by the words in a name: building each architecture to count would take minutes."""
    ranks = [rank for rank, words in enumerate(SIZES) if any(word in name for word in words)]
    return (0 if ranks[:1] == [0] else max(ranks, default=3)), input_size(name)


def count_params(name: str) -> int | None:
    """None for the few that compute with values while they are built, and so cannot be built without memory."""
    try:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in timm.create_model(name).parameters())
    except Exception:
        return None


def input_size(name: str) -> int:
    """Small where the architecture allows it, its own size where it is fixed."""
    config = timm.get_pretrained_cfg(name.partition("?")[0])
    own = config.input_size[-1] if config else 224
    if config and config.fixed_input_size:
        return own
    least = config.min_input_size[-1] if config and config.min_input_size else SMALL
    return min(own, max(SMALL, least))


def check(name: str) -> dict[str, Any]:
    """Load and compare; every disagreement is a line of `wrong`. What fails to load raises.

    Options may follow the name, as in an identifier.
    """
    torch.manual_seed(0)
    size = input_size(name)
    backbone = _open(name, size)
    size = backbone.config.input_size[-1]
    model = backbone.to(DEVICE).module
    pixels = torch.randn(2, *backbone.config.input_size).to(DEVICE)
    taken: list[torch.Tensor] = []
    encoder = type(model).__name__.endswith("Encoder")
    classifier = None if encoder else model.get_classifier()
    num_classes = getattr(model, "num_classes", 0)
    handle = None
    if isinstance(classifier, torch.nn.Linear | torch.nn.Conv2d):
        handle = classifier.register_forward_pre_hook(lambda _module, inputs: taken.append(inputs[0]))
    with torch.inference_mode():
        logits = None if encoder else model(pixels)
        if handle:
            handle.remove()
        features = _features(model, pixels)
        output = backbone({"pixel_values": pixels}, backbone.layer_names)

    wrong = []
    if not torch.allclose(output.features, features, rtol=1e-4, atol=1e-5):
        wrong.append("features differ from those of timm's two halves")
    if taken:
        # CLIP's attention pooling projects every position and takes the first afterwards
        given = taken[0][:, 0] if taken[0].ndim == 3 and features.shape == taken[0][:, 0].shape else taken[0].flatten(1)
        if given.shape != features.shape or not torch.allclose(given, features, atol=1e-4):
            wrong.append("features are not what the classifier takes")
    given = output.features if output.logits is None and not num_classes else output.logits
    if logits is not None and (given is None or not torch.allclose(given, logits, rtol=1e-4, atol=1e-5)):
        wrong.append("logits differ from those of the model")
    if not torch.isfinite(output.features).all():
        wrong.append("features are not finite")
    stated = getattr(model, "head_hidden_size", None) or model.num_features
    if not backbone.card.feature_dim == features.shape[1] == stated:
        wrong.append(f"feature_dim {backbone.card.feature_dim}, features {features.shape[1]}, stated {stated}")
    if backbone.card.params != sum(parameter.numel() for parameter in model.parameters()):
        wrong.append("params differ")
    if not backbone.layer_names:
        wrong.append("no layers to tap")
    channels = {level["module"]: level["num_chs"] for level in getattr(model, "feature_info", ())}
    for layer, values in output.layers.items():
        if values.ndim != 2 or len(values) != 2 or not torch.isfinite(values).all():
            wrong.append(f"layer {layer} gives {tuple(values.shape)}")
        elif values.shape[1] != channels.get(layer, values.shape[1]):
            wrong.append(f"layer {layer} has {values.shape[1]} features, timm says {channels[layer]}")
    return {
        "name": name,
        "size": size,
        "params": backbone.card.params,
        "feature_dim": backbone.card.feature_dim,
        "flops": backbone.card.flops,
        "layers": len(backbone.layer_names),
        "wrong": wrong,
    }


def _features(model: Any, pixels: torch.Tensor) -> torch.Tensor:
    """What the two halves give; of an encoder without a head the average over the positions."""
    maps = model.forward_features(pixels)
    if not type(model).__name__.endswith("Encoder"):
        return model.forward_head(maps, pre_logits=True).flatten(1)
    return maps.movedim(list(maps.shape).index(model.num_features, 1), 1).flatten(2).mean(2)


def _open(name: str, size: int) -> Any:
    """At the small size; where the architecture does not run so small, at its own."""
    identifier = f"timm/{name}{'&' if '?' in name else '?'}pretrained=false"
    try:
        return load(identifier, input_size=size)
    except Exception:
        if size != SMALL:
            raise
        return load(identifier)
