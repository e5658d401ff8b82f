"""What `tune` does where nobody asks for a method."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_kinds import WordBackbone, sentences
from test_rates import FIRST, large_task, same_weights
from tuning_networks import make_task, perceptron

from hubscout.errors import DivergedError, InterruptedRunError, OtherRunError
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
    assert "Short runs of 36 steps gave" in note
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
    (note,) = [note for note in open_run.notes if "Short runs" in note]
    assert note.startswith("The teachers stay: after 36 steps without teachers")
    assert "Short runs of 36 steps with the teachers gave" in note
    assert same_weights(open_run, tune(task, perceptron(0, width=16), [perceptron(1, width=64)], "b-tuning", **OPEN))


def stop(event: object) -> None:
    if isinstance(event, Progress) and event.step >= 150:
        raise KeyboardInterrupt


def test_a_run_that_left_its_teachers_is_resumed_without_them_and_is_not_that_of_who_insists(tmp_path):
    def run(out, method=None, **options):
        return tune(
            large_task("regression"), perceptron(0, width=64), [perceptron(1, width=4)], method, out=out, **options
        )

    whole = run(tmp_path / "whole", **OPEN)
    with pytest.raises((KeyboardInterrupt, InterruptedRunError)):
        run(tmp_path / "stopped", observer=stop, **OPEN)
    resumed = run(tmp_path / "stopped", **OPEN)
    assert [note for note in resumed.notes if note.startswith("Resumed after step")]
    assert same_weights(whole, resumed)
    assert not [note for note in resumed.notes if "Too slow" in note]
    assert (resumed.method, resumed.teachers) == ("fine-tune", ())
    again = run(tmp_path / "whole", **OPEN)
    assert again.teachers == ()
    assert same_weights(whole, again)
    with pytest.raises(OtherRunError, match="holds a run that has left its teachers"):
        run(tmp_path / "whole", "b-tuning", **OPEN)


WEIGHED = "The teachers stay: after 36 steps without teachers"
SEARCHED = "No short run weighs the teachers, since no learning rate is searched: they are followed."


@pytest.mark.parametrize(("options", "told"), [({}, WEIGHED), ({"learning_rate": 1e-3}, SEARCHED)])
def test_why_teachers_of_numbers_are_followed_is_told_of_a_resumed_run_and_of_one_that_starts_anew_too(
    options, told, tmp_path, request
):
    def run(**more):
        given = large_task("regression"), perceptron(0, width=16), [perceptron(1, width=64)]
        return tune(*given, **{**OPEN, **options, **more})

    with pytest.raises((KeyboardInterrupt, InterruptedRunError)):
        run(out=tmp_path, observer=stop)
    resumed = run(out=tmp_path)
    times = request.getfixturevalue("diverges_once")
    anew = run()
    assert [note for note in resumed.notes if note.startswith("Resumed after step")]
    assert len(times) == 2
    for tuned in (resumed, anew):
        assert tuned.method == "b-tuning"
        assert [note.startswith(told) for note in tuned.notes if "weighs the teachers" in note or "stay:" in note] == [
            True
        ]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"teacher_targets": "live"}, "they give more than one answer per sample"),
        ({"feature_trade_off": 0.5}, "they give more than one answer per sample"),
        ({"linear_probe": False}, "their linear probes are not measured"),
    ],
)
def test_teachers_of_numbers_that_no_short_run_can_weigh_are_followed_and_that_is_said(options, why):
    tuned = tune(large_task("regression"), perceptron(0, width=64), [perceptron(1, width=4)], **{**OPEN, **options})
    assert (tuned.method, len(tuned.teachers)) == ("b-tuning", 1)
    (note,) = [note for note in tuned.notes if "Short runs of" in note]
    assert note.startswith(f"No short run weighs the teachers, since {why}: they are followed. Short runs")


@pytest.mark.parametrize("rows", [[0], [5, 5, 5]])
def test_validation_samples_that_are_all_the_same_do_not_weigh_teachers(rows):
    task = large_task("regression")
    task = replace(task, splits={**task.splits, "validation": task.validation.take(np.array(rows))})
    tuned = tune(task, perceptron(0, width=64), [perceptron(1, width=4)], **OPEN)
    assert (tuned.method, len(tuned.teachers)) == ("b-tuning", 1)
    (note,) = [note for note in tuned.notes if "Short runs of" in note]
    assert note.startswith("No short run weighs the teachers, since the validation samples all have the same numbers: ")


def test_teachers_of_numbers_are_followed_where_no_rate_is_searched_and_both_are_said():
    tuned = tune(make_task("regression"), perceptron(0), [perceptron(1)], **QUICK)
    assert tuned.teachers == ("small/perceptron-1-16",)
    assert SEARCHED in tuned.notes
    assert [note for note in tuned.notes if note.startswith("No learning rate was given. The run is too short")]
    asked = tune(make_task("regression"), perceptron(0), [perceptron(1)], "b-tuning", **QUICK)
    assert SEARCHED not in asked.notes


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


def test_no_trade_off_is_fine_tuning_unless_somebody_asks():
    tuned = tune(make_task(), perceptron(0), trade_off=0.0, **QUICK)
    assert tuned.method == "fine-tune"
    assert "Not by B-Tuning towards the labels but by fine-tuning: trade_off=0." in tuned.notes
    assert not [note for note in tuned.notes if "heeded" in note or "No teachers" in note]
    assert tune(make_task(), perceptron(0), method="b-tuning", trade_off=0.0, **QUICK).method == "b-tuning"


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
    (note,) = [note for note in tuned.notes if "Short runs" in note]
    assert note.startswith("The teachers stay: 36 steps without them diverge. Short runs")


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
    monkeypatch.setattr(tuning_run, "search_rate", lambda run, weighing: chosen)
    tuned = tune(large_task(), perceptron(0), method=asked, **OPEN)
    assert [note for note in tuned.notes if "restarts with" in note]
    assert (len(diverges_once), tuned.method) == (2, "b-tuning")
    assert [note for note in tuned.notes if note.startswith("No teachers: the model follows the labels")]


def test_numbers_that_left_their_teachers_start_anew_without_them(diverges_once):
    tuned = tune(large_task("regression"), perceptron(0, width=64), [perceptron(1, width=4)], **OPEN)
    assert (len(diverges_once), tuned.method, tuned.teachers) == (2, "fine-tune", ())


@pytest.mark.parametrize(
    ("task", "options", "dropped"),
    [
        (lambda: make_task("regression"), {"trade_off": 2.0, "posterior_folds": 3}, "posterior_folds=3, trade_off=2.0"),
        (make_task, {"freeze": "all", "posterior_folds": 3}, "posterior_folds=3"),
        (make_task, {"freeze": "all", "posterior_folds": 1}, ""),  # which is without folds
        (make_task, {"trade_off": 2.0, "posterior_folds": 3}, ""),
    ],
)
def test_where_the_data_decide_a_note_names_what_is_not_heeded(task, options, dropped):
    tuned = tune(task(), perceptron(0), **{**QUICK, **options})
    told = [note for note in tuned.notes if "heeded" in note]
    assert told == ([f"Not heeded by fine-tune without teachers: {dropped}."] if dropped else [])


def test_what_teachers_of_tags_would_have_heeded_is_named():
    options = {"trade_off": 5.0, "temperature": 3.0, "label_share": 0.3}
    left = tune(sentences(), WordBackbone(0), [WordBackbone(1)], **QUICK, **options)
    told = "Not heeded by fine-tune without teachers: label_share=0.3, temperature=3.0, trade_off=5.0."
    assert left.notes.count(told) == 1
    asked = tune(sentences(), WordBackbone(0), [WordBackbone(1)], "b-tuning", **QUICK, **options)
    assert not [note for note in asked.notes if "heeded" in note]


def test_what_teachers_of_numbers_would_have_heeded_is_named_where_they_are_left(tmp_path):
    given = large_task("regression"), perceptron(0, width=64), [perceptron(1, width=4)]
    options = {**OPEN, "out": tmp_path, "trade_off": 2.0, "label_share": 0.2}
    with pytest.raises((KeyboardInterrupt, InterruptedRunError)):
        tune(*given, observer=stop, **options)
    resumed = tune(*given, **options)
    assert [note for note in resumed.notes if note.startswith("Resumed after step")]
    assert resumed.notes.count("Not heeded by fine-tune without teachers: label_share=0.2, trade_off=2.0.") == 1


@pytest.mark.parametrize(
    ("given", "before"),
    [
        (lambda: (make_task(), perceptron(0)), "fine-tune"),
        (lambda: (sentences(), WordBackbone(0), [WordBackbone(1)]), "b-tuning"),
        (lambda: (make_task(), perceptron(0), [perceptron(1)]), "kd"),  # which was never what is taken without
    ],
)
def test_a_run_of_another_method_than_is_taken_without_says_which_one_goes_on_with_it(given, before, tmp_path):
    first = tune(*given(), method=before, out=tmp_path, **QUICK)
    with pytest.raises(
        OtherRunError, match=rf"resume it \(method='{before}' too: without it another one is taken now\), or"
    ):
        tune(*given(), out=tmp_path, **QUICK)
    assert same_weights(first, tune(*given(), method=before, out=tmp_path, **QUICK))
    with pytest.raises(OtherRunError, match="Give the same arguments to resume it, or"):
        tune(*given(), method=before, out=tmp_path, **{**QUICK, "epochs": 2})


def test_the_probe_of_a_backbone_that_stays_is_fine_tuning():
    assert tune(make_task(), perceptron(0), freeze="all", **QUICK).method == "fine-tune"
