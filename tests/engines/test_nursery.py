from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hubscout.engines import Job, LocalEngine
from hubscout.engines.nursery import Nursery

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")

WORK = """
import os, threading, time
from pathlib import Path

import numpy as np

def prepare(path):
    np.random.rand()
    with open(path, "a") as file:
        file.write(f"{os.getpid()}\\n")

class Prepare:
    def __init__(self, path):
        self.path = path
    def __call__(self):
        prepare(self.path)

class WithThread(Prepare):
    def __call__(self):
        super().__call__()
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()

class WithThreadThatGoesOn(Prepare):
    def __call__(self):
        threading.Thread(target=time.sleep, args=(60,)).start()

class NoMoreForks(Prepare):
    def __call__(self):
        super().__call__()
        import hubscout.engines.nursery as module
        fork, done = module._fork, []
        def once():
            if done:
                raise BlockingIOError("no more processes")
            done.append(fork())
            return done[0]
        module._fork = once

class Takes(Prepare):
    def __call__(self):
        time.sleep(7)

class Says(Prepare):
    def __call__(self):
        print("a library says hello")

class Fails(Prepare):
    def __call__(self):
        raise RuntimeError("no such library")

class Leaves(Prepare):
    def __call__(self):
        os._exit(1)

class OpensGpu(Prepare):
    def __call__(self):
        import hubscout.engines.nursery as module
        module._target = lambda link: "/dev/nvidia-uvm"

def who(folder, name, count):
    Path(folder, name).touch()
    for _ in range(400):
        if len(list(Path(folder).iterdir())) >= count:
            asks = os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK")
            return os.getpid(), os.getppid(), float(np.random.rand()), os.environ.get("OMP_NUM_THREADS"), asks
        time.sleep(0.05)
    raise RuntimeError("the others never came")

def hang():
    time.sleep(1000)

def leave_a_child(path):
    child = os.fork()
    if child:
        Path(path).write_text(str(child))
    hang()

def leave():
    raise SystemExit("the model says no")
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Functions of a module that other processes can import too."""
    (tmp_path / "work_of_a_nursery.py").write_text(WORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "work_of_a_nursery", raising=False)
    return importlib.import_module("work_of_a_nursery")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "met").mkdir()
    return tmp_path


@pytest.fixture
def engine(work: ModuleType, place: Path) -> Iterator[LocalEngine]:
    with closing(LocalEngine(workers=2)) as engine:
        engine.prepare(work.Prepare(place / "prepared"))
        yield engine


def meeting(work: ModuleType, place: Path) -> list[Job]:
    """Two jobs that wait for each other."""
    return [Job(n, partial(work.who, place / "met", n, 2)) for n in "ab"]


def test_workers_are_forks_of_a_process_that_has_prepared_once(
    work: ModuleType, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    engine = LocalEngine(workers=2)
    for _ in range(2):
        engine.prepare(work.Prepare(place / "prepared"))
    workers, parents, drawn, threads, asks = zip(*(one.value for one in engine.run(meeting(work, place))), strict=True)
    assert {str(parent) for parent in parents} == {(place / "prepared").read_text().strip()}  # one line
    assert len({*workers, *parents, os.getpid()}) == 4
    assert drawn[0] != drawn[1]
    assert set(threads) == {"3"}
    assert set(asks) == {None}
    engine.close()
    for process in (*workers, *parents):
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


@pytest.mark.parametrize("prepare", ["WithThread", "WithThreadThatGoesOn", "OpensGpu", "Leaves"])
def test_what_cannot_be_forked_is_not(work: ModuleType, place: Path, prepare: str) -> None:
    """A fork has the locks of threads that it has not, and a GPU that it cannot use. That is no fault of a job."""
    began = time.monotonic()
    with closing(LocalEngine(workers=2, attempts=1)) as engine:
        engine.prepare(getattr(work, prepare)(place / "prepared"))
        results = list(engine.run(meeting(work, place)))
    assert time.monotonic() - began < 30
    assert [one.reason for one in results] == ["", ""]
    assert {one.value[1] for one in results} == {os.getpid()}
    assert [one.attempts for one in results] == [1, 1]


def test_those_that_could_be_forked_are_kept(work: ModuleType, place: Path) -> None:
    with closing(LocalEngine(workers=2, attempts=1)) as engine:
        engine.prepare(work.NoMoreForks(place / "prepared"))
        results = list(engine.run(meeting(work, place)))
    assert [one.reason for one in results] == ["", ""]
    assert {str(one.value[1]) for one in results} == {(place / "prepared").read_text().strip(), str(os.getpid())}


def test_a_limit_that_passes_before_they_are_there_is_not_the_jobs(work: ModuleType, place: Path) -> None:
    with closing(LocalEngine(workers=2, attempts=1)) as engine:
        engine.prepare(work.Takes(place / "prepared"))
        jobs = [replace(job, seconds_limit=4.5) for job in meeting(work, place)]
        assert [one.reason for one in engine.run(jobs)] == ["", ""]


def test_a_job_that_hangs_is_ended_though_its_child_goes_on(engine: LocalEngine, work: ModuleType, place: Path) -> None:
    began = time.monotonic()
    job = Job("a", partial(work.leave_a_child, place / "child"), seconds_limit=2)
    (result,) = engine.run([job])
    engine.close()
    try:
        assert "no sign of life" in result.reason
        assert time.monotonic() - began < 20
    finally:
        os.kill(int((place / "child").read_text()), signal.SIGKILL)


def test_what_they_say_is_said_once(
    work: ModuleType, place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    with closing(LocalEngine(workers=2, attempts=1)) as engine:
        engine.prepare(work.Says(place / "prepared"))
        (result, *_) = engine.run([*meeting(work, place), Job("c", work.leave)])
        assert not result.failed
    said = capfd.readouterr()
    assert said.out.count("a library says hello") == 1
    assert "the model says no" in said.err


def test_a_setting_of_the_user_stays(work: ModuleType, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "0")
    with closing(LocalEngine(workers=2)) as engine:
        engine.prepare(work.Prepare(place / "prepared"))
        assert {one.value[4] for one in engine.run(meeting(work, place))} == {"0"}


def test_what_fails_before_is_left_to_the_jobs(work: ModuleType, place: Path) -> None:
    with closing(LocalEngine(workers=2)) as engine:
        engine.prepare(work.Fails(place / "prepared"))
        results = list(engine.run(meeting(work, place)))
    assert not any(one.failed for one in results)
    assert {one.value[1] for one in results} != {os.getpid()}


@pytest.mark.parametrize("workers", [0, 1])
def test_with_nobody_to_share_it_nothing_is_prepared(work: ModuleType, place: Path, workers: int) -> None:
    with closing(LocalEngine(workers=workers)) as engine:
        engine.prepare(work.Prepare(place / "prepared"))
        (place / "met" / "b").touch()
        (result,) = engine.run([Job("a", partial(work.who, place / "met", "a", 2))])
    assert not (place / "prepared").exists()
    assert result.value[1] == (os.getpid() if workers else os.getppid())


def test_workers_that_are_there_stay_as_they_are(work: ModuleType, place: Path) -> None:
    with closing(LocalEngine(workers=2)) as engine:
        first = {one.value[0] for one in engine.run(meeting(work, place))}
        engine.prepare(work.Prepare(place / "prepared"))
        assert {one.value[0] for one in engine.run(meeting(work, place))} <= first
    assert not (place / "prepared").exists()


@pytest.mark.parametrize("count", [1, 2])
def test_one_that_dies_is_replaced(engine: LocalEngine, work: ModuleType, place: Path, count: int) -> None:
    """Also where the other one lives, which was forked from the same process."""
    dead = [one.value[0] for one in engine.run(meeting(work, place))][:count]
    for worker in dead:
        os.kill(worker, signal.SIGKILL)
    again = list(engine.run([replace(job, seconds_limit=20) for job in meeting(work, place)]))
    assert not any(one.failed for one in again)
    assert not {one.value[0] for one in again} & set(dead)


def test_one_that_was_never_heard_is_ended_with_its_job(engine: LocalEngine, work: ModuleType, place: Path) -> None:
    results = engine.run([*meeting(work, place), Job("c", work.hang)])
    first = next(iter(results))
    results.close()  # type: ignore[attr-defined]  # the other has the job that hangs, or its meeting
    began = time.monotonic()
    engine.close()
    assert time.monotonic() - began < 10
    with pytest.raises(ProcessLookupError):
        os.kill(first.value[0], 0)


SCRIPT = """
import gc, os, signal, sys, time
from functools import partial
from hubscout.engines import Job, LocalEngine

def slow():
    print(os.getpid(), os.getppid(), flush=True)
    time.sleep(1000)

if __name__ == "__main__":
    engine = LocalEngine(workers=2)
    engine.prepare(gc.collect)
    for _ in engine.run([Job(name, slow) for name in "ab"]):
        pass
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_they_end_with_the_process_that_waits(tmp_path: Path, end: signal.Signals) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    given = [sys.executable, str(tmp_path / "script.py")]
    process = subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    here = [int(one) for _ in range(2) for one in process.stdout.readline().split()]
    if end == signal.SIGINT:
        os.killpg(process.pid, end)  # as a terminal does: all processes hear it
    else:
        process.kill()
    _, said = process.communicate(timeout=120)
    assert said.count("Traceback") == (end == signal.SIGINT), said
    for worker in here:
        for _ in range(200):
            if not Path(f"/proc/{worker}").exists():
                break
            time.sleep(0.05)
        assert not Path(f"/proc/{worker}").exists()


def test_workers_end_at_the_same_time(engine: LocalEngine, work: ModuleType, place: Path) -> None:
    """One that holds a GPU takes a while, and the others do not wait for it."""
    list(engine.run(meeting(work, place)))
    assert engine._pool is not None
    processes = [worker.process for worker in engine._pool._workers]
    ended: list[str] = []
    for process in processes:
        name, terminate, join = str(process.pid), process.terminate, process.join
        process.terminate = lambda name=name, do=terminate: (ended.append(f"end {name}"), do())
        process.join = lambda name=name, do=join: (ended.append(f"wait for {name}"), do())
    engine.close()
    assert [one.split()[0] for one in ended[: len(processes)]] == len(processes) * ["end"]
    assert sum(one.startswith("wait") for one in ended) == len(processes) > 1


def test_an_interrupt_waits_until_it_is_known_what_has_started(
    work: ModuleType, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the end of the program would wait for a process that nobody ends; and it would print where it was."""
    begin = Nursery.__init__
    blocked: list[bool] = []

    def interrupted(self: Nursery, *given: Any) -> None:
        begin(self, *given)
        mask = next(
            line for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines() if "SigBlk" in line
        )
        blocked.append(bool(int(mask.split()[1], 16) & 1 << (signal.SIGINT - 1)))
        other.submit(signal.raise_signal, signal.SIGINT).result()

    monkeypatch.setattr(Nursery, "__init__", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    engine = LocalEngine(workers=2)
    other = ThreadPoolExecutor(1)
    other.submit(int).result()  # it has started, and blocks nothing
    try:
        with pytest.raises(KeyboardInterrupt):
            engine.prepare(work.Prepare(place / "prepared"))
        assert blocked == [True]
        assert engine._pool is not None
        assert engine._pool._nursery is not None
        assert len(engine._pool._workers) == 2
    finally:
        signal.signal(signal.SIGINT, before)
        engine.close()
        other.shutdown()


def test_closing_does_not_wait_for_imports() -> None:
    nursery = Nursery(2, print, partial(time.sleep, 100), {})
    began = time.monotonic()
    nursery.close()
    assert time.monotonic() - began < 20
    assert threading.active_count() < 10
