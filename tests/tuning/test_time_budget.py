"""A budget of time: the schedule is planned from the pace of the first steps, and ends with the time."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace

import pytest
from clocked_networks import CLOCK, Evenly, heavy, slow
from tuning_networks import make_task, perceptron

from hubscout.errors import InputError
from hubscout.runs.events import Event, Finished, Message, Progress, Validated
from hubscout.tasks.task_metrics import Outcome
from hubscout.tuning import TuningArguments, tune
from hubscout.tuning.divergence import LossWatch

OPTIONS = {"batch_size": 16, "method": "fine-tune", "learning_rate": 1e-3, "bootstrap_resamples": 10, "workers": 0}


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    CLOCK.now = 1000.0
    monkeypatch.setattr(time, "perf_counter", CLOCK)


class Killed(BaseException):
    pass


@pytest.mark.parametrize(("first", "later"), [(0.01, 0.01), (0.03, 0.01), (0.01, 0.03)])
def test_a_run_ends_with_its_budget_even_where_its_pace_changes(first, later):
    began = CLOCK.now
    tuned = tune(make_task(n=96), slow(first, later, after=15), budget=4, **OPTIONS)
    assert 0.95 * 4 < CLOCK.now - began < 1.05 * 4
    assert tuned.arguments.schedule == "wsd"
    (plan,) = [note for note in tuned.notes if note.startswith("Budget of 4 s")]
    assert "steps" in plan
    assert "falling learning rate" in plan


def test_a_resumed_run_counts_the_time_that_was_spent(tmp_path):
    def killer(event):
        if isinstance(event, Validated) and CLOCK.now - began > 1.5:
            raise Killed

    began = CLOCK.now
    with pytest.raises(Killed):
        tune(make_task(), slow(0.01), budget=4, out=tmp_path, observer=killer, **OPTIONS)
    began = CLOCK.now
    resumed = tune(make_task(), slow(0.01), budget=4, out=tmp_path, **OPTIONS)
    assert any("Resumed" in note for note in resumed.notes)
    # The last checkpoint is that of the validation before: what came after it is not known to have been spent.
    assert 2.3 < CLOCK.now - began < 2.75
    again = CLOCK.now
    finished = tune(make_task(), slow(0.01), budget=4, out=tmp_path, **OPTIONS)
    assert CLOCK.now - again < 0.2
    assert finished.steps == resumed.steps


def test_a_resumed_run_that_diverges_does_not_have_its_budget_anew(tmp_path, monkeypatch):
    def killer(event):
        if isinstance(event, Validated) and CLOCK.now - 1000 > 2.5:
            raise Killed

    with pytest.raises(Killed):
        tune(make_task(), slow(0.01), budget=4, out=tmp_path, observer=killer, **OPTIONS)
    began, wrong = CLOCK.now, iter(["it went wrong"])
    monkeypatch.setattr(LossWatch, "exploded", lambda watch, steps: next(wrong, ""))
    tuned = tune(make_task(), slow(0.01), budget=4, out=tmp_path, **OPTIONS)
    assert any("restarts with" in note for note in tuned.notes)
    assert CLOCK.now - began < 2.0


def test_a_run_that_its_time_cut_short_is_over_and_says_how_many_steps_it_made(tmp_path):
    def run():
        return tune(make_task(n=480), slow(0.01, 0.05, after=380), budget=4, out=tmp_path, **OPTIONS)

    first = run()
    (plan,) = [note for note in first.notes if note.startswith("Budget of 4 s")]
    assert f" {first.steps} steps" not in plan
    (made,) = [note for note in first.notes if "were made" in note]
    assert made.startswith(f"{first.steps} steps ({first.steps / 30:.3g} epochs)")
    assert run().steps == first.steps


def test_a_run_of_one_step_is_over_as_well(tmp_path):
    first, again = (tune(make_task(), slow(0.5), budget=1, out=tmp_path, **OPTIONS) for _ in range(2))
    assert again.steps == first.steps == 1


def test_the_last_fifth_of_the_steps_has_a_falling_rate():
    rates = {}

    def observer(event):
        if isinstance(event, Progress):
            rates[event.step] = event.learning_rate

    tuned = tune(make_task(), slow(0.01), budget=3, observer=observer, warmup=0.1, log_every_steps=1, **OPTIONS)
    highest = [step for step, rate in rates.items() if rate == pytest.approx(1e-3)]
    assert rates[1] < 1e-3
    assert 0.6 < max(highest) / tuned.steps < 0.9
    assert rates[tuned.steps] < 2e-4


def test_a_search_for_a_rate_is_part_of_the_budget():
    began = CLOCK.now
    tuned = tune(make_task(), slow(0.005), budget=5, **{**OPTIONS, "learning_rate": None})
    assert 0.95 * 5 < CLOCK.now - began < 1.05 * 5
    assert any("Short runs of" in note for note in tuned.notes)


def test_without_time_for_a_search_beside_them_all_steps_are_made_at_the_default_rate():
    """There is time for some 240: with three short runs of 30 too few would be left to search for."""
    tuned = tune(make_task(), slow(0.01), budget=2.6, **{**OPTIONS, "learning_rate": None})
    assert 200 < tuned.steps < 290
    assert not any("Short runs of" in note for note in tuned.notes)
    assert any("The run is too short to compare some: the default is taken" in note for note in tuned.notes)


def test_a_search_that_takes_longer_than_was_planned_is_cut_short():
    began = CLOCK.now
    tuned = tune(make_task(), slow(0.005, 0.04, after=30), budget=5, **{**OPTIONS, "learning_rate": None})
    assert 0.9 * 5 < CLOCK.now - began < 1.1 * 5
    (told,) = [note for note in tuned.notes if "Short runs of" in note]
    assert "There is no time to try others." in told
    assert tuned.steps > 30


@pytest.mark.parametrize(("budget", "weighed"), [(3.6, False), (8, True)])
def test_teachers_are_weighed_where_there_is_time_for_one_more_short_run(budget, weighed):
    """Of 0.01 s per step: the search alone takes 300 steps and more, and 320 with a short run without teachers."""
    began = CLOCK.now
    options = {**OPTIONS, "learning_rate": None, "method": None}
    tuned = tune(make_task("regression"), slow(0.01), [perceptron(1)], budget=budget, **options)
    assert 0.9 * budget < CLOCK.now - began < 1.1 * budget
    (note,) = [note for note in tuned.notes if "Short runs of" in note]
    told = "No short run weighs the teachers, since there is no time for it: they are followed. Short runs"
    assert note.startswith(told) != weighed
    assert ("steps without teachers the model has" in note) == weighed


def test_too_short_a_budget_still_gives_a_model():
    tuned = tune(make_task(), slow(0.01), budget="10ms", **OPTIONS)
    assert tuned.steps >= 1
    assert tuned.metrics


def test_what_a_budget_does_not_go_with():
    assert TuningArguments(budget="20min").budget == 1200
    with pytest.raises(InputError, match=r"steps=10 and budget=60.*one of them"):
        TuningArguments(budget=60, steps=10)
    with pytest.raises(InputError, match=r"epochs=5 and budget=60.*one of them"):
        tune("nowhere/", "timm/resnet18", budget=60, epochs=5)
    with pytest.raises(InputError, match=r"epochs=5 and steps=10.*one of them"):
        tune("nowhere/", "timm/resnet18", epochs=5, steps=10)
    with pytest.raises(InputError, match=r"schedule='cosine'.*'wsd'"):
        TuningArguments(budget=60, schedule="cosine")
    with pytest.raises(InputError, match=r"budget must be a time"):
        TuningArguments(budget="soon")


def test_the_end_is_told_once_with_the_time_of_all_steps():
    told: list[Event] = []
    tuned = tune(make_task(), slow(0.01), budget=4, observer=told.append, **OPTIONS)
    ends = [event for event in told if isinstance(event, Finished) and event.steps is not None]
    assert [end.steps for end in ends] == [tuned.steps]
    assert ends[0].seconds >= 0.01 * tuned.steps


def test_what_went_by_before_the_call_is_part_of_the_budget_where_it_is_said():
    began = CLOCK.now - 3
    tune(make_task(), slow(0.01), budget=5, began=began, **OPTIONS)
    assert 0.95 * 5 < CLOCK.now - began < 1.05 * 5


def test_five_slow_steps_are_not_made_to_see_how_slow_they_are():
    """A step takes 4.8 of 30 s: five of them would be most of the budget."""
    began = CLOCK.now
    tuned = tune(make_task(n=96), heavy(0.1), budget=30, **OPTIONS)
    assert CLOCK.now - began < 1.2 * 30
    assert tuned.steps >= 2


@pytest.mark.parametrize("rate", [None, 1e-3])
def test_a_long_validation_is_planned_for(rate):
    """Of 8 s each, with 2 s for a step: the search alone would have three of them."""
    task = make_task(n=96)
    task = replace(task, splits={**task.splits, "validation": make_task(n=400).train, "test": task.test.take(range(8))})
    began = CLOCK.now
    tune(task, heavy(0.02), budget=60, **{**OPTIONS, "learning_rate": rate, "batch_size": 32})
    assert 0.6 * 60 < CLOCK.now - began < 1.1 * 60


def test_a_linear_probe_that_takes_longer_than_the_budget_is_left_out_and_that_is_said():
    def run(**options):
        began = CLOCK.now
        options = {**OPTIONS, "learning_rate": None, "budget": 30, **options}
        task = make_task(n=4800)
        few = {name: task.splits[name].take(range(4)) for name in ("validation", "test")}
        tuned = tune(replace(task, splits={**task.splits, **few}), heavy(0.02), **options)
        return tuned, CLOCK.now - began

    tuned, seconds = run(budget=1, batch_size=2)
    assert seconds < 1.1
    assert any("linear probe is not measured" in note for note in tuned.notes)
    assert not tuned.tuning_run().probes
    asked, seconds = run(linear_probe=True)
    assert asked.tuning_run().probes
    assert seconds > 2 * 30
    (short,) = [note for note in asked.notes if "budget is too short" in note]
    assert "about 1 min 40 s" in short


def test_what_the_cache_holds_of_one_split_does_not_make_a_linear_probe_look_short(tmp_path):
    """A pass over train takes 60 of 30 s; features of validation are there after the first run."""
    for _ in range(2):
        backbone = perceptron(0)
        backbone.module.body.insert(0, Evenly(0.02))
        began = CLOCK.now
        tuned = tune(make_task(n=3000), backbone, budget=30, cache=tmp_path, **{**OPTIONS, "learning_rate": None})
        assert CLOCK.now - began < 1.1 * 30
        assert any("linear probe is fitted on" in note for note in tuned.notes)


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_where_there_is_no_time_for_the_whole_linear_probe_it_is_fitted_on_some_of_train(kind):
    """A pass over train takes 48 of 30 s."""
    task, began = make_task(kind, n=4800), CLOCK.now
    tuned = tune(task, heavy(0.01), budget=30, **{**OPTIONS, "learning_rate": None})
    assert tuned.steps > 20
    assert 0.9 * 30 < CLOCK.now - began < 1.1 * 30
    (told,) = [note for note in tuned.notes if "linear probe is fitted on" in note]
    rows = int(re.search(r"on ([\d,]+) of 4,800 train samples", told)[1].replace(",", ""))
    assert 500 < rows < 2000
    whole = tune(task, perceptron(0), linear_probe=True, **{**OPTIONS, "learning_rate": None, "steps": 1})
    best = whole.tuning_run().probes["model"].metrics["validation"]
    assert tuned.metric("validation").value >= tuned.tuning_run().probes["model"].metric("validation")
    assert tuned.metric("validation").value > 0.9 * next(iter(best.values()))


def test_a_linear_probe_that_was_not_trained_says_nothing_of_what_it_would_have_followed(tmp_path):
    task = make_task(n=4800)
    options = {**OPTIONS, "method": "b-tuning", "learning_rate": None, "cache": tmp_path}
    trained = tune(task, heavy(0.02), steps=1, linear_probe=True, **options)
    assert [note for note in trained.notes if "follows the labels" in note]
    tuned = tune(task, heavy(0.02), budget=3, **options)
    assert tuned.steps == 0
    assert tuned.method == "b-tuning"
    assert not [note for note in tuned.notes if "follows the labels" in note]
    late = tune(task, heavy(0.02), budget=0.5, **options).notes[-1]
    assert re.match(r"The budget of 0.5 s was over before training could begin \([\d.]+ s had gone by\)", late)


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_where_there_is_no_time_for_training_the_result_is_a_linear_probe(kind, tmp_path):
    """A step takes 1 s, validation 0.7 s and a pass over train 96 s: 12 s are for a few steps, which teach nothing."""
    task, began = make_task(kind, n=4800), CLOCK.now
    tuned = tune(task, heavy(0.02), budget=12, out=tmp_path, **{**OPTIONS, "learning_rate": None})
    assert CLOCK.now - began < 1.1 * 12
    assert (tuned.steps, tuned.best_step) == (0, 0)
    (why,) = (note for note in tuned.notes if "the result is the linear probe of the frozen features" in note)
    assert re.match(r"Of the budget of 12 s, [\d.]+ s have gone by and [\d.]+ s are kept for measuring and saving", why)
    assert str(tuned).startswith(f"{tuned.model} on {tuned.task_name}, as a linear probe\n")
    assert not [note for note in tuned.notes if "steps" in note]
    probe = tuned.tuning_run().probes["model"].metric("validation")
    assert tuned.metric("validation").value == pytest.approx(probe)
    said = Outcome.of(task, task.validation, tuned.predict(list(task.validation.inputs)).values)
    assert said.primary == pytest.approx(tuned.metric("validation").value)
    assert tuned.metric("test").value > tuned.guess["test"] + 0.25
    record = json.loads((tmp_path / "tuning.json").read_text())
    assert record["steps"] == 0
    assert record["metrics"]["test"]


def test_features_that_teaching_has_asked_for_make_a_linear_probe_cheap(tmp_path):
    """Those of teacher and model take 19 of 15 s; the probe comes from them, whatever the time is."""
    options = {**OPTIONS, "method": "b-tuning", "learning_rate": None, "batch_size": 48, "cache": tmp_path}
    tuned = tune(make_task(n=480), heavy(0.02), teachers=[perceptron(1)], budget=15, **options)
    assert tuned.tuning_run().probes["model"].metric("validation") is not None
    assert not [note for note in tuned.notes if "of 480 train samples" in note]


def test_a_short_linear_probe_is_measured_within_the_budget():
    began = CLOCK.now
    tuned = tune(make_task(n=96), heavy(0.002), budget=20, **{**OPTIONS, "learning_rate": None})
    assert tuned.tuning_run().probes
    assert 0.9 * 20 < CLOCK.now - began < 1.1 * 20


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("probe", [None, True])
def test_a_split_too_large_for_the_budget_is_measured_in_part_and_that_is_said(split, probe):
    """Of 80 s in 60; a linear probe that is asked for is measured on the same part."""
    task = make_task(n=96)
    task = replace(task, splits={**task.splits, split: make_task(n=4000, seed=1).train})
    began = CLOCK.now
    tuned = tune(task, heavy(0.02), budget=60, linear_probe=probe, **OPTIONS)
    assert 0.8 * 60 < CLOCK.now - began < 1.1 * 60
    (told,) = [note for note in tuned.notes if f"of 4,000 {split} samples" in note]
    assert tuned.sizes[split] < 1000
    assert f"{tuned.sizes[split]:,} of" in told


def test_features_of_a_part_of_test_are_not_those_of_the_first_samples_of_all(tmp_path):
    task = make_task(n=96)
    task = replace(task, splits={**task.splits, "test": make_task(n=2000, seed=1).train})

    def probed(**options):
        CLOCK.now = 1000.0  # as many samples each time: rounding does not take one of them
        tuned = tune(task, heavy(0.02), linear_probe=True, **{**OPTIONS, **options})
        return tuned.tuning_run().probes["model"].metrics["test"]

    short = probed(budget=40)
    assert short != probed(steps=2, cache=tmp_path)
    assert short == probed(budget=40, cache=tmp_path)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_a_run_that_is_resumed_after_its_time_measures_the_same_part(tmp_path, monkeypatch, split):
    task = make_task(n=96)
    task = replace(task, splits={**task.splits, split: make_task(n=4000, seed=1).train})

    def run(folder):
        CLOCK.now = 1000.0
        tuned = tune(task, heavy(0.02), budget=60, out=folder, **OPTIONS)
        return tuned.sizes[split], tuned.steps, tuned.metrics

    whole = run(tmp_path / "whole")
    assert whole[0] < 1000
    with monkeypatch.context() as patch:
        patch.setattr("hubscout.tuning.tuning_run.finish", killed_before)
        with pytest.raises(Killed):
            run(tmp_path / "killed")
    assert run(tmp_path / "killed") == whole


def test_a_run_that_is_resumed_is_measured_on_the_part_of_test_that_it_was_planned_with(tmp_path):
    """Half of the time has gone by before its first step: a quarter of the rest is for test."""
    task, heard = make_task(n=96), []
    task = replace(task, splits={**task.splits, "test": make_task(n=4000, seed=1).train})

    def listen(event):
        heard.append(event)
        if isinstance(event, Validated) and event.step > 10:
            raise Killed

    options = {"budget": 60, "out": tmp_path, **OPTIONS}
    with pytest.raises(Killed):
        tune(task, heavy(0.02), began=CLOCK.now - 30, observer=listen, **options)
    (planned,) = [one.text for one in heard if isinstance(one, Message) and "of 4,000 test samples" in one.text]
    resumed = tune(task, heavy(0.02), **options)
    assert any("Resumed" in note for note in resumed.notes)
    assert planned in resumed.notes


def killed_before(run):
    raise Killed
