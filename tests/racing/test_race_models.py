"""A race between small real networks: the one that can learn the task wins, though its frozen features say nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubscout.engines.memory import forget
from hubscout.errors import InputError, InterruptedRunError, RunError
from hubscout.racing import race
from hubscout.tasks import Task
from hubscout.tuning import Tuned

NETWORKS = """
import torch
from torch import nn


calls = []


def stop_once(module, inputs):
    if module.training:
        calls.append(1)
        if len(calls) == 8:
            raise KeyboardInterrupt


def make(width=16, seed=0, broken=False, stops=False):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
    net.num_features = width
    net.pretrained_cfg = {"input_size": (6,)}
    if stops:
        net.register_forward_pre_hook(stop_once)
    if broken:
        net.register_forward_hook(lambda module, inputs, output: output * float("nan") if module.training else output)
    return net
"""
QUICK = {"steps": 60, "batch_size": 32, "device": "cpu", "bootstrap_resamples": 20}


@pytest.fixture
def networks(tmp_path: Path) -> Path:
    (tmp_path / "nets.py").write_text(NETWORKS)
    return tmp_path / "nets.py"


def names(networks: Path, *options: str) -> list[str]:
    return [f"python:{networks}:make?{option}" for option in options]


@pytest.fixture(scope="module")
def task() -> Task:
    """Whether the product of two inputs is positive: a wide network learns it, one of width 2 cannot."""
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(600, 6)).astype(np.float32)
    return Task.from_arrays(inputs, (inputs[:, 0] * inputs[:, 1] > 0).astype(int), kind="classification", name="signs")


def test_the_network_that_can_learn_wins_and_is_saved(task: Task, networks: Path, tmp_path: Path) -> None:
    models = names(networks, "width=2", "width=64", "width=3&seed=1")
    found = race(task, models, out=tmp_path / "run", learning_rate=0.05, **QUICK)
    assert found.winner.model == models[1]
    assert found.tuned is not None
    assert found.tuned.metric("test").value > 0.8
    assert [one.rank for one in found.order] == [1, 2, 3]
    assert found.order[0].model == models[1]
    assert sum(one.p_best or 0.0 for one in found.order) == pytest.approx(1.0)
    assert models[1] in found.answer
    assert "P(best)" in str(found)
    again = Tuned.load(tmp_path / "run" / "winner", allow_code=True)
    np.testing.assert_allclose(
        again.predict(list(task.test.inputs)).values, found.tuned.predict(list(task.test.inputs)).values, atol=1e-5
    )
    record = json.loads((tmp_path / "run" / "race.json").read_text())
    assert record["winner"]["model"] == models[1]
    assert set(record["seconds"]) == {"evidence", "rungs", "winner"}


def test_an_arm_goes_on_where_it_stopped(task: Task, networks: Path, tmp_path: Path) -> None:
    """The same call after a kill gives the same looks and the same winner, whether arms are in memory or on disk."""
    models = names(networks, "width=8", "width=32")
    whole = race(task, models, out=tmp_path / "whole", learning_rate=0.05, **QUICK)
    heard = []

    def stop(event: Any) -> None:
        heard.append(event)
        if sum("after" in getattr(each, "text", "") for each in heard) == 7:
            raise KeyboardInterrupt

    with pytest.raises(InterruptedRunError, match="The best so far"):
        race(task, models, out=tmp_path / "cut", learning_rate=0.05, observer=stop, **QUICK)
    usable = Tuned.load(tmp_path / "cut" / "winner", allow_code=True)
    assert len(usable.predict(list(task.test.inputs))) == len(task.test)
    forget()
    resumed = race(task, models, out=tmp_path / "cut", learning_rate=0.05, **QUICK)
    assert resumed.winner == whole.winner
    seen = {(look.arm, look.rung): look.metric for look in whole.looks}
    assert {(look.arm, look.rung): look.metric for look in resumed.looks} == seen


def test_ctrl_c_in_the_middle_of_training_puts_no_arm_out(task: Task, networks: Path, tmp_path: Path) -> None:
    models = names(networks, "width=8", "stops=true")
    with pytest.raises(InterruptedRunError, match="Run the same command again"):
        race(task, models, out=tmp_path / "run", **QUICK)
    found = race(task, models, out=tmp_path / "run", **QUICK)
    assert not any(look.failure for look in found.looks)


def test_a_model_that_breaks_down_is_out_and_the_race_goes_on(task: Task, networks: Path, tmp_path: Path) -> None:
    models = names(networks, "broken=true", "width=32")
    found = race(task, models, out=tmp_path / "run", **QUICK)
    assert found.winner.model == models[1]
    assert "DivergedError" in found.order[-1].failure


def test_a_budget_is_kept(task: Task, networks: Path, tmp_path: Path) -> None:
    models = names(networks, *(f"width={8 + seed}&seed={seed}" for seed in range(6)))
    options = {**QUICK, "steps": 100_000}
    found = race(task, models, budget=8, out=tmp_path / "run", **options)
    assert found.steps < 100_000
    assert sum(found.seconds.values()) < 8 * 1.5
    assert (tmp_path / "run" / "winner" / "tuning.json").is_file()


def test_limits_choose_who_may_race(task: Task, networks: Path, tmp_path: Path) -> None:
    models = names(networks, "width=8", "width=64")
    assert race(task, models, out=tmp_path / "run", max_params=1000, **QUICK).winner.model == models[0]
    with pytest.raises(InputError, match="none of 2 keeps the limits"):
        race(task, models, out=tmp_path / "none", max_params=1, **QUICK)


def test_a_folder_of_another_race_is_left_alone(task: Task, networks: Path, tmp_path: Path) -> None:
    models = names(networks, "width=8")
    race(task, models, out=tmp_path / "run", **QUICK)
    with pytest.raises(RunError, match="another race"):
        race(task, models, out=tmp_path / "run", **{**QUICK, "steps": 30})
    anew = race(task, models, out=tmp_path / "run", overwrite=True, **{**QUICK, "steps": 30})
    assert anew.steps == 30
    with pytest.raises(InputError, match="holds no run to go on with"):
        race(task, models, out=tmp_path / "other", resume=True, **QUICK)


def test_what_the_folder_names_does_not_race(task: Task, networks: Path, tmp_path: Path) -> None:
    first, second = names(networks, "width=8", "width=16")
    race(task, first, out=tmp_path / "run", **QUICK)
    (tmp_path / "run" / "race.jsonl").unlink()
    shutil.rmtree(tmp_path / "run" / "arms")
    assert [one.model for one in race(task, second, out=tmp_path / "run", **QUICK).order] == [second]
    file = tmp_path / "run" / "race.jsonl"
    touched = tmp_path / "executed"
    stranger = f"python:{networks}:os.system?command=touch {touched}"
    start, *rest = file.read_text().splitlines()
    planted = json.loads(start)
    planted["field"]["models"] = [stranger]
    file.write_text("\n".join([json.dumps(planted), *rest]) + "\n")
    with pytest.raises(RunError, match="damaged or of another race"):
        race(task, second, out=tmp_path / "run", **QUICK)
    assert not touched.exists()


@pytest.mark.parametrize("kind", ["multilabel", "regression"])
def test_other_kinds(networks: Path, tmp_path: Path, kind: str) -> None:
    draw = np.random.default_rng(1)
    inputs = draw.normal(size=(300, 6)).astype(np.float32)
    targets = inputs[:, :2] @ np.ones((2, 2)) + inputs[:, 2:4]
    if kind == "multilabel":
        targets = (targets > 0).astype(int)
    task = Task.from_arrays(inputs, targets, kind=kind, name=kind)
    found = race(task, names(networks, "width=4", "width=32"), out=tmp_path / "run", refit=True, **QUICK)
    assert found.tuned is not None
    assert found.tuned.metric("test").value > 0.2


def test_networks_in_memory_race(networks: Path, task: Task) -> None:
    from hubscout.hubs.python_callable import find_function

    make = find_function(f"{networks}:make")
    modules = {"wide": make(width=64), "narrow": make(width=2)}
    inputs = np.concatenate([np.asarray(part.inputs) for part in task.splits.values()])
    labels = np.concatenate([part.targets for part in task.splits.values()])
    found = race((inputs, labels), modules, learning_rate=0.05, **QUICK)
    assert found.winner.model == "memory:wide"
    assert found.tuned is not None
    assert found.tuned.model == "memory:wide"
