"""Rankings in processes of this machine: the same as in one, whatever dies on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from hubscout.cli.app import app
from hubscout.engines import LocalEngine
from hubscout.ranking import Ranking, rank
from hubscout.ranking.jobs import ImportForModels
from hubscout.runs.events import Advanced, Event, Finished, Started
from hubscout.tasks import Task
from hubscout.tuning.trials import trial_runner


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    """Two workers of one thread each."""
    before, os.environ["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS"), "1"
    with closing(LocalEngine(workers=2)) as engine:
        list(engine.run([]))
        yield engine
    del os.environ["OMP_NUM_THREADS"]
    if before is not None:
        os.environ["OMP_NUM_THREADS"] = before


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As many as a worker has: float32 rounds by how the work is cut."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def name(zoo: Path, columns: str, fault: str = "", flag: Path | str = "", pace: float = 0.0) -> str:
    first, last = columns.split("-")
    return f"python:{zoo}/zoo.py:look?first={first}&last={last}&fault={fault}&flag={flag}&pace={pace}"


def facts(ranking: Ranking) -> dict[str, tuple[Any, ...]]:
    """All that a process could have changed, by the columns that a model sees."""
    return {
        row.identifier.partition("&fault")[0]: (row.n, row.score, row.scores, row.block_scores, row.block_sizes)
        for row in ranking
    }


@pytest.mark.parametrize("cached", [True, False])
def test_as_in_one_process_to_the_last_bit(
    task: Task, zoo: Path, engine: LocalEngine, one_thread: None, tmp_path: Path, cached: bool
) -> None:
    models = [name(zoo, columns) for columns in ("0-4", "4-8", "12-20")] + [f"python:{zoo}/zoo.py:broken"]
    options: dict[str, Any] = {"metrics": ("logme", "knn"), "layers": "all"}
    here = rank(task, models, cache=tmp_path / "here" if cached else False, **options)
    events: list[Event] = []
    there = rank(
        task, models, cache=tmp_path / "there" if cached else False, engine=engine, observer=events.append, **options
    )
    assert facts(there) == facts(here)
    assert [failure.reason for failure in there.failures] == [failure.reason for failure in here.failures]
    for row in there:
        own = [event for event in events if event.model == row.identifier]
        assert sum(event.rows for event in own if isinstance(event, Advanced)) == len(task.train)
        assert [type(event) for event in own if isinstance(event, Started | Finished)] == [Started, Finished]


def test_one_model_in_slices_on_both_workers(
    task: Task, zoo: Path, engine: LocalEngine, one_thread: None, tmp_path: Path
) -> None:
    (zoo / "loads.txt").write_text("")
    model = name(zoo, "0-4", "wait_for_company", tmp_path / "met")  # or one may do both before the other has started
    there = rank(task, model, cache=tmp_path / "there", engine=engine, batch_size=128)
    loads = (zoo / "loads.txt").read_text().split()[::2]
    assert len(set(loads)) == 2
    here = rank(task, model, cache=tmp_path / "here", batch_size=128)
    assert facts(there) == facts(here)
    assert not there.best.from_cache
    assert rank(task, model, cache=tmp_path / "there", batch_size=128).best.from_cache


def test_growing_subsets(task: Task, zoo: Path, engine: LocalEngine, one_thread: None) -> None:
    models = [name(zoo, columns) for columns in ("0-4", "4-8", "12-20")]
    here = rank(task, models, cache=False, progressive=True)
    there = rank(task, models, cache=False, progressive=True, engine=engine)
    assert facts(there) == facts(here)
    assert [(stage.n, set(stage.models)) for stage in there.stages] == [
        (stage.n, set(stage.models)) for stage in here.stages
    ]


def test_a_killed_and_a_crashing_model(
    task: Task, zoo: Path, engine: LocalEngine, one_thread: None, tmp_path: Path
) -> None:
    models = [
        name(zoo, "0-4", "kill_once", tmp_path / "once"),
        name(zoo, "4-8", "kill_always", tmp_path / "always"),
        name(zoo, "12-20"),
    ]
    there = rank(task, models, cache=False, engine=engine, batch_size=128)
    here = rank(task, [name(zoo, "0-4"), name(zoo, "12-20")], cache=False, batch_size=128)
    assert (tmp_path / "once").exists()
    assert facts(there) == facts(here)
    reasons = {failure.identifier: failure.reason for failure in there.failures}
    assert "died 3 times" in reasons[models[1]]


def test_a_hanging_model(task: Task, zoo: Path, engine: LocalEngine, one_thread: None, tmp_path: Path) -> None:
    # Both workers have imported everything before the clock runs.
    here = rank(task, [name(zoo, "0-4"), name(zoo, "12-20")], cache=False, engine=engine, batch_size=128)
    models = [name(zoo, "4-8", "hang", tmp_path / "hung"), name(zoo, "12-20")]
    there = rank(task, models, cache=False, engine=engine, time_limit=8, batch_size=128)
    assert there.rows[0].block_scores == here.rows[-1].block_scores
    (failure,) = there.failures
    assert "no sign of life for 8 seconds" in failure.reason


DRIVER = """
import sys
sys.path.insert(0, {tests!r})
from conftest import columns
from hubscout.ranking import rank
from hubscout.tasks import Task
from hubscout.tuning.trials import trial_runner

task = Task.from_arrays(*columns(3000), name="columns")
rank(task, {models!r}, cache=False, out={out!r}, engine="local", engine_options={{"workers": 2}}, batch_size=128)
"""


def test_ctrl_c_keeps_what_is_finished_and_ends_the_workers(zoo: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    models = [name(zoo, "0-4"), name(zoo, "4-8", "hang", tmp_path / "hung")]
    (tmp_path / "driver.py").write_text(DRIVER.format(tests=str(Path(__file__).parent), models=models, out=str(out)))
    (zoo / "loads.txt").write_text("")
    driver = subprocess.Popen(
        [sys.executable, str(tmp_path / "driver.py")], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 200
    while not ((out / "ranking.json").exists() and (tmp_path / "hung").exists()):
        assert driver.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(driver.pid, signal.SIGINT)
    _, said = driver.communicate(timeout=120)
    assert "1 of 2 models are finished and saved in" in said
    assert [row.identifier for row in Ranking.load(out)] == models[:1]
    for pid in {int(line.split()[0]) for line in (zoo / "loads.txt").read_text().splitlines()}:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_workers_are_of_the_engine_local() -> None:
    refused = CliRunner().invoke(app, ["rank", "data.csv", "-m", "a/b", "--engine", "ray", "--workers", "2"])
    assert refused.exit_code == 2
    assert "--workers is for --engine local, not for ray" in refused.output


NETWORK = """
import os
from pathlib import Path
import torch
from torch import nn

def make(seed):
    Path(__file__).with_suffix(f".{os.getpid()}").touch()
    torch.manual_seed(seed)
    network = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 8))
    network.num_features = 8
    network.pretrained_cfg = {"input_size": (3, 16, 16), "mean": (0.5,) * 3, "std": (0.5,) * 3}
    return network
"""


def test_the_command_ranks_in_workers(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NETWORK)
    generator = np.random.default_rng(0)
    for label, shade in (("dark", 60), ("light", 190)):
        (tmp_path / "data" / label).mkdir(parents=True)
        for number in range(20):
            pixels = np.clip(generator.normal(shade, 40, (16, 16, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "data" / label / f"{number}.png")
    command = ["rank", str(tmp_path / "data"), "--no-cache", "--json", "--quiet"]
    for seed in (0, 1):
        command += ["-m", f"python:{tmp_path}/net.py:make?seed={seed}"]
    found = []
    for workers in ([], ["--workers", "2"]):
        done = CliRunner().invoke(app, [*command, *workers])
        assert done.exit_code == 0, done.output
        found.append({row["identifier"]: row["score"] for row in json.loads(done.stdout)["rows"]})
    assert found[0] == pytest.approx(found[1], abs=1e-9)
    processes = {path.suffix for path in tmp_path.glob("net.*")} - {".py"}
    assert f".{os.getpid()}" in processes
    assert len(processes) == 3


TOGETHER = """
import sys
from hubscout.engines import nursery
begin, begun = nursery.Nursery.__init__, []
nursery.Nursery.__init__ = lambda self, *given: (begun.append(given[2]), begin(self, *given))[1]
from hubscout.ranking import rank
ranking = rank(sys.argv[1], sys.argv[2:], engine_options={"workers": 2}, cache=False, progress=False)
assert len(ranking) == 2, ranking.failures
print(*begun, "torch" in sys.modules)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")
def test_who_waits_for_workers_of_one_process_imports_no_torch(zoo: Path, tmp_path: Path) -> None:
    inputs = np.random.default_rng(0).standard_normal((60, 20)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=inputs, y=np.array(["a", "b"] * 30))
    given = [sys.executable, "-c", TOGETHER, str(tmp_path / "data.npz"), name(zoo, "0-4"), name(zoo, "4-8")]
    done = subprocess.run(given, capture_output=True, text=True, timeout=240)
    assert done.stdout.strip() == "ImportForModels(hubs=('',)) False", done.stderr


def test_workers_of_a_search_begin_with_what_they_have_in_common(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    monkeypatch.setattr(LocalEngine, "prepare", lambda self, work: begun.append(work))
    with trial_runner(task, "local", {"workers": 2}, None, {}):
        assert begun == [ImportForModels(())]
