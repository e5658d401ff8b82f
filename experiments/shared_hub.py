"""The really pre-trained models of the shared folder, as identifiers that `hubscout.rank` and `hubscout.tune` take.

The folder is $HUBSCOUT_SHARED, by default `../shared` beside the repository; its `hub/README.md` says where each model
comes from. The larger models are fetched into $HUBSCOUT_ZOO by the folder's own `convert.py`.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

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


def identifier(name: str) -> str:
    """How hubscout opens a vision model of the shared folder."""
    return f"python:{HERE}:build?name={name}"


def name_of(opened: str) -> str:
    """The model's name out of its identifier."""
    return opened.rpartition("name=")[2] if opened.startswith("python:") else Path(opened).name


def text_identifier(name: str) -> str:
    """How hubscout opens a text encoder of the shared folder."""
    return f"hf/{_zoo().zoo_folder() / 'text' / name}"


def build(name: str) -> nn.Module:
    """A vision model with its weights, saying in timm's words how its images are prepared."""
    model = _zoo().build(name)
    module = model.module
    module.pretrained_cfg = {
        "architecture": name.removesuffix("_in1k"),
        "input_size": (3, model.input_size, model.input_size),
        "mean": model.mean,
        "std": model.std,
        "interpolation": model.interpolation,
        "crop_pct": model.crop_pct,
        "source_data": model.pretrained_on,
        "source_accuracy": SOURCE_ACCURACY.get(name),
        "license": model.licence,
    }
    return module


@cache
def _zoo() -> ModuleType:
    sys.path.insert(0, str(SHARED / "hub"))
    import zoo

    return zoo
