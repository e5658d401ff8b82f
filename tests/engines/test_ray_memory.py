"""A worker that Ray's memory monitor ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]

GIGABYTE = 1 << 30
SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from conftest import columns
from hubscout.engines import RayEngine
from hubscout.ranking import rank
from hubscout.tasks import Task

task = Task.from_arrays(*columns(3000), name="columns")
watch = {{"memory_usage_threshold": {threshold}, "memory_monitor_refresh_ms": 100}}
engine = RayEngine("local", attempts=5, dashboard=False, num_cpus=1, object_store_memory=100_000_000,
                   _system_config=watch)
try:
    found = rank(task, {model!r}, cache=False, engine=engine)
finally:
    engine.close()
here = rank(task, {model!r}, cache=False)
assert not found.failures, found.failures
assert found.best.n == here.best.n
assert abs(found.best.score - here.best.score) < 1e-9
"""


def test_a_worker_out_of_memory_is_replaced(zoo: Path, tmp_path: Path) -> None:
    memory = psutil.virtual_memory()
    if memory.available < 12 * GIGABYTE:
        pytest.skip("needs 12 GB of free memory, of which it fills 5")
    # Ray ends the worker when 4 GB more than now are in use; the model would go on to 8.
    threshold = (memory.total - memory.available + 4 * GIGABYTE) / memory.total
    flag = tmp_path / "filled"
    model = f"python:{zoo}/zoo.py:look?first=0&last=4&fault=fill_memory&flag={flag}"
    script = SCRIPT.format(tests=str(Path(__file__).parent), threshold=threshold, model=model)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert flag.exists()
    assert done.returncode == 0, done.stderr[-2000:]
