"""Slots that processes share: what is written in one is read out of it, and slots are used again."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from hubscout.features import shared_memory
from hubscout.features.shared_memory import SharedMemory, write

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="a memory of Linux")


@pytest.mark.parametrize("turned", [False, True])
def test_samples_come_back_as_they_lay(turned: bool) -> None:
    rng = np.random.default_rng(0)
    samples = [rng.integers(0, 256, (6, 5, 3), dtype=np.uint8) for _ in range(4)]
    if turned:  # as an image library gives them: colours first, and side by side in memory
        samples = [sample.transpose(2, 0, 1) for sample in samples]
    memory = SharedMemory(4 * 6 * 5 * 3, 2)
    slot = memory.take()
    assert slot is not None
    written = write(samples, slot)
    assert written is not None
    found = memory.read(slot, written)
    np.testing.assert_array_equal(found, np.stack(samples))
    assert found[0].strides == samples[0].strides
    memory.close()


def test_slots_are_used_again_and_what_was_read_stays() -> None:
    memory = SharedMemory(80, 2)
    read = []
    for number in range(5):
        slot = memory.take()
        assert slot is not None
        written = write([np.full(10, number, dtype=np.float64)], slot)
        assert written is not None
        read.append(memory.read(slot, written))
    assert [float(array[0, 0]) for array in read] == [0, 1, 2, 3, 4]
    assert [memory.take() is None for _ in range(3)] == [False, False, True]
    memory.close()


def test_what_does_not_fit_is_not_written() -> None:
    memory = SharedMemory(64, 1)
    slot = memory.take()
    assert slot is not None
    assert write([np.zeros(10)], slot) is None
    assert write([np.array([None, "a"], dtype=object)], slot) is None
    memory.close()


def test_little_memory_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "free_bytes", lambda: 1000)
    assert SharedMemory.of(100) is None
    assert SharedMemory.of(0) is None


def test_a_memory_that_was_closed_is_not_taken_for_what_has_its_number_now(tmp_path: Path) -> None:
    memory = SharedMemory(80, 1)
    slot = memory.take()
    assert slot is not None
    kept = tmp_path / "kept"
    kept.write_bytes(bytes(80))
    number = int(slot.path.rpartition("/")[2])
    memory.close()
    other = os.open(kept, os.O_RDWR)
    if other != number:  # the number of the file that was closed
        os.dup2(other, number)
        os.close(other)
    assert write([np.ones(10)], slot) is None
    os.close(number)
    assert kept.read_bytes() == bytes(80)
