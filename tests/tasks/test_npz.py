"""Data in NumPy's archives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hubscout.errors import TaskError
from hubscout.tasks import Task, open_task

GENERATOR = np.random.default_rng(0)
PIXELS = GENERATOR.integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
LABELS = np.arange(40) % 4


def test_inputs_and_labels_are_split_and_the_task_can_be_opened_again(tmp_path: Path) -> None:
    np.savez(tmp_path / "small digits.npz", X=PIXELS, y=LABELS)
    task = open_task(tmp_path / "small digits.npz")
    assert (task.name, task.kind, task.modality, task.target_names) == (
        *("small digits", "classification", "image"),
        ("0", "1", "2", "3"),
    )
    assert [len(split) for split in task.splits.values()] == [28, 4, 8]
    assert task.source is not None
    assert Task.reopen(task.source) == task


@pytest.mark.parametrize(
    "names",
    [("x_train", "y_train", "x_test", "y_test"), ("train_images", "train_labels", "val_images", "val_labels")],
)
def test_splits_by_name(tmp_path: Path, names: tuple[str, ...]) -> None:
    arrays = (PIXELS[:30], LABELS[:30, None], PIXELS[30:], LABELS[30:, None])
    np.savez_compressed(tmp_path / "a.npz", **dict(zip(names, arrays, strict=True)))
    task = open_task(tmp_path / "a.npz", validation_size=0, test_size=0)
    assert len(task.train) == 30
    assert len(task.test) + len(task.validation) == 10


def test_arrays_by_other_names_and_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    words = np.array([f"a film number {row}" for row in range(40)])
    np.savez(path, reviews=words, stars=LABELS, x=PIXELS.astype("float32"))
    assert open_task(path, text="reviews", label="stars").modality == "text"
    assert open_task(path, image="x", label="stars").modality == "image"
    assert open_task(path, label="stars").modality == "array"
    with pytest.raises(TaskError, match=r"no array of labels under a usual name.*It has reviews \(40,\), stars"):
        open_task(path)
    with pytest.raises(TaskError, match=r"no array 'star'\. Did you mean 'stars'"):
        open_task(path, label="star")


def test_what_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    np.savez(tmp_path / "objects.npz", x=np.array([{"a": 1}, None], dtype=object), y=[0, 1])
    with pytest.raises(TaskError, match=r"Python objects, which could run code.*np\.savez"):
        open_task(tmp_path / "objects.npz")
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 and nothing else")
    with pytest.raises(TaskError, match="cannot be read as arrays"):
        open_task(tmp_path / "broken.npz")
    np.savez(tmp_path / "half.npz", x_train=PIXELS, y_train=LABELS, x_test=PIXELS)
    with pytest.raises(TaskError, match="has inputs for test, and no labels"):
        open_task(tmp_path / "half.npz")
    np.savez(tmp_path / "twice.npz", x=PIXELS, images=PIXELS, y=LABELS)
    with pytest.raises(TaskError, match=r"two arrays of inputs for train.*image= or text="):
        open_task(tmp_path / "twice.npz")
    np.save(tmp_path / "one.npy", PIXELS)
    with pytest.raises(TaskError, match=r"one array.*np\.savez"):
        open_task(tmp_path / "one.npy")


def test_what_an_archive_may_unpack_to_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((100, 1000)), y=np.arange(100) % 2)
    monkeypatch.setenv("HUBSCOUT_MAX_UNPACKED_BYTES", "100000")
    with pytest.raises(TaskError, match="unpacks to more than"):
        open_task(tmp_path / "a.npz")


def test_arrays_of_floats_become_images_as_the_note_says(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=PIXELS / 255, y=LABELS)
    task = open_task(tmp_path / "a.npz")
    assert task.modality == "array"
    assert any(note.endswith("if they are images, say image='X'") for note in task.notes)
    assert open_task(tmp_path / "a.npz", image="X").modality == "image"
