"""Batches that stay on the device. Here the device is the CPU, which is told to have room."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hubscout.features import PreparedPool, device_batches, extract, extractor
from hubscout.features.device_batches import DeviceBatches, HeldSamples
from hubscout.tasks import Split, Task

KEY = ("task", "train", "preprocessing", "cpu")


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (device_batches, extractor):
        monkeypatch.setattr(module, "free_on", lambda device: 1 << 30)


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
    assert len(pool.on_device) == 4
    assert pool.on_device.bytes == 50 * 3 * 8 * 8 * 4
    assert task.train.inputs.reads == reads + 50
    second = extract(make_backbone(seed=1), task, batch_size=16, prepared=pool)
    assert task.train.inputs.reads == reads + 50  # nothing was read or sent again
    assert np.array_equal(first.features(), alone[0])
    assert np.array_equal(second.features(), alone[1])


def test_nothing_is_kept_where_the_device_is_the_cpu(make_backbone: Any, task: Task) -> None:
    pool = PreparedPool(0)
    extract(make_backbone(seed=0), task, batch_size=16, prepared=pool)
    assert len(pool.on_device) == 0


@pytest.mark.usefixtures("room")
def test_where_memory_runs_out_they_go_before_batches_become_smaller(make_backbone: Any, task: Task) -> None:
    pool = PreparedPool(0)
    extract(make_backbone(seed=0), task, batch_size=16, prepared=pool)
    second = make_backbone(seed=1)
    forward, failed = second.forward, []

    def runs_out_once(batch: Any, layers: Any = ()) -> Any:
        if not failed:
            failed.append(len(pool.on_device))
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
    found = extract(second, task, batch_size=16, prepared=pool)
    assert found.batch_size == 8
    np.testing.assert_allclose(found.features(), extract(make_backbone(seed=1), task).features(), rtol=1e-5)


def test_only_as_many_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_batches, "free_on", lambda device: 100)
    batches = DeviceBatches()
    batches.put(KEY, np.arange(30), {"pixels": torch.zeros(30, dtype=torch.uint8)})  # more than a quarter
    batches.put(KEY, np.arange(20), {"pixels": torch.zeros(20, dtype=torch.uint8)})
    batches.put(KEY, np.arange(2), {"pixels": torch.zeros(3, dtype=torch.uint8)})  # not a row per sample
    assert len(batches) == 1
    assert batches.get(KEY, np.arange(20)[::-1]) is None
    assert batches.get((*KEY[:-1], "cuda:1"), np.arange(20)) is None
    assert batches.clear()
    assert not batches.clear()
    assert len(HeldSamples({"pixels": torch.zeros(5)})[1:3]) == 2
