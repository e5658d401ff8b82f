"""The models of the shared folder, as the experiments open them; and their untrained twins."""

from __future__ import annotations

import os
import runpy
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from hubscout.tasks import Task

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"


@pytest.fixture
def shared_hub(monkeypatch: pytest.MonkeyPatch) -> dict:
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    return runpy.run_path(str(EXPERIMENTS / "shared_hub.py"))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> dict:
    """What `experiments/teaching/run.py` has."""
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    monkeypatch.syspath_prepend(str(EXPERIMENTS / "teaching"))
    return runpy.run_path(str(EXPERIMENTS / "teaching" / "run.py"))


def network() -> nn.Sequential:
    """Forty layers deep: features that vanish or overflow on the way would show."""
    layers = [nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(40)]
    return nn.Sequential(nn.Conv2d(3, 8, 3), *layers, nn.Flatten(), nn.Linear(8 * 36, 5)).eval()


def test_an_untrained_network_has_forgotten_everything_is_always_the_same_and_still_tells_inputs_apart(
    shared_hub: dict,
) -> None:
    x, before = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.random.get_rng_state()
    trained, other = network(), network()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
        other[1][1].running_mean.fill_(7.0)
        expected = trained(x)
        found = [shared_hub["untrained"](each)(x) for each in (trained, other)]
    torch.testing.assert_close(found[0], found[1])
    assert (found[0] - expected).abs().max() > 0.01
    assert 1e-3 < found[0].abs().mean() < 1e3
    assert (found[0].std(dim=0) > 1e-5).all()
    torch.random.set_rng_state(before)
    shared_hub["untrained"](trained)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_teaching_plans_what_fits_and_has_a_line_for_it(run: dict) -> None:
    table = runpy.run_path(str(EXPERIMENTS / "teaching" / "table.py"))
    methods = run["METHODS"]
    plan = run["Plan"]({record["key"]: record for record in table["RECORDS"]}, list(run["CASES"]), list(methods))
    assert len(plan.pairs) == len(set(plan.pairs))
    assert all(run["fits"](*pair) for pair in plan.pairs)
    assert {method for _, method in plan.pairs} <= {*table["METHODS"], *table["NO_KNOBS"]}
    assert set(table["METHODS"]) <= set(methods)
    assert all(method["same_as"] in methods for method in methods.values() if "same_as" in method)


def test_what_is_explored_is_judged_nowhere(run: dict) -> None:
    explore = runpy.run_path(str(EXPERIMENTS / "teaching" / "explore.py"))
    plan = run["Plan"]({}, list(run["CASES"]), list(run["METHODS"]))
    judged = {case for case, _ in plan.pairs}
    explorations = [explore[name] for name in ("FIRST", "SECOND", "THIRD", "FOURTH", "FIFTH")]
    for exploration in explorations:
        assert not judged & {case.removesuffix("/unused") for case in exploration.cases}
        assert not {run["SEARCH_SEED"], *run["SEEDS"], *run["MORE_SEEDS"]} & set(exploration.seeds)
        assert set(exploration.cases) <= set(run["CASES"])
    assert len({seed for one in explorations for seed in one.seeds}) == sum(len(one.seeds) for one in explorations)
    settings = [run["Setting"](*values) for values in explore["FIFTH"].settings(run["fits"])]
    records = [{**asdict(one), "key": one.key, "validation": 0.5, "test": 0.5} for one in settings]
    for record in records:
        if record["method"] == "crossed, 6C, labels":
            record["validation"] += 0.02
        if record["method"] == "crossed, 6C":  # better in the mean, and below fine-tuning somewhere
            record["validation"] += 0.1 if record["case"].startswith("pets") else -0.015
        if record["method"] == "crossed, 3C, rising" and record["case"].startswith("cr-"):  # by one case alone
            record["validation"] += 0.3
    assert explore["choose"](records, explore["FIFTH"])["default"] == "crossed, 6C, labels"
    # What was chosen is what is judged, without a choice by hand.
    plan = run["Plan"]({record["key"]: record for record in records}, list(run["CASES"]), list(run["METHODS"]))
    judged = {method for case, method in plan.pairs if case == "pets-370/mobilenetv2_coral_in1k"}
    assert {"crossed, 6C, labels", "crossed, 6C, labels, no knobs"} <= judged


def test_what_costs_more_passes_is_chosen_apart(run: dict) -> None:
    explore = runpy.run_path(str(EXPERIMENTS / "teaching" / "explore.py"))
    settings = [run["Setting"](*values) for values in explore["SECOND"].settings(run["fits"])]
    records = [{**asdict(one), "key": one.key, "validation": 0.5, "test": 0.5} for one in settings]
    for record in records:
        record["validation"] += {"features 0.1": 0.02, "b-tuning, C, 16 views": 0.2}.get(record["method"], 0.0)
    found = explore["choose"](records, explore["SECOND"])
    assert (found["default"], found["with views"]) == ("features 0.1", "b-tuning, C, 16 views")


def test_a_worker_stays_with_the_cases_that_it_knows_and_new_ones_spread(run: dict) -> None:
    ready = [run["Setting"](case, "fine-tune", 0.1, None, seed) for case in ("one", "two") for seed in (1, 2)]
    crew = [SimpleNamespace(cases=cases) for cases in ({"two"}, {"one"}, {"one"}, set())]
    found = [run["next_setting"](worker, crew, ready) for worker in crew]
    assert [(one.case, one.seed) for one in found] == [("two", 1), ("one", 1), ("one", 1), ("two", 1)]


def test_a_run_whose_process_is_killed_has_failed_and_the_next_one_runs(run: dict) -> None:
    worker, setting = run["Worker"](), run["Setting"]("one", "fine-tune", 0.1, None, 1)
    for function, told in ((os.abort, "BrokenProcessPool"), (dict, "")):
        worker.setting = setting
        worker.cases.add("one")
        record = worker.end(worker.pool.submit(function))
        assert record.get("failed", "").startswith(told)
        assert bool(worker.cases) == (told == "")
    worker.pool.shutdown()


def test_a_case_that_is_validated_on_unused_samples_has_all_of_them_and_no_other(
    run: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.arange(100.0)[:, None] * np.ones(3)
    whole = Task.from_arrays(rows[:70], ["cat", "dog"] * 35, validation=(rows[70:80], ["cat", "dog"] * 5))
    monkeypatch.setitem(run["open_task"].__wrapped__.__globals__, "open_set", lambda name: whole)
    task = run["open_task"].__wrapped__("any", 20, True)
    used, unused = ({float(one[0]) for one in task.splits[part].inputs} for part in ("train", "validation"))
    assert len(used) == 20
    assert unused == {float(one[0]) for one in whole.train.inputs} - used
    assert task.fingerprint != whole.subset(20, seed=0).fingerprint


def test_a_varied_method_of_teaching_waits_for_the_search_of_the_method_it_varies(run: dict) -> None:
    searched = run["search"]("pets-370/mobilenetv2_coral_in1k", "b-tuning")
    pairs = (
        ("pets-370/mobilenetv2_coral_in1k", "b-tuning, uniform"),
        ("pets-1110/mobilenetv2_coral_in1k", "b-tuning"),  # few samples stand for a medium number
    )
    done = {one.key: {**asdict(one), "key": one.key, "validation": one.learning_rate} for one in searched}
    chosen = max(searched, key=lambda one: one.learning_rate)
    for case, method in pairs:
        assert list(run["Plan"]({}, [case], [method]).ready()) == searched
        fresh = list(run["Plan"](done, [case], [method]).ready())
        assert [one.seed for one in fresh] == [1, 2, 3, 4, 5]
        assert {(one.case, one.method, one.learning_rate) for one in fresh} == {(case, method, chosen.learning_rate)}
