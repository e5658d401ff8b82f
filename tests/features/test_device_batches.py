"""Batches that stay on the device. Here the device is the CPU, which is told to have room."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hubscout.errors import TaskError
from hubscout.features import PreparedPool, device_batches, extract, extractor
from hubscout.features.device_batches import HeldSamples
from hubscout.hubs.image_preprocessing import ImagePreprocessing
from hubscout.hubs.model_objects import register
from hubscout.tasks import Split, Task
from hubscout.tasks.images import Images


def kept(pool: PreparedPool) -> list[int]:
    """Bytes of the batches on the device."""
    return [
        sum(value.nbytes for value in batch.values()) for one in pool._sets.values() for batch in one.batches.values()
    ]


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_batches, "free_on", lambda device: 1 << 30)


class Counted(list):  # type: ignore[type-arg]
    reads = 0

    def __getitem__(self, index: Any) -> Any:
        self.reads += 1
        return super().__getitem__(index)


@pytest.fixture
def task() -> Task:
    rng = np.random.default_rng(0)
    inputs = Counted(rng.standard_normal((50, 3, 8, 8)).astype(np.float32))
    split = Split(inputs, np.arange(50) % 2)
    return Task("columns", "classification", "array", ("a", "b"), {"train": split}, "columns")


@pytest.mark.usefixtures("room")
def test_the_next_model_takes_them_from_there(make_backbone: Any, task: Task) -> None:
    alone = [extract(make_backbone(seed=seed), task, batch_size=16).features() for seed in (0, 1)]
    reads, pool = task.train.inputs.reads, PreparedPool(0)
    first = extract(make_backbone(seed=0), task, batch_size=16, prepared=pool)
    assert len(kept(pool)) == 4
    assert sum(kept(pool)) == 50 * 3 * 8 * 8 * 4
    assert task.train.inputs.reads == reads + 50
    second = extract(make_backbone(seed=1), task, batch_size=16, prepared=pool)
    assert task.train.inputs.reads == reads + 50  # nothing was read or sent again
    assert np.array_equal(first.features(), alone[0])
    assert np.array_equal(second.features(), alone[1])


def test_nothing_is_kept_where_the_device_is_the_cpu(make_backbone: Any, task: Task) -> None:
    pool = PreparedPool(0)
    extract(make_backbone(seed=0), task, batch_size=16, device="cpu", prepared=pool)
    assert not kept(pool)


@pytest.mark.usefixtures("room")
def test_where_memory_runs_out_they_go_before_batches_become_smaller(make_backbone: Any, task: Task) -> None:
    pool = PreparedPool(0)
    extract(make_backbone(seed=0), task, batch_size=16, prepared=pool)
    second = make_backbone(seed=1)
    forward, failed = second.forward, []

    def runs_out_once(batch: Any, layers: Any = ()) -> Any:
        if not failed:
            failed.append(len(kept(pool)))
            raise RuntimeError("CUDA out of memory")
        return forward(batch, layers)

    second.forward = runs_out_once
    found = extract(second, task, batch_size=16, prepared=pool)
    assert failed == [4]
    assert found.batch_size == 16
    assert np.array_equal(found.features(), extract(make_backbone(seed=1), task, batch_size=16).features())


@pytest.mark.usefixtures("room")
def test_a_batch_is_cut_without_being_stacked_again(make_backbone: Any, task: Task) -> None:
    pool = PreparedPool(0)
    extract(make_backbone(seed=0), task, batch_size=16, prepared=pool)
    second = make_backbone(seed=1)
    forward = second.forward

    def takes_eight(batch: Any, layers: Any = ()) -> Any:
        if len(batch["pixels"]) > 8:
            raise RuntimeError("CUDA out of memory")
        return forward(batch, layers)

    second.forward = takes_eight
    found = extract(second, task, batch_size=16, prepared=pool, device="cpu")
    assert found.batch_size == 8
    alone = extract(make_backbone(seed=1), task, device="cpu")
    np.testing.assert_allclose(found.features(), alone.features(), rtol=1e-5)


def test_what_finds_no_room_is_kept_in_main_memory(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_batches, "free_on", lambda device: 100)
    pool = PreparedPool(1000)
    samples = pool.samples(task, "train", "pixels")

    def put(rows: np.ndarray, values: int) -> None:
        batch = {"pixels": torch.zeros(values, dtype=torch.uint8)}
        samples.put_batch("cpu", rows, [np.zeros(1, dtype=np.uint8) for _ in rows], batch)

    put(np.arange(30), 30)  # more than a quarter
    assert (len(samples), kept(pool)) == (30, [])
    put(np.arange(30, 50), 20)
    assert (len(samples), kept(pool)) == (30, [20])
    put(np.arange(2), 3)  # not a row per sample
    assert kept(pool) == [20]
    assert samples.batch("cpu", np.arange(30, 50)) is not None
    assert samples.batch("cpu", np.arange(30, 50)[::-1]) is None
    assert samples.batch("cuda:1", np.arange(30, 50)) is None
    assert pool.clear_devices()
    assert not pool.clear_devices()
    assert len(HeldSamples({"pixels": torch.zeros(5)})[1:3]) == 2


class PixelNet(torch.nn.Module):
    """Its features are its pixels, coarsely: a pixel that differs shows."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.pretrained_cfg = {"input_size": (3, side, side), "crop_pct": 0.9, "num_classes": 0}
        self.num_features = 48
        self.scale = torch.nn.Conv2d(3, 3, 1)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.adaptive_max_pool2d(self.scale(pixels), 4).flatten(1)


def images_of(*shapes: tuple[int, int]) -> Task:
    rng = np.random.default_rng(0)
    inputs = Images(Counted(rng.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in shapes))
    split = Split(inputs, np.arange(len(shapes)) % 2)
    return Task("pixels", "classification", "image", ("a", "b"), {"train": split}, f"pixels {shapes}")


def features_of(task: Task, pool: PreparedPool | None = None, **options: Any) -> list[np.ndarray]:
    """Of two networks that take images of different sizes."""
    found = []
    for side in (40, 24):
        torch.manual_seed(side)
        network = PixelNet(side)
        found.append(extract(register(network), task, batch_size=16, prepared=pool, **options).features())
    return found


def test_small_images_are_resized_on_the_device_and_sent_once_for_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    task, pool = images_of(*[(32, 32)] * 50), PreparedPool(0)
    alone = features_of(task)
    monkeypatch.setattr(device_batches, "free_on", lambda device: 1 << 30)
    resized, pillow = [], ImagePreprocessing.__call__
    monkeypatch.setattr(
        ImagePreprocessing, "__call__", lambda self, image: resized.append(image) or pillow(self, image)
    )
    reads = task.train.inputs.encoded.reads
    found = features_of(task, pool)
    assert sum(kept(pool)) == 50 * 32 * 32 * 3
    assert task.train.inputs.encoded.reads - reads == 50 + 2 * 8  # each model looks at eight of them
    assert len(resized) == 2  # an image of noise, to see that both ways give the same
    for one, other in zip(found, alone, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize(
    "shapes",
    [
        [(32, 32)] * 20 + [(30, 32)] + [(32, 32)] * 29,  # one among many: its batch is resized by Pillow
        [(30 + row % 5, 32) for row in range(50)],
        [(300, 300)] * 50,
    ],
)
def test_images_of_other_sizes_give_what_they_give_without(
    shapes: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, pool = images_of(*shapes), PreparedPool()
    found = features_of(task, pool)
    again = features_of(task, pool)
    monkeypatch.setattr(device_batches, "free_on", lambda device: 0)
    for one, two, expected in zip(found, again, features_of(task), strict=True):
        assert np.array_equal(one, expected)
        assert np.array_equal(two, expected)


@pytest.mark.usefixtures("room")
def test_memory_that_runs_out_while_images_are_resized_makes_batches_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    from hubscout.hubs import device_resizing

    task, real = images_of(*[(32, 32)] * 50), device_resizing.resample
    expected = features_of(task, device="cpu")

    def takes_eight(pixels: torch.Tensor, *rest: Any) -> torch.Tensor:
        if len(pixels) > 8:
            raise RuntimeError("CUDA out of memory")
        return real(pixels, *rest)

    monkeypatch.setattr(device_resizing, "resample", takes_eight)
    for one, other in zip(features_of(task, PreparedPool(0), device="cpu"), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("side", [32, 300])
def test_small_images_of_one_size_are_decoded_by_few_threads(side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, real = [], extractor.InThreads
    monkeypatch.setattr(extractor, "InThreads", lambda of, count: threads.append(count) or real(of, count))
    monkeypatch.setattr(extractor, "default_threads", lambda decode_alone: 2 if decode_alone else 3)
    features_of(images_of(*[(side, side)] * 20), PreparedPool(0), device="cpu")
    assert threads == [2 if side == 32 else 3] * 2


@pytest.mark.usefixtures("room")
def test_an_image_that_cannot_be_read_is_named_or_left_out() -> None:
    task = images_of(*[(32, 32)] * 50)
    task.train.inputs.encoded[49] = b"no image"
    with pytest.raises(TaskError, match="Sample 49 of split 'train'"):
        features_of(task)
    for features in features_of(task, skip_bad=True):
        assert len(features) == 49
