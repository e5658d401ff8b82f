from __future__ import annotations

import importlib
import os
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from hubscout.engines import ENGINES, Job, open_engine
from hubscout.errors import EngineError, InputError, ModelError, UnknownEngineError

WORK = """
import os, signal
from pathlib import Path
from hubscout.errors import ModelError

def where(value):
    return value, os.getpid()

def fail():
    raise ModelError("no weights\\nat all")

def leave(path):
    Path(path).touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Functions of a module that other processes can import too."""
    (tmp_path / "work_of_the_test.py").write_text(WORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "work_of_the_test", raising=False)
    return importlib.import_module("work_of_the_test")


def test_jobs_run_here_the_costliest_first(work: ModuleType) -> None:
    jobs = [Job(str(n), partial(work.where, n), cost=n) for n in (2, 5, 3)]
    results = list(open_engine("local").run(jobs))
    assert [result.key for result in results] == ["5", "3", "2"]
    assert [result.value for result in results] == [(n, os.getpid()) for n in (5, 3, 2)]
    assert all(result.seconds >= 0 and not result.failed for result in results)


def test_jobs_of_a_group_follow_one_another(work: ModuleType) -> None:
    jobs = [Job(f"{g}{n}", partial(work.where, n), cost=n, group=g) for n in (1, 2) for g in ("a", "b")]
    keys = [result.key[0] for result in open_engine("local").run([*jobs, Job("c", partial(work.where, 0), cost=2.5)])]
    assert keys in (list("aabbc"), list("bbaac"))


@pytest.mark.parametrize("processes", [0, 1])
def test_a_failure_is_a_result_and_the_rest_goes_on(work: ModuleType, processes: int) -> None:
    engine = open_engine("local", processes=processes)
    results = {
        result.key: result for result in engine.run([Job("bad", work.fail), Job("good", partial(work.where, 1))])
    }
    assert results["bad"].failed
    assert results["bad"].reason == "no weights at all"
    assert isinstance(results["bad"].error, ModelError)
    assert "fail" in results["bad"].traceback
    assert results["good"].value[0] == 1


def test_other_processes_do_the_work(work: ModuleType) -> None:
    results = list(open_engine("local", processes=2).run(Job(str(n), partial(work.where, n)) for n in range(4)))
    assert sorted(result.value[0] for result in results) == [0, 1, 2, 3]
    assert os.getpid() not in {result.value[1] for result in results}


def test_a_process_that_dies_costs_its_own_job_alone(work: ModuleType, tmp_path: Path) -> None:
    jobs = [Job(str(n), partial(work.where, n)) for n in range(3)]
    jobs.append(Job("crash", partial(work.leave, str(tmp_path / "ran")), cost=1))
    results = list(open_engine("local", processes=2).run(jobs))
    assert sorted(result.key for result in results) == ["0", "1", "2", "crash"]
    assert [result.key for result in results if result.failed] == ["crash"]
    crash = next(result for result in results if result.failed)
    assert isinstance(crash.error, EngineError)
    assert (tmp_path / "ran").exists()


def test_work_that_cannot_be_imported_says_so(work: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job("lost", partial(work.where, 1))
    (Path(work.__file__ or "")).unlink()
    (result,) = open_engine("local", processes=1).run([job])
    assert "work_of_the_test" in result.reason


def test_work_that_cannot_be_sent_says_so() -> None:
    (result,) = open_engine("local", processes=1).run([Job("local", lambda: 1)])
    assert result.failed
    assert "pickle" in result.reason.lower()


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
    with pytest.raises(InputError, match="processes"):
        open_engine("local", processes=-1)
    with pytest.raises(InputError, match="'a' is there more than once"):
        list(open_engine("local").run([Job("a", work.fail), Job("a", work.fail)]))
