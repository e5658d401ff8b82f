from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hubscout.errors import TaskError
from hubscout.tasks.images import ImageArrays, Images


def saved(image: Image.Image, form: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "I;16", "CMYK"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    pixels = np.zeros((4, 6, 3), dtype=np.uint8)
    pixels[:2] = 255
    source = Image.fromarray(pixels)
    if mode == "I;16":
        source = Image.fromarray(np.asarray(source.convert("L")).astype(np.uint16) * 257)
        form = "PNG"
    else:
        source = source.convert(mode)
        form = "TIFF" if mode == "CMYK" else "PNG"
    image = Images([saved(source, form)])[0]
    assert image.mode == "RGB"
    assert image.size == (6, 4)
    np.testing.assert_array_equal(np.asarray(image), pixels)


def test_transparent_parts_become_white() -> None:
    pixels = np.zeros((2, 2, 4), dtype=np.uint8)
    pixels[0, 0, 3] = 255
    image = np.asarray(Images([saved(Image.fromarray(pixels))])[0])
    np.testing.assert_array_equal(image[0, 0], [0, 0, 0])
    np.testing.assert_array_equal(image[1, 1], [255, 255, 255])


def test_exif_orientation_is_applied() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # stored lying on its side
    stored = saved(Image.new("RGB", (10, 4)), "JPEG", exif=exif.tobytes())
    assert Images([stored])[0].size == (4, 10)


def test_a_truncated_jpeg_is_named(tmp_path: Path, image_bytes: Callable[..., bytes]) -> None:
    path = tmp_path / "cut.jpg"
    data = image_bytes(0, "JPEG", size=64)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(TaskError, match=r"cut\.jpg cannot be decoded") as caught:
        Images([path])[0]
    assert "replace it" in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"no image", b"\x89PNG\r\n\x1a\n" + b"\0" * 30])
def test_bytes_that_are_no_image(data: bytes) -> None:
    with pytest.raises(TaskError, match=r"column 'image', row 0"):
        Images([data], origin="column 'image'")[0]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"nowhere\.png"):
        Images(["nowhere.png"], root=tmp_path)[0]
    with pytest.raises(TaskError, match="expected a path or bytes"):
        Images([None])[0]


def test_hugging_face_mappings(tmp_path: Path, image_bytes: Callable[..., bytes]) -> None:
    (tmp_path / "a.png").write_bytes(image_bytes(1))
    images = Images([{"bytes": image_bytes(1), "path": "x.png"}, {"bytes": None, "path": "a.png"}], root=tmp_path)
    np.testing.assert_array_equal(np.asarray(images[0]), np.asarray(images[1]))
    assert images.digest(0) == images.digest(1)


def test_slices_and_negative_rows_and_pickles(image_bytes: Callable[..., bytes]) -> None:
    images = pickle.loads(pickle.dumps(Images([image_bytes(i) for i in range(3)])))
    assert len(images[1:]) == 2
    np.testing.assert_array_equal(np.asarray(images[-1]), np.asarray(images[1:][1]))
    with pytest.raises(IndexError):
        images[3]


def test_arrays_are_images_and_stay_as_they_are() -> None:
    grey = np.arange(16, dtype=np.uint8).reshape(4, 4)
    picture = Image.new("L", (4, 4), 7)
    images = ImageArrays([grey, grey[:, :, None], picture])
    assert [image.mode for image in images] == ["RGB"] * 3
    assert picture.mode == "L"
    with pytest.raises(TaskError, match="float64"):
        ImageArrays([np.zeros((2, 2))])[0]
