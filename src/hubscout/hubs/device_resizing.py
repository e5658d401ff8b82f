"""Images resized on the network's device, to the last bit as Pillow resizes them.

Pillow resizes 8-bit images in two passes, one along the rows and one along the columns. In each a pixel is a sum of
pixels with weights that are multiples of 2^-22, rounded to 8 bits. In float64 such sums are exact in whatever order
they are added, so a pass over a batch is a matrix product. What is left for the processors is decoding; and a small
image travels to the device as it is, in 3 kB instead of the 150 kB of 224 × 224 pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.hubs.backbone import Batch
from hubscout.hubs.image_preprocessing import PIXELS, ImagePreprocessing, check_image

if TYPE_CHECKING:
    from torch import Tensor

DECODED = "decoded_pixels"
"""The key of images in a batch that are still to be resized: uint8."""
MOST_PIXELS = 1 << 16
"""Of a larger image the pixels after resizing are fewer than those before, and quicker to send."""
_UNITS = 1 << 22
MOST_BYTES = 3 << 27
"""For the sums of a pass, 8 bytes each: as many images are resized at once as have so many. A batch of 256 images that
become 224 × 224 is one piece."""


class DeviceResizing:
    """The preprocessing of a model in two: `resize` does on the device what is left after decoding.

    Made by `resizing_on`. A batch with images of another size is resized by Pillow.
    """

    key = "image:decoded"
    """Models with inputs of any size share their decoded images."""

    def __init__(
        self,
        steps: ImagePreprocessing,
        shape: tuple[int, ...],
        weights: tuple[np.ndarray, np.ndarray],
        device: str,
        *,
        down_first: bool,
    ) -> None:
        import torch

        self._steps, self._shape, self._down_first = steps, shape, down_first
        self._across, self._down = (torch.from_numpy(one).to(device) for one in weights)
        self._unchanged = all(np.array_equal(one[:, :-1], np.eye(len(one))) for one in weights)

    def __call__(self, sample: Any) -> np.ndarray:
        return decoded(sample)

    def collate(self, samples: Sequence[np.ndarray]) -> Batch:
        import torch

        if any(sample.shape != self._shape for sample in samples):
            return self._steps.collate([self._steps(sample) for sample in samples])
        return {DECODED: torch.from_numpy(np.stack(samples)).permute(0, 3, 1, 2)}

    def augmented(self) -> ImagePreprocessing:
        return self._steps.augmented()

    def resize(self, batch: Batch) -> Batch:
        """A batch on the device as the network takes it."""
        import torch

        if DECODED not in batch:
            return batch
        if self._unchanged:
            return {PIXELS: batch[DECODED]}
        height, width = max(self._shape[0], len(self._down)), max(self._shape[1], len(self._across))
        pieces = batch[DECODED].split(max(1, MOST_BYTES // (8 * 3 * height * width)))
        parts = [resample(piece, self._across, self._down, self._down_first) for piece in pieces]
        return {PIXELS: parts[0] if len(parts) == 1 else torch.cat(parts)}


def decoded(sample: Any) -> np.ndarray:
    """The pixels of an image as they are: uint8, height × width × 3."""
    return np.asarray(check_image(sample))


def resizing_on(device: str, steps: Any, shape: tuple[int, ...]) -> DeviceResizing | None:
    """The same preprocessing for images of a shape (height, width, 3), with the resizing on the device.

    None where it would not give Pillow's pixels, such as where images are padded or turned grey, or where an image has
    more pixels than are worth sending.
    """
    import torch
    from PIL import Image

    if type(steps) is not ImagePreprocessing or steps.training or shape[0] * shape[1] > MOST_PIXELS:
        return None
    try:
        weights = _weights(steps, *shape[:2])
    except (AttributeError, KeyError, TypeError, ValueError):
        return None  # not a resizing and a crop
    noise = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    sent = {DECODED: torch.from_numpy(noise).permute(2, 0, 1)[None].to(device)}
    expected = steps(Image.fromarray(noise))
    for down_first in (False, True):  # Pillow begins with the pass that makes the image smaller
        found = DeviceResizing(steps, shape, weights, device, down_first=down_first)
        if np.array_equal(found.resize(sent)[PIXELS][0].cpu().numpy(), expected):
            return found
    return None


def _weights(steps: ImagePreprocessing, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The weights of both passes, for the pixels that the crop leaves."""
    from PIL import Image

    resize, crop, _ = steps.transform.transforms
    method = Image.Resampling[resize.interpolation.name]
    wide, high = resize(Image.new("L", (width, height))).size
    places = np.asarray(crop(Image.fromarray(np.arange(wide * high, dtype=np.int32).reshape(high, wide))))
    return pass_weights(width, wide, method)[places[0] % wide], pass_weights(height, high, method)[places[:, 0] // wide]


@lru_cache(maxsize=64)
def pass_weights(size: int, wanted: int, method: int) -> np.ndarray:
    """Pillow's weights of `size` pixels in each of `wanted` ones, and half a unit for rounding: (wanted, size + 1).

    Pillow itself says them: images of 32-bit numbers are resized with the weights as they are, and rounded as the
    weights for 8-bit images are.

    >>> pass_weights(2, 4, 2)[:, :2].tolist()  # bilinear
    [[1.0, 0.0], [0.75, 0.25], [0.25, 0.75], [0.0, 1.0]]
    """
    from PIL import Image

    unit = Image.fromarray(np.diag(np.full(size, _UNITS, dtype=np.int32)))
    weights = np.asarray(unit.resize((wanted, size), method)).T / _UNITS
    return np.concatenate([weights, np.full((wanted, 1), 0.5)], axis=1)


def resample(pixels: Tensor, across: Tensor, down: Tensor, down_first: bool) -> Tensor:
    """uint8 images (n, 3, height, width) with the weights of both passes; the colours lie side by side in memory."""
    found = pixels.permute(0, 2, 3, 1)
    for along_rows in (not down_first, down_first):
        found = _along_rows(across, found) if along_rows else _along_columns(down, found)
    return found.contiguous().permute(0, 3, 1, 2)


def _along_rows(weights: Tensor, pixels: Tensor) -> Tensor:
    count, height, width, colours = pixels.shape
    found = _pass(weights, pixels.permute(2, 0, 1, 3).reshape(width, -1))
    return found.view(-1, count, height, colours).permute(1, 2, 0, 3)


def _along_columns(weights: Tensor, pixels: Tensor) -> Tensor:
    count, height, width, colours = pixels.shape
    return _pass(weights, pixels.reshape(count, height, -1)).view(count, -1, width, colours)


def _pass(weights: Tensor, pixels: Tensor) -> Tensor:
    import torch

    with_one = torch.nn.functional.pad(pixels.double(), (0, 0, 0, 1), value=1.0)
    return (weights @ with_one).clamp_(0, 255).to(torch.uint8)
