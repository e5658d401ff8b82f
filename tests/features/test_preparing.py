"""Samples prepared in processes are those of the threads; nothing is lost when a process dies or cannot be used."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubscout.errors import ModelError, TaskError
from hubscout.features import PreparedPool, extract, extractor, shared_memory
from hubscout.features import preparing as preparing_module
from hubscout.features.preparing import InProcesses, InThreads, Reader, default_processes, default_threads
from hubscout.features.shared_memory import SharedMemory
from hubscout.tasks import Task


class Scaled:
    """A preprocessing that a process can get; odd rows of a ragged one differ in shape."""

    key = "scaled"

    def __init__(self, *, ragged: bool = False, fails_on: float | None = None) -> None:
        self.ragged, self.fails_on = ragged, fails_on

    def __call__(self, sample: np.ndarray) -> np.ndarray:
        if self.fails_on is not None and sample[0] == self.fails_on:
            raise ArithmeticError("no such luck")
        return 2.0 * (sample[: 1 + int(sample[0]) % 2] if self.ragged else sample)

    def collate(self, samples: Sequence[Any]) -> Any:
        return samples

    def augmented(self) -> Scaled:
        return self


class Inputs(Sequence[np.ndarray]):
    """Row i holds i; some rows are broken, and one kills the process that reads it."""

    def __init__(self, count: int, broken: tuple[int, ...] = (), deadly: int | None = None) -> None:
        self.count, self.broken, self.deadly, self.home = count, broken, deadly, os.getpid()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: Any) -> Any:
        if row in self.broken:
            raise OSError("half of a file")
        if row == self.deadly and os.getpid() != self.home:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.array([row, row, row], dtype=np.float64)


@pytest.fixture(scope="module", autouse=True)
def no_processes_stay() -> Iterator[None]:
    yield
    from loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)


def processes(of: Reader) -> InProcesses:
    """Two that have started: before that, threads do the work."""
    preparing = InProcesses(of, 2)
    preparing.ready.result(timeout=120)
    return preparing


def reader(inputs: Sequence[Any], **options: Any) -> Reader:
    preprocessing = options.pop("preprocessing", Scaled())
    return Reader(inputs, preprocessing, "split 'train' of task 'rows'", **options)


@pytest.mark.parametrize("ragged", [False, True])
def test_processes_give_what_threads_give(ragged: bool) -> None:
    rows = [5, 0, 7, 2]
    found = {}
    of = reader(Inputs(10), preprocessing=Scaled(ragged=ragged))
    for name, preparing in (
        ("threads", InThreads(of, 2)),
        ("starting", InProcesses(of, 2)),
        ("started", processes(of)),
    ):
        found[name] = preparing.submit(rows).result()
        preparing.close()
    for several in zip(*found.values(), strict=True):
        np.testing.assert_array_equal(several[0], several[1])
        np.testing.assert_array_equal(several[0], several[2])


@dataclass(frozen=True)
class Where:
    """The process that prepares a sample; in one of them it waits for a file."""

    home: int
    flag: Path

    def __call__(self, raw: Any) -> np.ndarray:
        while os.getpid() == self.home and not self.flag.exists():
            time.sleep(0.01)
        return np.array([os.getpid()])


def test_threads_hand_over_what_they_have_not_begun_with(tmp_path: Path) -> None:
    preparing = InProcesses(reader(Inputs(10), preprocessing=Where(os.getpid(), tmp_path / "go on")), 2, threads=1)
    ready, preparing.ready = preparing.ready, Future()
    answers = [preparing.submit([row]) for row in range(3)]
    ready.result(timeout=120)
    preparing.ready = ready
    begun, handed_over = answers[0], answers[1:]
    assert all(int(answer.result()[0][0]) != os.getpid() for answer in reversed(handed_over))
    (tmp_path / "go on").touch()
    assert int(begun.result()[0][0]) == os.getpid()
    preparing.close()


def test_what_threads_have_done_is_let_go_of_where_no_process_ever_starts() -> None:
    preparing = InProcesses(reader(Inputs(10)), 2, threads=1)
    preparing.ready, started = Future(), preparing.ready
    answer = preparing.submit([0])
    samples = weakref.ref(answer.result()[0])
    del answer
    preparing.submit([1]).result()
    gc.collect()
    assert samples() is None
    preparing.ready = started
    preparing.close()


def test_known_samples_are_not_prepared_again_and_fresh_ones_are_kept() -> None:
    task = Task.from_arrays(np.arange(30.0).reshape(10, 3), np.arange(10) % 2, name="rows")
    prepared = PreparedPool(1 << 20).samples(task, "train", "scaled")
    prepared.put(3, np.array([-1.0]))
    preparing = processes(reader(Inputs(10), prepared=prepared))
    answer = preparing.submit([2, 3]).result()
    np.testing.assert_array_equal(answer[0], [4.0, 4.0, 4.0])
    np.testing.assert_array_equal(answer[1], [-1.0])
    kept = prepared.get(2)
    assert kept is not None
    np.testing.assert_array_equal(kept, [4.0, 4.0, 4.0])
    preparing.close()


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="a memory of Linux")
def test_whole_chunks_come_through_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "_SLOTS", 2)
    monkeypatch.setattr(InProcesses, "chunk", 32)
    used = []
    read = SharedMemory.read
    monkeypatch.setattr(
        SharedMemory, "read", lambda self, slot, written: used.append(slot) or read(self, slot, written)
    )
    preparing = processes(reader(Inputs(200, broken=(120,)), skip_bad=True))
    first = preparing.submit(list(range(32)))
    np.testing.assert_array_equal(np.stack(first.result())[:, 0], 2 * np.arange(32))
    # One more than there are slots: it travels as the first one did, and slots that are read are taken again.
    for start in (32, 96):
        answers = [preparing.submit(list(range(at, at + 20))) for at in (start, start + 20, start + 40)]
        samples = [sample for answer in answers for sample in answer.result()]
        expected = [None if row == 120 else 2 * row for row in range(start, start + 60)]
        assert [None if sample is None else sample[0] for sample in samples] == expected
    preparing.close()
    assert len({slot.start for slot in used}) == 2
    assert len(used) == 3  # the chunk with a sample that cannot be read is a list, and its slot is free again


def test_a_bad_sample_is_named_or_left_out() -> None:
    preparing = processes(reader(Inputs(10, broken=(4,))))
    with pytest.raises(
        TaskError, match="Sample 4 of split 'train' of task 'rows' cannot be read: OSError: half of a f"
    ):
        preparing.submit([3, 4]).result()
    preparing.close()
    preparing = processes(reader(Inputs(10, broken=(4,)), skip_bad=True))
    assert preparing.submit([3, 4]).result()[1] is None
    preparing.close()


def test_a_failing_preprocessing_is_the_models() -> None:
    preparing = processes(reader(Inputs(10), preprocessing=Scaled(fails_on=4.0)))
    with pytest.raises(ModelError, match="preprocessing fails on sample 4"):
        preparing.submit([4]).result()
    preparing.close()


def test_rows_of_a_process_that_is_killed_are_prepared_here() -> None:
    preparing = processes(reader(Inputs(10, deadly=6)))
    answers = [preparing.submit(rows) for rows in ([1, 2], [6, 7])]
    np.testing.assert_array_equal(np.stack(answers[0].result() + answers[1].result())[:, 0], [2.0, 4.0, 12.0, 14.0])
    # What comes after is not lost either, and the next model has processes again.
    np.testing.assert_array_equal(preparing.submit([8]).result()[0][0], 16.0)
    preparing.close()
    again = processes(reader(Inputs(10)))
    assert again.submit([9]).result()[0][0] == 18.0
    again.close()


def test_what_cannot_be_opened_there_is_prepared_here() -> None:
    class Homebound(Inputs):
        def __setstate__(self, state: dict[str, Any]) -> None:
            raise ModuleNotFoundError("a module of the script's own folder")

    preparing = InProcesses(reader(Homebound(10)), 2)
    assert isinstance(preparing.ready.exception(timeout=120), Exception)
    np.testing.assert_array_equal(preparing.submit([4]).result()[0], [8.0, 8.0, 8.0])
    preparing.close()


def test_what_cannot_be_sent_is_prepared_in_threads(monkeypatch: pytest.MonkeyPatch, backbone: Any, task: Task) -> None:
    monkeypatch.setattr(extractor, "default_processes", lambda *given, **options: 2)
    usual = extract(backbone, task)
    backbone.preprocessing.lock = threading.Lock()
    told: list[str] = []
    found = extract(backbone, task, observer=lambda event: told.append(str(event)))
    assert any("prepared in threads, since they cannot be sent to processes (TypeError" in line for line in told)
    np.testing.assert_array_equal(found.features(), usual.features())


def test_inputs_that_memory_holds_no_two_copies_of_are_prepared_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing_module, "free_bytes", lambda: 100_000)
    with pytest.raises(ValueError, match=r"0\.0 GB for each of them"):
        InProcesses(reader([np.zeros(2_000)]), 2)


def machine(monkeypatch: pytest.MonkeyPatch, cores: int, memory: int = 64 << 30) -> None:
    monkeypatch.setattr("loky.cpu_count", lambda: cores)
    monkeypatch.setattr("hubscout.features.preparing.free_bytes", lambda: memory)


def test_processes_are_for_many_images_and_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 8)
    assert default_processes("cuda:1", "image", 20_000) == 6
    assert default_processes("cuda", "image", 19_999) == 0
    assert default_processes("cuda", "text", 10**6) == 0
    machine(monkeypatch, 2)
    assert default_processes("cuda", "image", 10**6) == 0
    machine(monkeypatch, 64, 4 << 30)
    assert default_processes("cuda", "image", 10**6) == 4


def test_few_processes_and_two_threads_decode_small_images_of_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding them is mostly Python, and one lock serves all threads."""
    machine(monkeypatch, 16)
    assert default_processes("cuda", "image", 999, decode_alone=True) == 0
    assert default_processes("cuda", "image", 2_936, decode_alone=True) == 5
    assert default_processes("cuda", "image", 20_000, decode_alone=True) == 14
    assert default_processes("cpu", "image", 2_936, decode_alone=True) == 0
    assert default_threads(decode_alone=True) == min(2, default_threads())


SCRIPT = """
import numpy as np
import torch
from PIL import Image
from hubscout.features import extract, extractor, preparing
from hubscout.hubs import load
from hubscout.tasks import Task

class Started(preparing.InProcesses):
    def __init__(self, *given):
        super().__init__(*given)
        self.ready.result()


extractor.InProcesses = Started
extractor.default_processes = lambda *given, **options: {processes}
print("begun")
generator = np.random.default_rng(0)
images = [Image.fromarray(generator.integers(0, 256, (40, 48, 3), dtype=np.uint8)) for _ in range(96)]
task = Task.from_arrays(images, np.arange(96) % 3, name="noise")
torch.manual_seed(0)
found = extract(load("timm/resnet10t?pretrained=false&input_size=32"), task)
print(repr(float(np.abs(found.features()).sum())))
"""


@pytest.mark.slow
def test_a_plain_script_runs_once_and_finds_the_same_features(tmp_path: Path) -> None:
    """Processes of multiprocessing would run a script without `if __name__ == "__main__"` again."""
    said = {}
    for processes in (0, 2):
        script = tmp_path / f"rank{processes}.py"
        script.write_text(textwrap.dedent(SCRIPT.format(processes=processes)))
        ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
        assert ran.returncode == 0, ran.stderr
        said[processes] = ran.stdout.split()
    assert said[2][0] == "begun"
    assert len(said[2]) == 2
    assert said[2] == said[0]


DECODES = """
import sys
import numpy as np
from hubscout.features.preparing import InProcesses, Reader
from hubscout.hubs.device_resizing import decoded
from hubscout.tasks.images import Images

preparing = InProcesses(Reader(Images([np.full((2, 2, 3), row, np.uint8) for row in range(64)]), decoded, "here"), 2)
preparing.ready.result()
print(sum(int(sample.sum()) for sample in preparing.submit(list(range(64))).result()))
print(preparing._pool.submit(eval, "sorted({'torch', 'timm'} & set(__import__('sys').modules))").result())
preparing.close()
"""


def test_processes_that_only_decode_need_no_torch(tmp_path: Path) -> None:
    script = tmp_path / "decodes.py"
    script.write_text(DECODES)
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [str(12 * sum(range(64))), "[]"]
