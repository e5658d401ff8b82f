"""Images to pixels, as each model was trained to see them.

Samples become uint8 arrays; the network's own mean and standard deviation are applied to the whole batch on its
device (`normalise`). So models that differ only in these share their decoded images, and a batch is a quarter of
the size.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.errors import InputError
from hubscout.hubs.backbone import Batch
from hubscout.hubs.torchvision_compat import prepare_torchvision
from hubscout.optional import require

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor

PIXELS = "pixel_values"
"""The key of images in a batch: uint8 pixels, or floats that are normalised already."""
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class ImageConfig:
    """What a network expects of an image. `crop_pct` is the share of the resized image that the crop keeps."""

    input_size: tuple[int, int, int] = (3, 224, 224)
    mean: tuple[float, ...] = _IMAGENET_MEAN
    std: tuple[float, ...] = _IMAGENET_STD
    interpolation: str = "bicubic"
    crop_pct: float = 0.875
    crop_mode: str = "center"

    @classmethod
    def from_pretrained_cfg(cls, pretrained_cfg: Mapping[str, Any]) -> ImageConfig:
        """From a dictionary with timm's names; what it leaves out keeps its default."""
        return cls().updated({key: pretrained_cfg[key] for key in IMAGE_OPTIONS if pretrained_cfg.get(key) is not None})

    def updated(self, options: Mapping[str, Any]) -> ImageConfig:
        """With those of `options` that concern images; one number for mean or std stands for every channel."""
        changes = {key: options[key] for key in IMAGE_OPTIONS if key in options}
        if "input_size" in changes:
            changes["input_size"] = _read_size(changes["input_size"], self.input_size[0])
        channels = changes.get("input_size", self.input_size)[0]
        for key in ("mean", "std"):
            if key in changes:
                value = changes[key]
                values = (float(value),) * channels if isinstance(value, int | float) else tuple(map(float, value))
                if len(values) != channels:
                    raise InputError(f"{key} has {len(values)} numbers for {channels} channels: {value!r}.")
                changes[key] = values
        if any(number <= 0 for number in changes.get("std", ())):
            raise InputError(f"std must be positive, got {options['std']!r}.")
        return replace(self, **changes)

    def to_pretrained_cfg(self) -> dict[str, Any]:
        """The same in timm's names."""
        return asdict(self)


IMAGE_OPTIONS = tuple(ImageConfig.__dataclass_fields__)
"""The options of an identifier that say how images are prepared."""


def _read_size(value: Any, channels: int) -> tuple[int, int, int]:
    sizes = (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(sizes) <= 3:
        raise InputError(
            f"input_size must be one side, height and width, or all of (channels, height, width): {value!r}."
        )
    return sizes if len(sizes) == 3 else (channels, sizes[0], sizes[-1])


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options on images, and all others."""
    image = {key: value for key, value in options.items() if key in IMAGE_OPTIONS}
    return image, {key: value for key, value in options.items() if key not in IMAGE_OPTIONS}


class ImagePreprocessing:
    """timm's evaluation transform for a configuration, up to uint8 pixels; `augmented` gives its training transform."""

    def __init__(self, config: ImageConfig, *, training: bool = False) -> None:
        self.config = config
        self.training = training
        prepare_torchvision()
        data = require("timm.data", extra="vision", purpose="Image preprocessing")
        self.transform = data.create_transform(
            input_size=config.input_size,
            interpolation=config.interpolation,
            crop_pct=config.crop_pct,
            crop_mode=config.crop_mode,
            is_training=training,
            use_prefetcher=True,  # timm's own name for "stop at uint8 pixels"
        )

    @property
    def key(self) -> str:
        """The steps up to uint8 pixels: mean and std come later and are left out."""
        steps = {name: value for name, value in asdict(self.config).items() if name not in ("mean", "std")}
        return "image:" + json.dumps({**steps, "training": self.training}, sort_keys=True)

    def __call__(self, sample: Any) -> np.ndarray:
        """An RGB Pillow image, or an array (height, width, 3) of uint8."""
        return np.asarray(self.transform(check_image(sample, channels=self.config.input_size[0])))

    def collate(self, samples: Sequence[np.ndarray]) -> Batch:
        import torch

        return {PIXELS: torch.from_numpy(np.stack(samples))}

    def augmented(self) -> ImagePreprocessing:
        return ImagePreprocessing(self.config, training=True)

    def __reduce__(self) -> tuple[Callable[..., ImagePreprocessing], tuple[Any, ...]]:
        # Made anew where it arrives: a process that opened timm's transform would import torchvision unprepared.
        return functools.partial(ImagePreprocessing, training=self.training), (self.config,)


def check_image(sample: Any, *, channels: int = 3) -> Image.Image:
    """An image that is decoded already, with the number of channels that the network takes.

    Files are not opened here: tasks decode them, for ranking, tuning and predicting alike.
    """
    require("PIL", extra="vision", purpose="Reading images")
    from PIL import Image

    if isinstance(sample, np.ndarray) and sample.dtype == np.uint8 and sample.ndim == 3 and sample.shape[2] == 3:
        sample = Image.fromarray(sample)
    if not isinstance(sample, Image.Image) or sample.mode != "RGB":
        came = f"{sample.mode} image" if isinstance(sample, Image.Image) else f"{type(sample).__name__} {sample!r:.60}"
        raise InputError(
            "A model's preprocessing takes a decoded image: an RGB Pillow image, or a uint8 array (height, width, 3); "
            f"{came} came. hubscout.tasks.images.Images([...])[0] decodes paths, bytes, arrays and other images."
        )
    return sample.convert("L") if channels == 1 else sample


def normalise(pixels: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """uint8 pixels as the network takes them."""
    import torch

    # One multiply-add for the batch: (x / 255 - mean) / std.
    scale = (1 / (255 * std)).view(1, -1, 1, 1)
    return torch.addcmul((-mean / std).view(1, -1, 1, 1), pixels.to(std.dtype), scale)
