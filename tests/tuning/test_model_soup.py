"""Soups: the average of several runs, by hand."""

from __future__ import annotations

import copy
import json
import sys
import time
from collections import Counter

import numpy as np
import pytest
import torch
from tuning_networks import convolutional, image_task, make_task, perceptron, weights_of

from hubscout.errors import InputError
from hubscout.report.sections.provenance import repeat_command
from hubscout.tasks.task_metrics import Outcome
from hubscout.tuning import Tuned, soup, tune

QUICK = {"epochs": 2, "batch_size": 16, "bootstrap_resamples": 10, "device": "cpu", "learning_rate": 1e-3}


def runs_of(task, build=perceptron, seeds=(0, 1, 2), **options):
    return [tune(task, build(0), seed=seed, **QUICK | options) for seed in seeds]


def greedy_by_hand(runs, task):
    """Which runs go in, from predictions of averaged copies, independently of the code under test."""

    def metric(members):
        made = copy.deepcopy(runs[members[0]])
        for part in ("backbone.module", "head"):
            modules = [torch.nn.Module.state_dict(_get(runs[k], part)) for k in members]
            state = {name: sum(m[name] for m in modules) / len(modules) for name in modules[0]}
            _get(made, part).load_state_dict(state)
        predicted = made.predict(task.validation.inputs).values
        return Outcome(task.kind, predicted, task.validation.targets, target_names=task.target_names).primary

    order = sorted(range(len(runs)), key=lambda k: -metric([k]))
    chosen = order[:1]
    for candidate in order[1:]:
        if metric([*chosen, candidate]) >= metric(chosen):
            chosen.append(candidate)
    return chosen


def _get(tuned, path):
    for name in path.split("."):
        tuned = getattr(tuned, name)
    return tuned


def test_a_greedy_soup_is_the_average_of_those_that_do_not_make_it_worse(task):
    runs = runs_of(task, epochs=8, learning_rate=1e-2)
    made = soup(task, runs)
    chosen = greedy_by_hand(runs, task)
    states = [weights_of(runs[k].backbone) for k in chosen]
    for name, value in weights_of(made.backbone).items():
        torch.testing.assert_close(value, sum(state[name] for state in states) / len(states))
    assert made.metric("validation").value >= max(run.metric("validation").value for run in runs)
    assert made.notes[0].startswith(f"Soup of {len(chosen)} of 3 runs")
    assert made.method == "soup"


def test_a_run_that_spoils_the_average_is_left_out(task):
    good, other = runs_of(task, seeds=(0, 1), epochs=20, learning_rate=1e-2)
    bad = copy.deepcopy(other)
    with torch.no_grad():
        bad.head.weight.mul_(-50)
    made = soup(task, [bad, good])
    assert "Soup of 1 of 2 runs (run 2)" in made.notes[0]
    assert "Left out, since validation fell with them: run 1." in made.notes[0]
    for name, value in weights_of(good.backbone).items():
        assert torch.equal(weights_of(made.backbone)[name], value)


def test_the_details_of_a_soup_are_its_own(task):
    first, other = runs_of(task, seeds=(0, 1), epochs=20, learning_rate=1e-2)
    for run in (first, other):
        with torch.no_grad():
            run.head.weight.mul_(-1)
    made = soup(task, [first, other])
    predicted = made.predict(task.test.inputs).values.argmax(axis=1)
    told = {(one.true, one.predicted): one.count for one in made.evaluation.confusions}
    assert told == Counter(zip(task.test.targets.tolist(), predicted.tolist(), strict=True))
    assert not first.warning
    assert "worse than guessing" in made.warning


def test_numbers_are_averaged_in_their_own_units():
    task = make_task("regression")
    (run,) = runs_of(task, seeds=(0,))
    made = soup(task, [run, run])
    assert "2 of 2" in made.notes[0]
    expected = run.head.weight.detach().numpy() * run.loss.scale[:, None]
    np.testing.assert_allclose(made.head.weight.detach().numpy(), expected, rtol=1e-5)
    inputs = task.test.inputs
    np.testing.assert_allclose(made.predict(inputs).values, run.predict(inputs).values, rtol=1e-5)


def test_counts_of_batch_norms_are_kept_and_statistics_averaged():
    task = make_task(shape=(3, 8, 8))
    made = soup(task, runs_of(task, convolutional, seeds=(0, 1)))
    assert weights_of(made.backbone)["body.1.num_batches_tracked"].dtype == torch.int64


def test_saved_runs_make_a_soup_that_is_saved(tmp_path):
    task = image_task()
    for seed in (0, 1):
        tune(task, "python:tuning_networks:images", seed=seed, out=tmp_path / str(seed), **QUICK)
    folders = [tmp_path / "0", tmp_path / "1"]
    made = soup(task, folders, out=tmp_path / "soup", allow_code=True)
    again = Tuned.load(tmp_path / "soup", allow_code=True)
    inputs = task.test.inputs
    np.testing.assert_allclose(again.predict(inputs).values, made.predict(inputs).values, atol=1e-6)
    assert json.loads((tmp_path / "soup" / "tuning.json").read_text())["method"] == "soup"


def test_what_has_no_average_is_refused(task):
    (first,) = runs_of(task, seeds=(0,))
    with pytest.raises(InputError, match=r"at least two"):
        soup(task, [first])
    with pytest.raises(InputError, match=r"different networks"):
        soup(task, [first, tune(task, perceptron(0, width=24), **QUICK)])
    with pytest.raises(InputError, match=r"other targets"):
        soup(make_task("regression"), [first, first])


def test_a_soup_says_what_made_it_and_not_what_made_its_first_run(monkeypatch):
    task = make_task()
    monkeypatch.setattr(sys, "argv", ["hubscout", "tune", "data/"])
    runs = runs_of(task, seeds=(0, 1))
    monkeypatch.setattr(sys, "argv", ["hubscout", "soup", "data/", "a/", "b/"])
    began = time.perf_counter()
    made = soup(task, runs)
    assert made.seconds <= time.perf_counter() - began
    assert repeat_command(made.environment) == "hubscout soup data/ a/ b/"
