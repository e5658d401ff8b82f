"""Image arrays in every common layout, as the one that is decoded here: uint8, height × width × channels.

torch keeps images as channels × height × width, and often as floats of 0 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hubscout.errors import TaskError
from hubscout.tasks.sequences import LazyRows

_CHANNELS = (1, 3, 4)
_SMALLEST_SIDE = 8
_LOOK_AT_ROWS = 64


def is_array(value: Any) -> bool:
    """Whether a value is a NumPy array or a torch tensor."""
    return isinstance(value, np.ndarray) or hasattr(value, "detach")


def as_array(value: Any) -> np.ndarray:
    """A NumPy array out of one, or out of a torch tensor on any device."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def has_image_shape(shape: Sequence[int]) -> bool:
    """Whether one sample of this shape looks like an image: 1, 3 or 4 channels last, or sides of 8 pixels or more.

    >>> [has_image_shape(shape) for shape in ((3, 32, 32), (32, 32, 3), (28, 28), (7, 16), (2, 5, 6))]
    [True, True, True, False, False]
    """
    if len(shape) == 3 and shape[2] in _CHANNELS:
        return True
    sides = shape[1:] if len(shape) == 3 and shape[0] in _CHANNELS else shape
    return len(sides) == 2 and min(sides) >= _SMALLEST_SIDE


def image_pixels(inputs: Sequence[Any], origin: str) -> Sequence[Any]:
    """The inputs, with arrays in other layouts than uint8, height × width × channels, brought into that.

    Floats must lie within 0 to 1, or within 0 to 255: whether they do is decided for all inputs together, because a
    dark image of the second sort may be of the first.
    """
    if not len(inputs) or not is_array(inputs[0]):
        return inputs
    first = as_array(inputs[0])
    if first.dtype == np.uint8 and not _channels_first(first.shape):
        return inputs
    return PixelArrays(inputs, _scale(inputs, origin), origin)


def _scale(inputs: Sequence[Any], origin: str) -> float:
    """What floats are multiplied by to reach 255."""
    if as_array(inputs[0]).dtype == np.uint8:
        return 1.0
    # All of what is in memory; of what is read row by row, a few rows from everywhere.
    step = 1 if isinstance(inputs, np.ndarray | list) else max(1, len(inputs) // _LOOK_AT_ROWS)
    extremes = [(array.min(), array.max()) for array in (as_array(inputs[row]) for row in range(0, len(inputs), step))]
    low, high = (float(find(ends)) for find, ends in zip((min, max), zip(*extremes, strict=True), strict=True))
    if not (low >= 0 and high <= 255):
        raise TaskError(
            f"The image arrays of {origin} hold values from {low:.3g} to {high:.3g}; images are uint8, or floats "
            "within 0 to 1 or 0 to 255. If they are normalised, give them as they were before: every model normalises "
            'in its own way. If they are not images, say modality="array".'
        )
    return 255.0 if high <= 1 else 1.0


def _channels_first(shape: Sequence[int]) -> bool:
    return len(shape) == 3 and shape[2] not in _CHANNELS and shape[0] in _CHANNELS


class PixelArrays(LazyRows):
    """Image arrays as uint8, height × width × channels, each brought there when it is asked for."""

    def __init__(self, arrays: Sequence[Any], scale: float, origin: str) -> None:
        self.arrays, self.scale, self.origin = arrays, scale, origin

    def __len__(self) -> int:
        return len(self.arrays)

    def read(self, row: int) -> Any:
        array = as_array(self.arrays[row])
        if _channels_first(array.shape):
            array = np.moveaxis(array, 0, -1)
        if array.dtype == np.uint8:
            return array
        scaled = np.round(array.astype(np.float64) * self.scale)
        if not (np.isfinite(scaled).all() and scaled.min() >= 0 and scaled.max() <= 255):
            raise TaskError(f"The image array in {self.origin}, row {row}, holds values outside 0 to 255.")
        return scaled.astype(np.uint8)
