from __future__ import annotations

import numpy as np
import pytest

from hubscout.errors import TaskError
from hubscout.tasks import Task
from hubscout.tasks.pixels import image_pixels

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
