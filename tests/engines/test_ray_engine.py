"""Jobs on a real cluster: a head and two machines of one core and one (pretended) GPU each."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from hubscout.engines import Job, RayEngine, ray_run
from hubscout.engines.ray_engine import check_reachable
from hubscout.errors import EngineError, InputError, MissingDependencyError, ModelError

pytestmark = pytest.mark.ray

WORK = """
import os, signal, time
from pathlib import Path
from hubscout.engines import remembered, report
from hubscout.errors import MissingDependencyError, ModelError

def where(value):
    return value, os.getpid()

def fail():
    raise ModelError("no weights\\nat all")

def need():
    raise MissingDependencyError("moon", "moon", "This")

class Strange(Exception):
    pass

def strange():
    raise Strange("of a class that only I know")

def die(path):
    with open(path, "a") as file:
        file.write("x")
    os.kill(os.getpid(), signal.SIGKILL)

def die_once(path):
    if not Path(path).exists():
        die(path)
    return "alive"

def hang():
    time.sleep(1000)

def loud(value, times=1):
    report((value, "begins"))
    for _ in range(times):
        time.sleep(1.5)
        report((value, "ends"))

def load(path, name):
    def make():
        with open(path, "a") as file:
            file.write(f"{name} {os.getpid()}\\n")
        return name
    time.sleep(0.05)
    return remembered("thing", name, make), os.getpid()

def total(shared):
    return float(shared.get().sum())

def meet(folder, name, count):
    Path(folder, name).touch()
    for _ in range(200):
        if len(list(Path(folder).iterdir())) >= count:
            return os.environ.get("CUDA_VISIBLE_DEVICES")
        time.sleep(0.05)
    raise RuntimeError("the others never came")
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Functions of a module that workers find by the import path of the driver."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "work_on_ray.py").write_text(WORK)
    sys.path.insert(0, str(folder))
    return importlib.import_module("work_on_ray")


@pytest.fixture(scope="module")
def engine(work: ModuleType, cluster: object) -> RayEngine:  # after `work`, whose folder workers must see
    return RayEngine(address=cluster.address)  # type: ignore[attr-defined]


def by_key(engine: RayEngine, *jobs: Job, **options: object) -> dict[str, object]:
    return {result.key: result for result in engine.run(jobs, **options)}  # type: ignore[arg-type]


def test_other_processes_do_the_work_and_each_job_has_one_result(engine: RayEngine, work: ModuleType) -> None:
    results = list(engine.run(Job(str(n), partial(work.where, n)) for n in range(8)))
    assert sorted(result.value[0] for result in results) == list(range(8))
    pids = {result.value[1] for result in results}
    assert os.getpid() not in pids
    assert len(pids) < 8  # they are used again; Ray may have one more of them than places
    assert {result.attempts for result in results} == {1}


def test_failures_are_results(engine: RayEngine, work: ModuleType) -> None:
    jobs = [Job("bad", work.fail), Job("strange", work.strange), Job("need", work.need)]
    found = by_key(engine, *jobs, Job("good", partial(work.where, 1)), Job("lock", partial(str, threading.Lock())))
    assert found["bad"].reason == "no weights at all"
    assert isinstance(found["bad"].error, ModelError)
    assert "in fail" in found["bad"].traceback
    assert found["good"].value[0] == 1
    assert "pickle" in found["lock"].reason
    assert found["strange"].reason == "Strange: of a class that only I know"
    assert not isinstance(found["need"].error, MissingDependencyError)
    assert "pip install 'hubscout[moon]'" in found["need"].reason


def test_a_job_that_kills_its_worker_is_tried_three_times(engine: RayEngine, work: ModuleType, tmp_path: Path) -> None:
    found = by_key(
        engine,
        Job("always", partial(work.die, str(tmp_path / "always"))),
        Job("once", partial(work.die_once, str(tmp_path / "once"))),
        Job("fine", partial(work.where, 1)),
    )
    assert isinstance(found["always"].error, EngineError)
    assert "died 3 times" in found["always"].reason
    assert (tmp_path / "always").read_text() == "xxx"
    assert (found["once"].value, found["once"].attempts) == ("alive", 2)
    assert found["fine"].attempts == 1


def test_a_job_that_hangs_is_ended(engine: RayEngine, work: ModuleType) -> None:
    started = time.monotonic()
    found = by_key(engine, Job("hang", work.hang, seconds_limit=1.5), Job("fine", partial(work.where, 1)))
    assert "no sign of life for 1.5 seconds" in found["hang"].reason
    assert found["fine"].value[0] == 1
    assert time.monotonic() - started < 30


def test_a_job_that_hangs_on_a_machine_too_busy_to_answer_is_ended(
    engine: RayEngine, work: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_run, "_SECONDS_TO_ASK", 0.0001)
    found = by_key(engine, Job("hang", work.hang, seconds_limit=1.5))
    assert "no sign of life for 1.5 seconds" in found["hang"].reason


def test_a_job_that_waits_for_another_process_is_not_taken_for_one_that_hangs(
    engine: RayEngine, work: ModuleType, tmp_path: Path
) -> None:
    # Both places are taken for longer than the limit when the job that lost its process is to be run again.
    busy = [Job(f"busy {n}", partial(work.loud, n, 4), cost=-n) for n in range(2)]
    job = Job("once", partial(work.die_once, str(tmp_path / "once")), seconds_limit=2.0, cost=1)
    found = by_key(engine, job, *busy)
    assert (found["once"].value, found["once"].attempts) == ("alive", 2)


def test_a_job_that_is_slow_but_alive_is_not_ended(engine: RayEngine, work: ModuleType) -> None:
    (result,) = engine.run([Job("slow", partial(work.loud, 1, 5), seconds_limit=4.0)])
    assert not result.failed, result.reason
    assert result.seconds > 4.0


def test_what_is_dear_is_loaded_once_in_a_worker(engine: RayEngine, work: ModuleType, tmp_path: Path) -> None:
    log = tmp_path / "loads"
    jobs = [Job(f"{g}{n}", partial(work.load, str(log), g), cost=1) for g in "abc" for n in range(6)]
    results = list(engine.run(jobs))
    assert {result.value[0] for result in results} == {"a", "b", "c"}
    loads = log.read_text().splitlines()
    assert len(loads) == len(set(loads))
    assert len(loads) <= 9  # of 18 jobs: Ray may start a third worker in place of one of two


def test_events_arrive_while_jobs_run(engine: RayEngine, work: ModuleType) -> None:
    heard: list[tuple[float, object]] = []
    ends: dict[str, float] = {}
    jobs = [Job(str(n), partial(work.loud, n)) for n in range(2)]
    for result in engine.run(jobs, observer=lambda event: heard.append((time.monotonic(), event))):
        ends[result.key] = time.monotonic()
    assert sorted(event for _, event in heard) == [(n, what) for n in range(2) for what in ("begins", "ends")]
    for moment, (number, what) in heard:
        if what == "begins":
            assert moment < ends[str(number)] - 0.2


def test_who_hears_the_events_may_die(engine: RayEngine, work: ModuleType) -> None:
    """Its process, or its machine: or no job that hangs would ever be ended."""
    import ray

    ray.kill(engine.events.actor, no_restart=False)
    heard: list[object] = []
    jobs = [Job("loud", partial(work.loud, 1, 2)), Job("hang", work.hang, seconds_limit=5)]
    results = {one.key: one for one in engine.run(jobs, observer=heard.append)}
    assert not results["loud"].failed
    assert (1, "ends") in heard
    assert "no sign of life for 5 seconds" in results["hang"].reason


def test_jobs_that_follow_from_results_run_too(engine: RayEngine, work: ModuleType) -> None:
    def then(result: object) -> list[Job]:
        return [Job(result.key + "!", partial(work.where, 0))] if len(result.key) < 3 else []

    keys = sorted(result.key for result in engine.run([Job("a", partial(work.where, 1))], then=then))
    assert keys == ["a", "a!", "a!!"]


def test_values_travel_once_and_by_reference(engine: RayEngine, work: ModuleType) -> None:
    from ray import cloudpickle

    value = np.arange(1_000_000, dtype=np.float64)
    shared = engine.share(value)
    jobs = [Job(str(n), partial(work.total, shared)) for n in range(4)]
    assert len(cloudpickle.dumps(jobs[0])) < 5_000
    assert {result.value for result in engine.run(jobs)} == {float(value.sum())}


def test_small_models_share_a_gpu(engine: RayEngine, work: ModuleType, tmp_path: Path) -> None:
    # Four jobs of a quarter wait for one another: they end only if they run at the same time on the two machines.
    jobs = [Job(str(n), partial(work.meet, str(tmp_path), str(n), 4), cpus=0.25, gpus=0.25) for n in range(4)]
    results = list(engine.run(jobs))
    assert [result.reason for result in results] == [""] * 4
    assert {result.value for result in results} <= {"0", "1"}
    assert engine.places(cpus=0.25, gpus=0.25) == 8
    assert engine.total("GPU") == 2


def test_a_job_that_fits_nowhere_says_so(engine: RayEngine, work: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubscout.engines.ray_run._SECONDS_TO_WAIT_FOR_ROOM", 0.3)
    found = by_key(engine, Job("huge", partial(work.where, 1), cpus=64), Job("fine", partial(work.where, 1)))
    assert "no machine of the cluster has room for a job of 64 CPUs" in found["huge"].reason
    assert not found["fine"].failed


def test_leaving_early_stops_what_runs(engine: RayEngine, work: ModuleType) -> None:
    results = engine.run([Job("quick", partial(work.where, 1), cost=2), Job("slow", work.hang)])
    assert next(iter(results)).key == "quick"
    results.close()
    (again,) = engine.run([Job("again", partial(work.where, 2))])
    assert again.value[0] == 2


def test_arguments_are_checked(engine: RayEngine) -> None:
    with pytest.raises(InputError, match="attempts"):
        RayEngine(attempts=0)


def test_a_cluster_that_is_not_there_is_said_at_once() -> None:
    started = time.monotonic()
    with pytest.raises(EngineError, match=r"Cannot reach the Ray cluster '127.0.0.1:1'"):
        check_reachable("127.0.0.1:1")
    with pytest.raises(InputError, match="HOST:PORT"):
        check_reachable("somewhere")
    assert time.monotonic() - started < 10
