"""Images, decoded when they are asked for: the one way from a file, bytes, a Pillow image or an array to RGB.

Ranking, tuning and predicting all take their images from here, so that they see the same pixels. Arrays come in every
common layout (torch keeps images as channels × height × width, and often as floats of 0 to 1) and are brought to one:
uint8, height × width × channels.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import io
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.errors import TaskError
from hubscout.optional import require
from hubscout.tasks.sequences import LazyRows, content_digest

if TYPE_CHECKING:
    from PIL.Image import Image

EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".jfif"})

PLUG_INS = {".heic": "pillow-heif", ".heif": "pillow-heif", ".avif": "pillow-avif-plugin"}
"""Endings of images that Pillow reads with a package beside it, and the package."""

_ORIENTATION = 0x0112
_CHANNELS = (1, 3, 4)
_SMALLEST_SIDE = 8
_LOOK_AT_ROWS = 64


@functools.cache
def readable_endings() -> frozenset[str]:
    """The endings of images that are read here: those of Pillow, and those of the plug-ins that are installed."""
    image_module = require("PIL.Image", extra="vision", purpose="Decoding images")
    with contextlib.suppress(ImportError):
        importlib.import_module("pillow_heif").register_heif_opener()
    with contextlib.suppress(ImportError):
        importlib.import_module("pillow_avif")
    known = image_module.registered_extensions()
    return EXTENSIONS | {ending for ending in PLUG_INS if ending in known}


def is_image_name(name: str | Path) -> bool:
    """Whether a file is an image by its ending, also one that needs a plug-in."""
    ending = Path(name).suffix.lower()
    return ending in EXTENSIONS or ending in PLUG_INS


def _plug_in_for(data: bytes) -> str | None:
    """The package that reads an image of the HEIF family; None for other data."""
    if data[4:8] != b"ftyp":
        return None
    return PLUG_INS[".avif" if data[8:12] in (b"avif", b"avis") else ".heic"]


def decode(data: bytes, origin: str) -> Image:
    """An upright RGB image out of an encoded one, of several frames or pages the first.

    `origin` names it in the error for a broken one, or for one of more pixels than Pillow opens.
    """
    image_module = require("PIL.Image", extra="vision", purpose="Decoding images")
    plug_in = _plug_in_for(data)
    if plug_in is not None:
        readable_endings()  # brings in the plug-ins
    try:
        with image_module.open(io.BytesIO(data)) as image:
            return to_rgb(image)
    except MemoryError:
        raise
    except image_module.DecompressionBombError as error:
        raise TaskError(
            f"The image {origin} is not decoded: {error} ({len(data):,} bytes). Make it smaller, or, if it is to be "
            "trusted, raise PIL.Image.MAX_IMAGE_PIXELS."
        ) from error
    except Exception as error:
        # Pillow's decoders raise whatever their format's code raises: OSError, SyntaxError, struct.error and more.
        unknown = type(error).__name__ == "UnidentifiedImageError"  # whose text is the address of a buffer
        if unknown and plug_in is not None:
            raise TaskError(
                f"The image {origin} is of a format that needs the package {plug_in}: pip install {plug_in}."
            ) from error
        reason = "no format that Pillow knows" if unknown else f"{type(error).__name__}: {error}"
        raise TaskError(
            f"The image {origin} cannot be decoded ({reason}; {len(data)} bytes). "
            "It is probably cut short or not an image: replace it or take it out of the data."
        ) from error


def to_rgb(image: Image) -> Image:
    """Upright and RGB, whatever the mode: 1 bit, grey (8, 16, 32 bits), palette, CMYK, or with transparency.

    Transparent parts become white, as they look on a page: the colours stored beneath them are arbitrary.
    """
    image_module = require("PIL.Image", extra="vision", purpose="Decoding images")
    operations = require("PIL.ImageOps", extra="vision", purpose="Decoding images")
    # Before the orientation is asked for: Pillow turns a TIFF when it loads it.
    image.load()
    # Asked for first, for turning copies even an image that stands upright.
    if image.getexif().get(_ORIENTATION, 1) != 1:
        image = operations.exif_transpose(image)
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith(("I", "F")):
        image = image_module.fromarray(_to_eight_bits(np.asarray(image)))
    if image.mode in {"RGBA", "LA", "PA", "RGBa", "La"} or "transparency" in image.info:
        image = image.convert("RGBA")
        return image_module.alpha_composite(image_module.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


def _to_eight_bits(pixels: np.ndarray) -> np.ndarray:
    """Deep grey values brought to 0..255; Pillow's own conversion would clip everything above 255 to white."""
    values = np.nan_to_num(pixels.astype(np.float64))
    top = 255.0 if values.max(initial=0) <= 255 else 65535.0
    if pixels.dtype.kind == "f" and values.max(initial=0) <= 1:
        top = 1.0
    return np.clip(np.round(values * (255.0 / top)), 0, 255).astype(np.uint8)


class Images(LazyRows):
    """Images as RGB: each a path (relative to `root`), bytes, Hugging Face's mapping of `bytes` and `path`, a Pillow
    image, or a uint8 array (height, width) or (height, width, channels).

    A row is read and decoded when it is asked for. `origin` names rows in errors.
    """

    def __init__(self, encoded: Sequence[Any], *, root: Path | None = None, origin: str = "") -> None:
        self.encoded, self.root, self.origin = encoded, root, origin

    def __getstate__(self) -> dict[str, Any]:
        """With paths as texts: pickling takes a path apart, in Python."""
        listed = self.encoded if isinstance(self.encoded, list) else []
        texts = [os.fspath(one) if isinstance(one, Path) else one for one in listed]
        return {**vars(self), "encoded": texts or self.encoded}

    def __len__(self) -> int:
        return len(self.encoded)

    def read(self, row: int) -> Any:
        value = self.encoded[row]
        if is_encoded(value):
            return decode(*self._read(value, row))
        try:
            image = to_rgb(value if is_pillow(value) else self._from_array(value, row))
        except (OSError, ValueError, SyntaxError) as error:
            if isinstance(error, TaskError):
                raise
            raise TaskError(f"The image in {self._where(row)} cannot be decoded: {error}.") from error
        # A copy: what is done to the image handed out must not reach the data.
        return image.copy() if image is value else image

    def digest(self, row: int) -> bytes:
        """A digest of the encoded bytes, or of the pixels of an image in memory."""
        value = self.encoded[row]
        if is_encoded(value):
            return hashlib.sha256(self._read(value, row)[0]).digest()
        # Of a Pillow image the pixels as they are seen: its own may be places in a palette, or lie on their side.
        return content_digest(self[row] if is_pillow(value) else value)

    def _where(self, row: int) -> str:
        return f"{self.origin}, row {row}" if self.origin else f"row {row}"

    def _read(self, value: Any, row: int) -> tuple[bytes, str]:
        where = self._where(row)
        if isinstance(value, Mapping):
            stored = value.get("bytes")
            value = value.get("path") if stored is None else stored
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value), f"({where})"
        if not isinstance(value, (str, Path)) or not str(value):
            raise TaskError(f"No image in {where}: expected a path or bytes, found {value!r:.80}.")
        path = Path(value) if self.root is None else self.root / value
        return read_bytes(path, where), str(path)

    def _from_array(self, value: Any, row: int) -> Image:
        pixels = np.asarray(value)
        channels = pixels.shape[2] if pixels.ndim == 3 else 1
        if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or channels not in _CHANNELS:
            raise TaskError(
                f"Image {row} must be uint8 of shape (height, width) or (height, width, 1, 3 or 4); it is "
                f"{pixels.dtype} of shape {pixels.shape}."
            )
        if channels == 1:
            pixels = pixels.reshape(pixels.shape[:2])
        image_module = require("PIL.Image", extra="vision", purpose="Images from arrays")
        return image_module.fromarray(np.ascontiguousarray(pixels))


def is_pillow(value: Any) -> bool:
    """Whether a value is a Pillow image."""
    return hasattr(value, "mode") and hasattr(value, "convert")


def is_encoded(value: Any) -> bool:
    """Whether a value is an image that must be decoded: a path, bytes, or a mapping of them."""
    return value is None or isinstance(value, (str, Path, bytes, bytearray, memoryview, Mapping))


def read_bytes(path: Path, where: str) -> bytes:
    """The bytes of a file that a row names."""
    try:
        # Reading from a pipe would wait for ever.
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError("it is not a regular file")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        missing = isinstance(error, FileNotFoundError) and where.startswith("column")
        hint = " If the files lie below another folder than the table, say image_root= that folder." if missing else ""
        raise TaskError(f"The file {str(path)!r} ({where}) cannot be read: {reason}.{hint}") from error


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
