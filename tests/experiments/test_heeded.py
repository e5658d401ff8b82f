"""What the experiments tell `tune` is what the method heeds: `tune` refuses the rest, before it reads data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STOPPED = """
from types import SimpleNamespace
from hubscout.errors import DivergedError
from hubscout.tuning import tuning_run
def stop(task):
    raise DivergedError("checked")
tuning_run.open_task = stop  # what comes next once the options are checked
TASK = SimpleNamespace(kind="classification", modality="image", target_names=("a", "b"), train=range(64))
MODEL = "pypi/alexnet-features"
"""
TEACHING = """
import crossed_numbers, halfway, kinds, passed, run
run.open_task = lambda *_: TASK
run.opened = lambda *_, **__: MODEL
run.tuned_teacher = lambda *_: MODEL
run.kept.opened_once = lambda name: name
run.kept.features = lambda folder: None
for case in run.FEW[0], f"pets-740/{run.MOBILENET}/unused":
    for name in run.METHODS:
        found = run.run_one(run.search(case, name)[0])
        assert found["error"] == "checked", (name, found)
print(len(run.METHODS))
"""
TUNING = """
import itertools, run
run.open_task = lambda name: TASK
run.vision_identifier = lambda name: MODEL
count = 0
for name, compared in run.COMPARED.items():
    for method, teachers in compared:
        setting = run.search_settings(name, method, teachers)[0]
        found = run.work(run.Job(setting, ("some", "others") if teachers else ()))
        assert found.get("error") == "checked", (setting, found)
        count += 1
print(count)
"""
NORMS = """
import json, tempfile
from pathlib import Path
import moving_norms
moving_norms.open_task = lambda name: TASK
moving_norms.vision_identifier = lambda name: MODEL
with tempfile.TemporaryDirectory() as folder:
    moving_norms.RESULTS = Path(folder) / "norms.jsonl"
    moving_norms.main()
    lines = moving_norms.RESULTS.read_text().splitlines()
assert all(json.loads(line)["error"] == "checked" for line in lines), lines
print(len(lines))
"""


@pytest.mark.parametrize(
    ("folder", "code", "least"),
    [
        pytest.param("teaching", TEACHING, 100, id="teaching/run.py"),
        pytest.param("tuning", TUNING, 15, id="tuning/run.py"),
        pytest.param("tuning", NORMS, 4, id="tuning/moving_norms.py"),
    ],
)
def test_every_method_takes_the_options_that_it_is_given(folder: str, code: str, least: int) -> None:
    paths = [str(ROOT / part) for part in (f"experiments/{folder}", "experiments", "src")]
    given = [sys.executable, "-W", "ignore", "-c", f"import sys; sys.path[:0] = {paths}\n{STOPPED}{code}"]
    ran = subprocess.run(given, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) >= least
