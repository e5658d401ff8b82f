"""Processes that decode are there before the first model is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from hubscout.features import early_decoders
from hubscout.features.early_decoders import start_decoders
from hubscout.features.preparing import InProcesses, Reader, process_pool
from hubscout.hubs.device_resizing import decoded
from hubscout.tasks import Split, Task
from hubscout.tasks.images import Images


@pytest.fixture(autouse=True)
def two_processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(early_decoders, "default_processes", lambda device, *given, **options: 2 * (device == "cuda"))
    yield
    process_pool(2).shutdown(wait=True)


def images(*sides: int) -> Task:
    inputs = Images([np.full((side, side, 3), row, dtype=np.uint8) for row, side in enumerate(sides)])
    split = Split(inputs, np.arange(len(sides)) % 2)
    return Task("squares", "classification", "image", ("a", "b"), {"train": split}, f"squares {sides}")


def test_they_are_those_that_a_model_finds() -> None:
    task = images(*[8] * 64)
    started = start_decoders("cuda", task)
    assert started is not None
    started.join()
    pool = process_pool(2)
    preparing = InProcesses(Reader(task.train.inputs, decoded, "here"), 2)
    try:
        assert preparing._pool is pool
        preparing.ready.result(120)
        found = preparing.submit(list(range(64))).result()
        assert [int(image[0, 0, 0]) for image in found] == list(range(64))
        there = pool.submit(eval, "sorted({'hubscout.tasks.images', 'PIL', 'torch'} & set(__import__('sys').modules))")
        assert there.result(120) == ["PIL", "hubscout.tasks.images"]
    finally:
        preparing.close()


@pytest.mark.parametrize(
    ("device", "sides"),
    [("cpu", [8] * 20), ("cuda", [8] * 19 + [9]), ("cuda", [300] * 20)],
    ids=["cpu", "sizes", "large"],
)
def test_none_are_started_where_none_are_needed(device: str, sides: list[int]) -> None:
    assert start_decoders(device, images(*sides)) is None
