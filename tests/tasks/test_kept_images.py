"""Images that are decoded once and kept."""

from __future__ import annotations

import io
import os
import pickle

import numpy as np
import pytest
from PIL import Image

from hubscout.checking.samples import stored
from hubscout.tasks import Task
from hubscout.tasks.images import Images
from hubscout.tasks.kept_images import KeptImages, keep_decoded


def encoded(count: int) -> list[bytes]:
    generator, found = np.random.default_rng(0), []
    for _ in range(count):
        file = io.BytesIO()
        Image.fromarray(generator.integers(0, 256, (10, 12, 3), dtype=np.uint8)).save(file, "JPEG")
        found.append(file.getvalue())
    return found


@pytest.fixture
def task() -> Task:
    return Task.from_arrays(encoded(24), ["a", "b"] * 12, modality="image")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows that were decoded."""
    found: list[int] = []
    read = Images.read
    monkeypatch.setattr(Images, "read", lambda images, row: (found.append(row), read(images, row))[1])
    return found


def test_each_image_is_decoded_once_and_is_the_same_to_the_last_bit(task: Task, reads: list[int]) -> None:
    expected = [np.asarray(image) for image in task.train.inputs]
    kept = keep_decoded(task, lambda size: True)
    reads.clear()
    for _ in range(3):
        for image, pixels in zip(kept.train.inputs, expected, strict=True):
            assert image.mode == "RGB"
            np.testing.assert_array_equal(np.asarray(image), pixels)
    assert len(reads) == len(kept.train)
    assert kept == task
    assert kept.train.inputs[:2][1].size == (12, 10)


def test_what_is_done_to_an_image_does_not_reach_the_next_reader(task: Task) -> None:
    inputs = keep_decoded(task, lambda size: True).train.inputs
    before = np.asarray(inputs[0]).copy()
    for _ in range(2):
        inputs[0].paste((0, 0, 0), (0, 0, 12, 10))
    np.testing.assert_array_equal(np.asarray(inputs[0]), before)


def test_what_finds_no_room_is_decoded_each_time(task: Task, reads: list[int]) -> None:
    left = [2 * 10 * 12 * 3]

    def has_room(size: int) -> bool:
        left[0] -= size
        return left[0] >= 0

    inputs = keep_decoded(task, has_room).train.inputs
    for _ in range(3):
        list(inputs)
    assert len(reads) == 2 + 3 * (len(inputs) - 2)


def test_another_process_gets_no_pixels_and_keeps_none(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = keep_decoded(task, lambda size: True).train.inputs
    list(inputs)
    assert isinstance(inputs, KeptImages)
    assert len(pickle.dumps(inputs)) < sum(map(len, encoded(24))) + 4000
    assert not isinstance(pickle.loads(pickle.dumps(inputs)), KeptImages)
    forked = keep_decoded(task, lambda size: True).train.inputs
    own = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: own + 1)
    list(forked)
    assert not forked.pixels


def test_a_task_without_encoded_images_stays_as_it_is(task: Task) -> None:
    kept = keep_decoded(task, lambda size: True)
    pixels = Task.from_arrays(np.zeros((24, 9, 9, 3), np.uint8), ["a", "b"] * 12, modality="image")
    texts = Task.from_arrays(["x", "y"] * 4, ["a", "b"] * 4, modality="text")
    for one in (kept, pixels, texts):
        assert keep_decoded(one, lambda size: True) is one


def test_where_an_image_comes_from_is_still_known(task: Task) -> None:
    kept = keep_decoded(task, lambda size: True)
    assert stored(kept.test.inputs, 0) == stored(task.test.inputs, 0)
    assert isinstance(stored(kept.test.inputs, 0), bytes)
