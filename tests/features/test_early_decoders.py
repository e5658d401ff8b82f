"""Processes that decode are there before the first model is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hubscout.errors import InputError
from hubscout.features import early_decoders, precision
from hubscout.features.early_decoders import start_decoders
from hubscout.features.preparing import InProcesses, Reader
from hubscout.features.process_pool import end_processes, process_pool
from hubscout.hubs.device_resizing import decoded
from hubscout.ranking import rank
from hubscout.tasks import Split, Task
from hubscout.tasks.images import Images


@pytest.fixture(autouse=True)
def two_processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(early_decoders, "default_processes", lambda device, *given, **options: 2 * (device == "cuda"))
    yield
    end_processes()


def images(*sides: int) -> Task:
    inputs = Images([np.full((side, side, 3), row, dtype=np.uint8) for row, side in enumerate(sides)])
    split = Split(inputs, np.arange(len(sides)) % 2)
    return Task("squares", "classification", "image", ("a", "b"), {"train": split}, f"squares {sides}")


def test_they_are_those_that_a_model_finds() -> None:
    task = images(*[8] * 64)
    assert start_decoders("cuda", task)
    pool = process_pool(2)
    preparing = InProcesses(Reader(task.train.inputs, decoded, "here"), 2)
    try:
        assert preparing._pool is pool
        preparing.ready.result(120)
        found = preparing.submit(list(range(64))).result()
        assert [int(image[0, 0, 0]) for image in found] == list(range(64))
        asked = {"hubscout.tasks.images", "PIL", "torch", "hubscout.evidence", "hubscout.features.extraction"}
        there = pool.submit(eval, f"sorted({asked} & set(__import__('sys').modules))")
        assert there.result(120) == ["PIL", "hubscout.tasks.images"]
    finally:
        preparing.close()


def test_they_start_before_anything_is_asked_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(early_decoders, "start_decoders", lambda device, task: order.append(device))
    monkeypatch.setattr(precision, "pick_device", lambda device: pytest.fail("that imports torch"))
    task = images(*[8] * 20)
    for limit in (None, 10):  # few samples are decoded by threads
        with pytest.raises(InputError, match="models is empty"):
            rank(task, [], device="cuda", limit=limit)
    assert order == ["cuda"]


def test_they_end_at_once_and_the_next_are_new_ones() -> None:
    first = process_pool(2).submit(os.getpid).result(120)
    end_processes()
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    assert process_pool(2).submit(os.getpid).result(120) not in (first, os.getpid())


AT_WORK = """
import os, sys, time
from hubscout.features.process_pool import process_pool

pool = process_pool(2)
print(pool.submit(os.getpid).result(60), flush=True)
pool.submit(time.sleep, 60)
if sys.argv[1] == "interrupted":
    raise KeyboardInterrupt
"""


@pytest.mark.parametrize("how", ["done", "interrupted"])
def test_whoever_started_them_ends_them_at_once_whatever_they_do(tmp_path: Path, how: str) -> None:
    (tmp_path / "at_work.py").write_text(AT_WORK)
    began = time.monotonic()
    ran = subprocess.run(
        [sys.executable, str(tmp_path / "at_work.py"), how], capture_output=True, text=True, timeout=120
    )
    assert time.monotonic() - began < 45
    assert (ran.returncode == 0) == (how == "done")
    assert ("KeyboardInterrupt" in ran.stderr) == (how == "interrupted")
    assert "loky" not in ran.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(ran.stdout), 0)


EXITS = """
import numpy as np
from hubscout.errors import InputError
from hubscout.features import early_decoders, precision
from hubscout.tasks import Split, Task
from hubscout.tasks.images import Images

early_decoders.default_processes = lambda *given, **options: 2
split = Split(Images([np.zeros((8, 8, 3), np.uint8)] * 20), np.arange(20) % 2)
task = Task("squares", "classification", "image", ("a", "b"), {"train": split}, "squares")
assert early_decoders.start_decoders("cuda", task)
"""


def test_a_process_that_ends_before_they_have_started_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "exits.py").write_text(EXITS)
    ran = subprocess.run([sys.executable, str(tmp_path / "exits.py")], capture_output=True, text=True, timeout=60)
    # loky's tracker of semaphores rarely warns of one that a process had taken which was ended while it started.
    tracked = ("resource_tracker", "warnings.warn(")
    assert (ran.returncode, [line for line in ran.stderr.splitlines() if not any(one in line for one in tracked)]) == (
        0,
        [],
    )


@pytest.mark.parametrize(
    ("device", "sides"),
    [("cpu", [8] * 20), ("cuda", [8] * 19 + [9]), ("cuda", [300] * 20)],
    ids=["cpu", "sizes", "large"],
)
def test_none_are_started_where_none_are_needed(device: str, sides: list[int]) -> None:
    assert not start_decoders(device, images(*sides))


INTERRUPTED = """
import os, signal, time
from hubscout.features.process_pool import process_pool

pool = process_pool(2)
started = pool.submit(int)
try:
    time.sleep({seconds})
    os.killpg(0, signal.SIGINT)  # as a terminal does: to all processes of the command
    time.sleep(60)
except KeyboardInterrupt:
    print(started.result(60), pool.submit(abs, -3).result(60))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no groups of processes to interrupt")
@pytest.mark.parametrize("seconds", [0.0, 0.1, 1.0])
def test_who_interrupts_a_command_interrupts_that_alone(tmp_path: Path, seconds: float) -> None:
    (tmp_path / "interrupted.py").write_text(INTERRUPTED.format(seconds=seconds))
    command = [sys.executable, str(tmp_path / "interrupted.py")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, start_new_session=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "0 3\n", "")
