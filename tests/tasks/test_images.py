from __future__ import annotations

import importlib.util
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hubscout.errors import TaskError
from hubscout.tasks import Task
from hubscout.tasks.images import Images, image_pixels, to_rgb


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


def test_every_file_shows_what_a_person_sees(odd_pictures: dict[str, tuple[bytes, np.ndarray]], tmp_path: Path) -> None:
    for name, (data, expected) in odd_pictures.items():
        (tmp_path / name).write_bytes(data)
        forms = [tmp_path / name, data, {"bytes": data, "path": None}, Image.open(io.BytesIO(data))]
        found = [np.asarray(image) for image in Images(forms)]
        # JPEG rounds; what a wrong decoder gives is off by far more.
        assert np.abs(found[0].astype(int) - expected).mean() < (4 if name.endswith("jpg") else 1e-9), name
        for other in found[1:]:
            np.testing.assert_array_equal(other, found[0], err_msg=name)
        np.testing.assert_array_equal(np.asarray(to_rgb(Image.fromarray(found[0]))), found[0], err_msg=name)


def test_pillow_images_are_known_apart_by_what_they_show(odd_pictures: dict[str, tuple[bytes, np.ndarray]]) -> None:
    upright, turned = (Image.new("RGB", (8, 4), "red") for _ in range(2))
    turned.getexif()[0x0112] = 6
    one, other = (Image.new("P", (4, 4), 1) for _ in range(2))
    one.putpalette([0, 0, 0, 255, 0, 0])
    other.putpalette([0, 0, 0, 0, 255, 0])
    images = Images([upright, turned, one, other])
    assert len({images.digest(row) for row in range(4)}) == 4


def test_values_that_are_no_numbers_are_black() -> None:
    buffer = io.BytesIO()
    Image.fromarray(np.array([[np.nan, 1.0], [0.5, -1.0]], dtype=np.float32)).save(buffer, "TIFF")
    np.testing.assert_array_equal(np.asarray(Images([buffer.getvalue()])[0])[:, :, 0], [[0, 255], [128, 0]])


def test_a_decompression_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = saved(Image.new("L", (3000, 3000)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1_000_000)
    with pytest.raises(TaskError, match=r"9000000 pixels.*MAX_IMAGE_PIXELS"):
        Images([data])[0]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(TaskError, match="not a regular file"):
        Images([tmp_path / "pipe.png"])[0]


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
    images = Images([grey, grey[:, :, None], picture])
    assert [image.mode for image in images] == ["RGB"] * 3
    assert picture.mode == "L"
    with pytest.raises(TaskError, match="float64"):
        Images([np.zeros((2, 2))])[0]


def test_an_image_of_a_format_without_its_plug_in_names_the_package() -> None:
    if importlib.util.find_spec("pillow_heif") is not None:
        pytest.skip("the plug-in is installed")
    with pytest.raises(TaskError, match=r"pip install pillow-heif"):
        Images([b"\0\0\0\x18ftypheic" + bytes(40)])[0]


PICTURES = np.random.default_rng(0).integers(0, 256, (12, 16, 20, 3), dtype=np.uint8)
LABELS = ["a", "b"] * 6


def pixels(task: Task) -> np.ndarray:
    return np.stack([np.asarray(image) for part in task.splits.values() for image in part.inputs])


@pytest.mark.parametrize(
    "arrays",
    [
        PICTURES.transpose(0, 3, 1, 2),
        PICTURES / 255,
        (PICTURES / 255).transpose(0, 3, 1, 2).astype(np.float32),
        PICTURES.astype(np.float32),
        list(PICTURES.transpose(0, 3, 1, 2)),
    ],
)
def test_every_layout_gives_the_same_images(arrays) -> None:
    expected = pixels(Task.from_arrays(PICTURES, LABELS))
    task = Task.from_arrays(arrays, LABELS, modality="image")
    assert task.modality == "image"
    np.testing.assert_array_equal(pixels(task), expected)


def test_tensors_of_torch_give_the_same_images() -> None:
    torch = pytest.importorskip("torch")
    expected = pixels(Task.from_arrays(PICTURES, LABELS))
    tensors = torch.from_numpy(PICTURES).permute(0, 3, 1, 2)
    np.testing.assert_array_equal(pixels(Task.from_arrays(tensors, LABELS)), expected)
    np.testing.assert_array_equal(pixels(Task.from_arrays(list(tensors), LABELS)), expected)


def test_bytes_in_the_shape_of_images_are_images_and_floats_are_said_to_be_none() -> None:
    assert Task.from_arrays(PICTURES.transpose(0, 3, 1, 2), LABELS).modality == "image"
    assert Task.from_arrays(PICTURES[..., 0], LABELS).modality == "image"
    plain = Task.from_arrays(PICTURES / 255, LABELS)
    assert plain.modality == "array"
    assert any('modality="image"' in note for note in plain.notes)
    assert Task.from_arrays(PICTURES[:, :4, 0, 0], LABELS).modality == "array"


def test_a_dark_image_among_others_stays_dark() -> None:
    arrays = PICTURES.astype(np.float64)
    arrays[0] = 1.0
    assert np.asarray(image_pixels(arrays, "train")[0]).max() == 1


@pytest.mark.parametrize("wrong", [(PICTURES / 127.5) - 1, PICTURES.astype(np.float32) * 4, PICTURES / 255 * np.nan])
def test_normalised_images_are_refused(wrong) -> None:
    with pytest.raises(TaskError, match="0 to 255"):
        Task.from_arrays(wrong, LABELS, modality="image")


def test_paths_are_sent_as_texts(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4), "red").save(tmp_path / "a.png")
    images = Images([tmp_path / "a.png", (tmp_path / "a.png").read_bytes()], origin="here")
    sent = pickle.loads(pickle.dumps(images))
    assert sent.encoded[0] == str(tmp_path / "a.png")
    assert isinstance(images.encoded[0], Path)
    assert [np.asarray(sent[row]).tolist() for row in range(2)] == [
        np.asarray(images[row]).tolist() for row in range(2)
    ]
    assert sent.origin == "here"
    assert pickle.loads(pickle.dumps(Images(np.zeros((2, 4, 4, 3), dtype=np.uint8))))[1].size == (4, 4)
