"""What `tune` does where nobody asks for a method."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_kinds import WordBackbone, sentences
from test_rates import FIRST, large_task, same_weights
from tuning_networks import make_task, perceptron

from hubscout.errors import CheckpointError, DivergedError, InputError, InterruptedRunError, OtherRunError
from hubscout.runs.events import Progress
from hubscout.tasks import Task
from hubscout.tuning import tune
from hubscout.tuning.frozen_features import folds_of_samples
from hubscout.tuning.loop import Loop
from hubscout.tuning.rates import RateChoice

OPEN = {"steps": 240, "batch_size": 16, "optimizer": "sgd", "progress": False}
QUICK = {"epochs": 1, "batch_size": 16, "progress": False}


def blind(width: int = 64):
    """A network whose frozen features are all the same up to their size, and that learns fast."""
    model = perceptron(0, width=width)
    with torch.no_grad():
        weight = model.module.body[-1].weight
        weight.copy_(weight[:1].repeat(width, 1))
    return model


@pytest.mark.parametrize(
    ("model", "teacher", "why"),
    [
        (lambda: perceptron(0, width=64), lambda: perceptron(1, width=4), "the linear probe of the best teacher has"),
        (blind, lambda: perceptron(1, width=64), "the linear probe of its frozen features had"),
    ],
)
def test_numbers_leave_their_teachers_where_a_short_run_is_past_them_or_past_the_model_itself(model, teacher, why):
    task = large_task("regression")
    left = tune(task, model(), [teacher()], **OPEN)
    (note,) = [note for note in left.notes if "Short runs" in note]
    assert note.startswith("After 36 steps without teachers")
    assert why in note
    assert (left.method, left.teachers) == ("fine-tune", ())
    assert not [note for note in left.notes if "LogME" in note]  # nobody has taught
    assert set(left.tuning_run().probes) == {"model"}
    assert same_weights(left, tune(task, model(), method="fine-tune", **OPEN))
    followed = tune(task, model(), [teacher()], "b-tuning", **OPEN)
    assert (followed.method, len(followed.teachers)) == ("b-tuning", 1)


def test_numbers_follow_teachers_that_know_more_as_if_that_had_been_asked_for():
    task, model = large_task("regression"), perceptron(0, width=16)
    open_run = tune(task, model, [perceptron(1, width=64)], **OPEN)
    assert (open_run.method, len(open_run.teachers)) == ("b-tuning", 1)
    assert [note for note in open_run.notes if note.startswith("The teachers stay: after 36 steps without teachers")]
    assert same_weights(open_run, tune(task, perceptron(0, width=16), [perceptron(1, width=64)], "b-tuning", **OPEN))


def test_a_run_that_left_its_teachers_is_resumed_without_them_and_is_not_that_of_who_insists(tmp_path):
    def run(out, method=None, **options):
        return tune(
            large_task("regression"), perceptron(0, width=64), [perceptron(1, width=4)], method, out=out, **options
        )

    def stop(event: object) -> None:
        if isinstance(event, Progress) and event.step >= 150:
            raise KeyboardInterrupt

    whole = run(tmp_path / "whole", **OPEN)
    with pytest.raises((KeyboardInterrupt, InterruptedRunError)):
        run(tmp_path / "stopped", observer=stop, **OPEN)
    resumed = run(tmp_path / "stopped", **OPEN)
    assert same_weights(whole, resumed)
    assert not [note for note in resumed.notes if "Too slow" in note]
    assert (resumed.method, resumed.teachers) == ("fine-tune", ())
    again = run(tmp_path / "whole", **OPEN)
    assert again.teachers == ()
    assert same_weights(whole, again)
    with pytest.raises(CheckpointError):
        run(tmp_path / "whole", "b-tuning", **OPEN)


def test_teachers_of_numbers_are_followed_where_no_rate_is_searched_and_that_is_said():
    tuned = tune(make_task("regression"), perceptron(0), [perceptron(1)], **QUICK)
    assert tuned.teachers == ("small/perceptron-1-16",)
    assert [note for note in tuned.notes if note.startswith("There was no search for a learning rate, in which")]


def test_tags_leave_their_teachers_unless_somebody_asks():
    left = tune(sentences(), WordBackbone(0), [WordBackbone(1)], **QUICK)
    assert (left.method, left.teachers) == ("fine-tune", ())
    assert [note for note in left.notes if "method='b-tuning' follows them all the same" in note]
    assert tune(sentences(), WordBackbone(0), [WordBackbone(1)], "b-tuning", **QUICK).teachers == ("words/1",)


@pytest.mark.parametrize(
    ("kind", "method"), [("classification", "b-tuning"), ("multilabel", "fine-tune"), ("regression", "fine-tune")]
)
def test_without_teachers_classes_follow_their_labels(kind, method):
    found = tune(make_task(kind), perceptron(0), **QUICK)
    assert found.method == method
    assert same_weights(found, tune(make_task(kind), perceptron(0), method=method, **QUICK))


@pytest.mark.parametrize("changes", [{"steps": 2, "epochs": None, "batch_size": 8}, {"posterior_folds": 1}])
def test_fine_tuning_where_a_pass_is_not_worth_it_or_there_are_to_be_no_folds(changes):
    tuned = tune(make_task(n=96), perceptron(0), **{**QUICK, **changes})
    assert tuned.method == "fine-tune"
    assert [note for note in tuned.notes if note.startswith("Not by B-Tuning towards the labels but by fine-tuning")]


def test_fine_tuning_where_samples_cannot_be_cut_into_folds():
    task = make_task()
    once = np.flatnonzero(task.train.targets == 0)
    once = np.sort(np.concatenate([once, *(np.flatnonzero(task.train.targets == k)[:1] for k in (1, 2))]))
    few = Task("few", task.kind, "array", task.target_names, {**task.splits, "train": task.train.take(once)}, "few")
    assert folds_of_samples(few, 5) is None
    assert tune(few, perceptron(0), **QUICK).method == "fine-tune"


def test_teachers_of_numbers_stay_where_the_short_run_without_them_diverges(monkeypatch):
    from hubscout.tuning import default_method

    ran = default_method.short_run

    def diverged(run, rate):
        outcome = ran(run, rate)
        return replace(outcome, predicted=np.full_like(outcome.predicted, np.nan))

    monkeypatch.setattr(default_method, "short_run", diverged)
    tuned = tune(large_task("regression"), perceptron(0, width=64), [perceptron(1, width=4)], **OPEN)
    assert tuned.method == "b-tuning"
    assert "The teachers stay: 36 steps without them diverge." in tuned.notes


@pytest.fixture
def diverges_once(monkeypatch):
    """The first run diverges; a line for each."""
    run, times = Loop.run, []

    def first_diverges(loop, *given, **options):
        times.append(1)
        if len(times) == 1:
            raise DivergedError("The loss became nan.")
        return run(loop, *given, **options)

    monkeypatch.setattr(Loop, "run", first_diverges)
    return times


@pytest.mark.parametrize("asked", [None, "b-tuning"])
def test_a_run_that_starts_anew_below_the_rate_that_was_found_keeps_its_method(asked, diverges_once, monkeypatch):
    from hubscout.tuning import tuning_run

    chosen = RateChoice(FIRST, "Short runs.")
    monkeypatch.setattr(tuning_run, "search_rate", lambda run, untaught: chosen)
    tuned = tune(large_task(), perceptron(0), method=asked, **OPEN)
    assert [note for note in tuned.notes if "restarts with" in note]
    assert (len(diverges_once), tuned.method) == (2, "b-tuning")
    assert [note for note in tuned.notes if note.startswith("No teachers: the model follows the labels")]


def test_numbers_that_left_their_teachers_start_anew_without_them(diverges_once):
    tuned = tune(large_task("regression"), perceptron(0, width=64), [perceptron(1, width=4)], **OPEN)
    assert (len(diverges_once), tuned.method, tuned.teachers) == (2, "fine-tune", ())


def test_a_trade_off_is_refused_where_there_is_nothing_to_weigh():
    with pytest.raises(InputError, match="trade_off=2 weighs what a method follows"):
        tune(make_task("regression"), perceptron(0), trade_off=2.0, **QUICK)
    assert tune(make_task(), perceptron(0), trade_off=2.0, **QUICK).method == "b-tuning"


@pytest.mark.parametrize(
    ("given", "before"),
    [
        (lambda: (make_task(), perceptron(0)), "fine-tune"),
        (lambda: (sentences(), WordBackbone(0), [WordBackbone(1)]), "b-tuning"),
    ],
)
def test_a_run_of_another_default_says_which_method_goes_on_with_it(given, before, tmp_path):
    first = tune(*given(), method=before, out=tmp_path, **QUICK)
    with pytest.raises(OtherRunError, match=f"what is taken then has changed: method='{before}'"):
        tune(*given(), out=tmp_path, **QUICK)
    assert same_weights(first, tune(*given(), method=before, out=tmp_path, **QUICK))
    with pytest.raises(OtherRunError, match="Give the same arguments to resume it, or"):
        tune(*given(), method=before, out=tmp_path, **{**QUICK, "epochs": 2})


def test_the_probe_of_a_backbone_that_stays_is_fine_tuning():
    assert tune(make_task(), perceptron(0), freeze="all", **QUICK).method == "fine-tune"
