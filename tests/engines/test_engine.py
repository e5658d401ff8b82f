from __future__ import annotations

import gc
import importlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from hubscout.engines import ENGINES, Job, JobResult, LocalEngine, open_engine
from hubscout.errors import EngineError, InputError, ModelError, UnknownEngineError

WORK = """
import os, signal, time
from pathlib import Path
from hubscout.engines import report
from hubscout.errors import ModelError

def where(value):
    return value, os.getpid()

def fail():
    raise ModelError("no weights\\nat all")

def leave(path):
    with open(path, "a") as file:
        file.write("x")
    os.kill(os.getpid(), signal.SIGKILL)

def leave_once(path):
    if not Path(path).exists():
        leave(path)
    return "alive"

def hang():
    time.sleep(1000)

def load_data():
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    samples = TensorDataset(torch.arange(40.0).reshape(20, 2))
    return sum(float(batch.sum()) for batch, in DataLoader(samples, batch_size=5, num_workers=2))

def loud(times):
    for turn in range(times):
        report(turn)
        time.sleep(0.3)

def meet(folder, name, count):
    Path(folder, name).touch()
    for _ in range(400):
        if len(list(Path(folder).iterdir())) >= count:
            return os.getpid()
        time.sleep(0.05)
    raise RuntimeError("the others never came")
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Functions of a module that other processes can import too."""
    (tmp_path / "work_of_the_test.py").write_text(WORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "work_of_the_test", raising=False)
    return importlib.import_module("work_of_the_test")


@pytest.fixture(params=["alone", "together"])
def engine(request: pytest.FixtureRequest, work: ModuleType) -> Iterator[LocalEngine]:
    """Two workers, which start by themselves or come from one process."""
    with closing(LocalEngine(workers=2)) as engine:
        if request.param == "together":
            engine.prepare(gc.collect)
        yield engine


def test_jobs_run_here_the_costliest_first(work: ModuleType) -> None:
    jobs = [Job(str(n), partial(work.where, n), cost=n) for n in (2, 5, 3)]
    results = list(open_engine("local").run(jobs))
    assert [result.key for result in results] == ["5", "3", "2"]
    assert [result.value for result in results] == [(n, os.getpid()) for n in (5, 3, 2)]
    assert all(result.seconds >= 0 and not result.failed for result in results)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_failure_is_a_result_and_the_rest_goes_on(work: ModuleType, workers: int) -> None:
    engine = open_engine("local", workers=workers)
    results = {
        result.key: result for result in engine.run([Job("bad", work.fail), Job("good", partial(work.where, 1))])
    }
    assert results["bad"].failed
    assert results["bad"].reason == "no weights at all"
    assert isinstance(results["bad"].error, ModelError)
    assert "fail" in results["bad"].traceback
    assert results["good"].value[0] == 1


def test_other_processes_do_the_work(work: ModuleType) -> None:
    results = list(open_engine("local", workers=2).run(Job(str(n), partial(work.where, n)) for n in range(4)))
    assert sorted(result.value[0] for result in results) == [0, 1, 2, 3]
    assert os.getpid() not in {result.value[1] for result in results}


def test_a_process_that_dies_costs_its_own_job_alone(engine: LocalEngine, work: ModuleType, tmp_path: Path) -> None:
    jobs = [Job(str(n), partial(work.where, n)) for n in range(3)]
    jobs.append(Job("crash", partial(work.leave, str(tmp_path / "ran")), cost=1))
    jobs.append(Job("once", partial(work.leave_once, str(tmp_path / "once")), cost=1))
    results = {result.key: result for result in engine.run(jobs)}
    assert sorted(results) == ["0", "1", "2", "crash", "once"]
    assert [key for key, result in results.items() if result.failed] == ["crash"]
    assert isinstance(results["crash"].error, EngineError)
    assert "died 3 times" in results["crash"].reason
    assert (tmp_path / "ran").read_text() == "xxx"
    assert (results["once"].value, results["once"].attempts) == ("alive", 2)


def test_workers_run_at_the_same_time_and_stay_for_the_next_run(
    engine: LocalEngine, work: ModuleType, tmp_path: Path
) -> None:
    jobs = [Job(str(n), partial(work.meet, str(tmp_path), str(n), 2)) for n in range(2)]
    first = {result.value for result in engine.run(jobs)}
    again = {result.value[1] for result in engine.run(Job(str(n), partial(work.where, n)) for n in range(4))}
    assert len(first) == 2
    assert again <= first


def test_a_job_of_a_worker_that_hangs_is_ended_and_one_that_is_slow_is_not(
    engine: LocalEngine, work: ModuleType
) -> None:
    jobs = [Job("hang", work.hang, seconds_limit=3), Job("slow", partial(work.loud, 15), seconds_limit=3)]
    heard: list[object] = []
    results = {result.key: result for result in engine.run(jobs, observer=heard.append)}
    assert "no sign of life for 3 seconds" in results["hang"].reason
    assert not results["slow"].failed
    assert results["slow"].seconds > 3
    assert heard == list(range(15))


def test_jobs_may_start_processes_of_their_own(engine: LocalEngine, work: ModuleType) -> None:
    """As torch's loaders do, which know nothing of how workers are started."""
    pytest.importorskip("torch")
    results = list(engine.run([Job("a", work.load_data), Job("b", work.load_data)]))
    assert [one.reason for one in results] == ["", ""]
    assert [one.value for one in results] == [780.0, 780.0]


def test_leaving_early_ends_what_runs_and_closing_ends_the_rest(engine: LocalEngine, work: ModuleType) -> None:
    results = engine.run([Job("quick", partial(work.where, 1), cost=2), Job("slow", work.hang)])
    quick = next(iter(results))
    results.close()  # type: ignore[attr-defined]
    (again,) = engine.run([Job("again", partial(work.where, 2))])
    assert again.value == (2, quick.value[1])
    engine.close()
    with pytest.raises(ProcessLookupError):
        os.kill(quick.value[1], 0)


@pytest.mark.parametrize("workers", [0, 1])
def test_jobs_that_follow_from_results_run_too(work: ModuleType, workers: int) -> None:
    def then(result: JobResult) -> list[Job]:
        return [Job(result.key + "!", partial(work.where, 0))] if len(result.key) < 3 else []

    with closing(open_engine("local", workers=workers)) as engine:
        keys = [result.key for result in engine.run([Job("a", partial(work.where, 1))], then=then)]
    assert keys == ["a", "a!", "a!!"]


def test_shared_values_are_gone_with_the_engine() -> None:
    engine = LocalEngine(workers=1)
    shared = engine.share({"a": 1})
    assert shared.get() == {"a": 1}
    engine.close()
    with pytest.raises(FileNotFoundError):
        shared.get()


SCRIPT = """
import os, sys, time
from hubscout.engines import Job, LocalEngine

def name():
    time.sleep({seconds})
    return __name__, os.getpid()

engine = LocalEngine(workers=1)
for result in engine.run([Job("name", name)]):
    print(*result.value, result.reason, flush=True)
"""


def test_a_script_needs_no_guard_and_no_close(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.format(seconds=0))
    done = subprocess.run([sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("__main__")
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout.split()[1]), 0)


def test_ctrl_c_ends_the_workers_quietly(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.format(seconds=1000).replace("LocalEngine(workers=1)\n", LATE))
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    worker = int((process.stdout or sys.stdin).readline())
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: all processes hear it
    _, said = process.communicate(timeout=120)
    assert said.count("Traceback") == 1, said
    assert said.strip().endswith("KeyboardInterrupt")
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


LATE = """LocalEngine(workers=1)
for result in engine.run([Job("who", os.getpid)]):
    print(result.value, flush=True)
"""


def test_work_that_cannot_be_imported_says_so(work: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job("lost", partial(work.where, 1))
    (Path(work.__file__ or "")).unlink()
    (result,) = open_engine("local", workers=1).run([job])
    assert "work_of_the_test" in result.reason


def test_work_that_cannot_be_sent_says_so() -> None:
    (result,) = open_engine("local", workers=1).run([Job("local", partial(str, threading.Lock()))])
    assert result.failed
    assert "pickle" in result.reason.lower()


def test_a_value_that_cannot_be_sent_back_says_so(engine: LocalEngine) -> None:
    results = {result.key: result for result in engine.run([Job("lock", threading.Lock), Job("fine", dict)])}
    assert "pickle" in results["lock"].reason.lower()
    assert results["fine"].value == {}


def test_ctrl_c_comes_through_and_keeps_what_was_given(work: ModuleType) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    results = open_engine("local").run([Job("a", partial(work.where, 1), cost=2), Job("b", interrupt, cost=1)])
    assert next(results).key == "a"
    with pytest.raises(KeyboardInterrupt):
        next(results)


def test_names_and_arguments_are_checked(work: ModuleType) -> None:
    assert "local" in ENGINES
    with pytest.raises(UnknownEngineError, match="Did you mean 'local'"):
        open_engine("locl")
    with pytest.raises(InputError, match="workers"):
        open_engine("local", workers=-1)
    with pytest.raises(InputError, match="'a' is there more than once"):
        list(open_engine("local").run([Job("a", work.fail), Job("a", work.fail)]))
