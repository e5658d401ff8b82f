"""`experiments/pool.py`: jobs of a script in workers that remember what its functions have opened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, signal, sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

sys.path.insert(0, {experiments!r})
from pool import run_jobs

HERE = Path(__file__).parent

@dataclass(frozen=True)
class Place:
    number: int

@dataclass(frozen=True)
class Found:
    place: Place
    data: str

@cache
def data():
    with open(HERE / "opened", "a") as file:
        file.write("x")
    return "data"

def work(place):
    if place.number == 3:
        raise ValueError("a bad place")
    if place.number == 4 and not (HERE / "died").exists():
        (HERE / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return Found(place, data())

if __name__ == "__main__":
    for place, found in run_jobs(work, [Place(number) for number in range(int(sys.argv[2]))], int(sys.argv[1])):
        assert isinstance(found, Found) and found.place == place, (found, place)
        print(place.number, found.data)
"""


@pytest.mark.parametrize(("workers", "jobs"), [(1, 4), (2, 12)])
def test_each_process_opens_its_data_once_and_a_failure_is_said(tmp_path: Path, workers: int, jobs: int) -> None:
    experiments = Path(__file__).parents[2] / "experiments"
    (tmp_path / "script.py").write_text(SCRIPT.format(experiments=str(experiments)))
    command = [sys.executable, str(tmp_path / "script.py"), str(workers), str(jobs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(f"{number} data" for number in range(jobs) if number != 3)
    assert done.stderr.count(": done") == jobs - 1
    assert "ValueError: a bad place" in done.stderr
    assert 1 <= len((tmp_path / "opened").read_text()) <= workers + (workers > 1)  # one died and was replaced
