"""Images as a transformers image processor prepares them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from hubscout.hubs.backbone import Batch, Preprocessing
from hubscout.hubs.image_preprocessing import PIXELS, ImageConfig, ImagePreprocessing, check_image, normalise


class ImageProcessorPreprocessing:
    """The model's own processor: resizing, cropping, scaling and normalising are all its own."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor
        digest = hashlib.blake2b(processor.to_json_string().encode(), digest_size=12).hexdigest()
        self.key = f"image-processor:{digest}"

    def __call__(self, sample: Any) -> np.ndarray | dict[str, np.ndarray]:
        """The pixels; with their names where the processor gives more than these (SigLIP 2: which patches are real)."""
        found = self.processor(images=check_image(sample), return_tensors="pt")
        arrays = {name: tensor[0].numpy() for name, tensor in found.items()}
        return arrays[PIXELS] if self._gives_pixels_alone() else arrays

    def collate(self, samples: Sequence[Any]) -> Batch:
        import torch

        if isinstance(samples[0], dict):
            return {name: torch.from_numpy(np.stack([sample[name] for sample in samples])) for name in samples[0]}
        return {PIXELS: torch.from_numpy(np.stack(samples))}

    def augmented(self) -> Preprocessing:
        """The standard random crops and flips at this processor's size, normalised as it normalises."""
        return _Augmented(self.config()) if self._gives_pixels_alone() else self

    def _gives_pixels_alone(self) -> bool:
        return "spatial_shapes" not in (getattr(self.processor, "model_input_names", None) or ())

    def config(self) -> ImageConfig:
        """The processor's size, mean and std; the rest does not concern augmentation."""
        crop = getattr(self.processor, "crop_size", None) or getattr(self.processor, "size", None) or {}
        sides = dict(crop)
        side = sides.get("shortest_edge") or 224
        size = (3, int(sides.get("height") or side), int(sides.get("width") or side))
        if not getattr(self.processor, "do_normalize", True):
            return ImageConfig(input_size=size, mean=(0.0,) * 3, std=(1.0,) * 3)
        return ImageConfig(input_size=size, mean=tuple(self.processor.image_mean), std=tuple(self.processor.image_std))


class _Augmented(ImagePreprocessing):
    """Random crops of normalised pixels, for a network that does not normalise by itself."""

    def __init__(self, config: ImageConfig) -> None:
        super().__init__(config, training=True)

    def collate(self, samples: Sequence[np.ndarray]) -> Batch:
        import torch

        pixels = super().collate(samples)[PIXELS]
        return {PIXELS: normalise(pixels, torch.tensor(self.config.mean), torch.tensor(self.config.std))}

    def augmented(self) -> _Augmented:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _Augmented, (self.config,)
