"""The really pre-trained models of the shared folder, as identifiers that `hubscout.rank` and `hubscout.tune` take.

The folder is $HUBSCOUT_SHARED, by default `../shared` beside the repository; its `hub/README.md` says where each model
comes from. The larger models are fetched into $HUBSCOUT_ZOO by the folder's own `convert.py`.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

HERE = Path(__file__).resolve()
SHARED = Path(os.environ.get("HUBSCOUT_SHARED", HERE.parents[2] / "shared"))

VISION = (
    "tf_efficientnet_lite0_in1k",
    "tf_efficientnet_lite1_in1k",
    "tf_efficientnet_lite2_in1k",
    "mobilenetv2_coral_in1k",
    "mobilenetv2_coral_inat_bird",
    "mobilenetv2_coral_inat_insect",
    "mobilenetv2_tfhub_in1k",
    "squeezenet1_1_in1k",
    "alexnet_features_in1k",
    "cifar10_resnet20",
    "cifar10_resnet32",
    "cifar10_resnet44",
    "cifar10_resnet56",
    "vgg16_features_in1k",
    "resnet50_keras_in1k",
    "inception_v3_fid_in1k",
    "xception_keras_in1k",
)
PRETRAINED_HERE = ("moco_v1", "moco_v2", "moco_v2_long", "simclr", "supervised", "random")
"""ResNet-20s for 32 pixels that `contrastive/pretrain.py` makes."""
TEXT = ("all-MiniLM-L6-v2", "paraphrase-MiniLM-L3-v2", "sre-minilm", "m3e-small")

# top-1 on 1000 ImageNet images, one a class, as the folder's README gives it: the static baseline "source accuracy"
SOURCE_ACCURACY = {
    "tf_efficientnet_lite0_in1k": 0.883,
    "tf_efficientnet_lite1_in1k": 0.895,
    "tf_efficientnet_lite2_in1k": 0.905,
    "mobilenetv2_coral_in1k": 0.885,
    "squeezenet1_1_in1k": 0.616,
    "resnet50_keras_in1k": 0.909,
}


def identifier(name: str, pixels: int | None = None, *, trained: bool = True) -> str:
    """How hubscout opens a vision model of the shared folder; `pixels` is another input size than its own."""
    if name in PRETRAINED_HERE:
        return f"python:{HERE.parent / 'contrastive' / 'models.py'}:build?name={name}"
    size = "" if pixels is None else f"&pixels={pixels}"
    return f"python:{HERE}:build?name={name}{size}{'' if trained else '&trained=false'}"


def name_of(opened: str) -> str:
    """The model's name out of its identifier."""
    if not opened.startswith("python:"):
        return Path(opened).name.partition("?")[0]
    return opened.rpartition("name=")[2].partition("&")[0]


def text_identifier(name: str, **options: str) -> str:
    """How hubscout opens a text encoder of the shared folder, with options such as `pairs="siamese"`."""
    return _folder_identifier(_zoo().zoo_folder() / "text" / name, options)


def _folder_identifier(folder: Path, options: Mapping[str, str]) -> str:
    written = "&".join(f"{key}={value}" for key, value in sorted(options.items()))
    return f"file:{folder}" + (f"?{written}" if written else "")


def build(name: str, pixels: int | None = None, trained: bool = True) -> nn.Module:
    """A vision model with its weights, or random ones, saying in timm's words how its images are prepared."""
    model = _zoo().build(name)
    module = model.module if trained else untrained(model.module)
    side = pixels or model.input_size
    module.pretrained_cfg = {
        "architecture": name.removesuffix("_in1k"),
        "input_size": (3, side, side),
        "mean": model.mean,
        "std": model.std,
        "interpolation": model.interpolation,
        "crop_pct": model.crop_pct,
        "source_data": model.pretrained_on,
        "source_accuracy": SOURCE_ACCURACY.get(name),
        "license": model.licence,
    }
    return module


def untrained(module: nn.Module, seed: int = 0) -> nn.Module:
    """The network with random weights, of a size at which features neither vanish nor overflow."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for layer in module.modules():
            if hasattr(layer, "reset_parameters"):
                layer.reset_parameters()
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return module


def untrained_text(name: str, folder: Path, **options: str) -> str:
    """How hubscout opens a text encoder with random weights, which is made in a folder."""
    from transformers import AutoConfig, AutoModel

    source, made = _zoo().zoo_folder() / "text" / name, folder / name
    if not made.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch, torch.random.fork_rng(devices=[]):
            half = Path(scratch) / name
            shutil.copytree(source, half, ignore=shutil.ignore_patterns("*.safetensors"))
            torch.manual_seed(0)
            AutoModel.from_config(AutoConfig.from_pretrained(source)).save_pretrained(half)
            with suppress(OSError):  # another process was faster
                half.rename(made)
    return _folder_identifier(made, options)


@cache
def _zoo() -> ModuleType:
    sys.path.insert(0, str(SHARED / "hub"))
    import zoo

    return zoo
