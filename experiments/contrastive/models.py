"""The ResNet-20s that `pretrain.py` makes; `shared_hub.identifier` says how hubscout opens them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1]))  # the parts that all experiments share

import shared_hub  # noqa: E402
from references import CACHE  # noqa: E402

if TYPE_CHECKING:
    from torch import nn

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""By which the shared folder's CIFAR networks have their images prepared, and so those of this folder."""
WEIGHTS = CACHE / "contrastive"


def resnet20() -> nn.Module:
    """The shared folder's ResNet-20 with random weights and without classes."""
    from torch import nn

    network = shared_hub._zoo().card("cifar10_resnet20").architecture()
    network.fc, network.num_classes = nn.Identity(), 0
    return network


def build(name: str) -> nn.Module:
    """A network that `pretrain.py` made, saying in timm's words how its images are prepared."""
    from safetensors.torch import load_file
    from torch import nn

    path = WEIGHTS / f"{name}.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"No weights at {path}: `pretrain.py` makes them.")
    network, state = resnet20(), load_file(path)
    if "fc.weight" in state:
        network.fc, network.num_classes = nn.Linear(64, 10), 10
    network.load_state_dict(state)
    network.pretrained_cfg = {
        "architecture": "resnet20",
        "input_size": (3, 32, 32),
        "mean": IMAGENET_MEAN,
        "std": IMAGENET_STD,
        "interpolation": "bicubic",
        "crop_pct": 1.0,
        "source_data": "nothing" if name == "random" else "CIFAR-10",
    }
    return network.float().eval()
