from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubscout.errors import InputError
from hubscout.features import PreparedPool, decoded, extract
from hubscout.features.decoded import free_bytes
from hubscout.tasks import Split, Task


class CountingInputs(list):  # type: ignore[type-arg]
    reads = 0

    def __getitem__(self, index: Any) -> Any:
        self.reads += 1
        return super().__getitem__(index)


def counting(task: Task) -> tuple[Task, CountingInputs]:
    inputs = CountingInputs(task.train.inputs)
    return replace(task, splits={"train": Split(inputs, task.train.targets)}), inputs


def test_inputs_are_prepared_once_for_models_of_one_preprocessing(
    make_backbone: Any, make_image_task: Callable[..., Task]
) -> None:
    task, inputs = counting(make_image_task(100))
    pool = PreparedPool(10**7)
    first, second = make_backbone(), make_backbone(seed=3)
    extract(first, task, device="cpu", prepared=pool)
    assert (inputs.reads, first.preprocessing.calls) == (100, 100)
    again = extract(second, task, device="cpu", prepared=pool)
    assert (inputs.reads, second.preprocessing.calls) == (100, 0)
    np.testing.assert_array_equal(again.features(), extract(make_backbone(seed=3), task, device="cpu").features())


def test_another_preprocessing_prepares_for_itself(make_backbone: Any, make_image_task: Callable[..., Task]) -> None:
    task, inputs = counting(make_image_task(100))
    pool = PreparedPool(10**7)
    extract(make_backbone(), task, device="cpu", prepared=pool)
    other = make_backbone()
    other.preprocessing.key = "larger"
    extract(other, task, device="cpu", prepared=pool)
    assert inputs.reads == 200


def test_the_pool_keeps_its_limit_and_what_fits(make_backbone: Any, make_image_task: Callable[..., Task]) -> None:
    task, inputs = counting(make_image_task(100))
    sample_bytes = 3 * 8 * 8 * 4
    pool = PreparedPool(40 * sample_bytes)
    extract(make_backbone(), task, device="cpu", prepared=pool)
    assert pool.bytes == 40 * sample_bytes
    extract(make_backbone(), task, device="cpu", prepared=pool)
    assert inputs.reads == 100 + 60


def test_the_preprocessing_used_longest_ago_makes_room(make_image_task: Callable[..., Task]) -> None:
    task = make_image_task(10)
    pool = PreparedPool(100)
    old, recent, new = (pool.samples(task, "train", key) for key in ("old", "recent", "new"))
    for samples in (old, recent):
        samples.put(0, np.zeros(40, dtype=np.uint8))
    new.put(0, np.zeros(50, dtype=np.uint8))
    assert (len(old), len(recent), len(new), pool.bytes) == (0, 1, 1, 90)
    assert pool.samples(task, "train", "recent").get(0) is not None


def test_tokens_are_not_kept(make_tagger: Any, make_tagging_task: Any) -> None:
    pool = PreparedPool(10**6)
    extract(make_tagger(), make_tagging_task(30), device="cpu", prepared=pool)
    assert pool.bytes == 0


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(InputError, match="limit_bytes"):
        PreparedPool(-1)


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="Linux alone tells it there")
def test_memory_that_holds_files_counts_as_free() -> None:
    """Files that were read lately fill all memory in the end, and make room at once."""
    sizes = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(sizes["MemAvailable"].split()[0]) * 1024
    assert free_bytes() == pytest.approx(available, rel=0.2)


def test_room_ends_with_the_limit_or_when_half_of_the_free_memory_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    free = [8 << 30]
    monkeypatch.setattr(decoded, "free_bytes", lambda: free[0])
    room = decoded.Room()
    assert room.left == 2 << 30
    assert [room.take(1 << 30) for _ in range(3)] == [True, True, False]
    room = decoded.Room()
    assert room.take(1 << 28)
    free[0] = 3 << 30  # others keep as well
    assert not room.take(1 << 28)
    assert not room.take(1)
    assert [decoded.Room(10).take(size) for size in (10, 11)] == [True, False]
