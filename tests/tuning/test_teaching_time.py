"""Teachers under a budget: those that are too slow are left out, and the time is kept."""

from __future__ import annotations

import time

import pytest
from clocked_networks import CLOCK, heavy, heavy_on_images
from tuning_networks import image_task, make_task

from hubscout.features import FeatureCache, extract
from hubscout.runs.events import Message, Validated
from hubscout.tuning import tune

BUDGET = 40
OPTIONS = {"batch_size": 32, "bootstrap_resamples": 10, "workers": 0, "budget": BUDGET}
FAST, SLOW = 0.001, 0.005
"""Seconds per sample: of the 5,120 of train, 5 and 26 s; about 9 s of the budget are for teachers."""


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    CLOCK.now = 1000.0
    monkeypatch.setattr(time, "perf_counter", CLOCK)


def timed(*teachers, **options):
    began = CLOCK.now
    tuned = tune(make_task(n=5120), heavy(0.001), teachers, **{**OPTIONS, **options})
    return tuned, CLOCK.now - began


def left_out(tuned) -> list[str]:
    return [note for note in tuned.notes if "Too slow to teach" in note]


@pytest.mark.parametrize("method", ["b-tuning", "kd", "logit-kd", "distill-weighted"])
def test_a_teacher_that_is_too_slow_is_left_out_and_that_is_said(method):
    tuned, seconds = timed(heavy(SLOW, 1), heavy(FAST, 2), method=method)
    assert seconds < 1.05 * BUDGET
    assert (tuned.method, tuned.teachers) == (method, ("small/perceptron-2-16",))
    (told,) = left_out(tuned)
    seconds = "8.7" if method == "b-tuning" else "10"  # the others do not ask for the model's own features
    reason = f"about 26 s over the train samples, for which there are {seconds} s"
    assert told == f"Too slow to teach in this budget: small/perceptron-1-16 ({reason})."


def test_teachers_in_time_are_all_there_and_nothing_is_said():
    tuned, seconds = timed(heavy(FAST, 1), heavy(FAST / 2, 2))
    assert 0.95 * BUDGET < seconds < 1.05 * BUDGET
    assert len(tuned.teachers) == 2
    assert not left_out(tuned)


def test_they_share_one_part_of_the_time_in_their_order():
    tuned, seconds = timed(heavy(FAST, 1), heavy(FAST, 2))
    assert tuned.teachers == ("small/perceptron-1-16",)
    assert 0.95 * BUDGET < seconds < 1.05 * BUDGET


@pytest.mark.parametrize(("rate", "answers"), [(None, "cached"), (1e-3, "cached"), (1e-3, "left-out"), (1e-3, "live")])
def test_without_any_in_time_the_model_is_tuned_as_without_teachers(rate, answers):
    tuned, seconds = timed(heavy(SLOW, 1), heavy(SLOW, 2), learning_rate=rate, teacher_targets=answers)
    told = f"Not heeded by b-tuning without teachers: teacher_targets='{answers}'."
    assert (told in tuned.notes) == (answers != "cached")
    alone, _ = timed(learning_rate=rate)
    assert (tuned.method, tuned.teachers) == (alone.method, ()) == ("b-tuning", ())
    assert left_out(tuned)[0].endswith("The model is tuned without teachers.")
    assert seconds < 1.05 * BUDGET
    assert tuned.steps > 0.7 * alone.steps


def test_where_the_model_itself_is_too_slow_no_time_is_lost_on_teachers():
    """Its own pass takes 51 of 40 s, and the teacher's a hundred times as long."""
    began = CLOCK.now
    tuned = tune(make_task(n=5120), heavy(0.01), [heavy(1.0, 1)], **OPTIONS)
    alone = tune(make_task(n=5120), heavy(0.01), method="fine-tune", **OPTIONS)
    assert CLOCK.now - began < 2 * 1.1 * BUDGET
    assert (tuned.method, tuned.teachers) == ("fine-tune", ())
    (told,) = [note for note in tuned.notes if "Nobody teaches" in note]
    assert "the model itself takes about 51 s over the train samples" in told
    assert tuned.metric("validation").value >= alone.metric("validation").value - 0.05


def test_a_run_without_teachers_has_no_time_for_a_slow_pass_of_its_own_and_resumes_as_it_began(tmp_path):
    how = {**OPTIONS, "method": "b-tuning", "out": tmp_path / "run"}
    heard, kill = [], kill_after(5)
    with pytest.raises(Killed):
        tune(make_task(n=5120), heavy(0.01), observer=lambda event: heard.append(event) or kill(event), **how)
    resumed = tune(make_task(n=5120), heavy(0.01), **how)
    assert any("Resumed" in note for note in resumed.notes)
    assert (resumed.method, resumed.teachers) == ("fine-tune", ())
    assert "Too slow for b-tuning in this budget. It is fine-tuned." in resumed.notes
    told = "Too slow for b-tuning in this budget: the model takes about 51 s over the train samples"
    assert any(isinstance(event, Message) and event.text.startswith(told) for event in heard)


def test_the_pass_of_a_run_without_teachers_is_kept_for_whoever_resumes_it(tmp_path):
    how = {**OPTIONS, "method": "b-tuning", "out": tmp_path / "run"}
    with pytest.raises(Killed):
        tune(make_task(n=5120), heavy(0.001), observer=kill_after(20), **how)
    assert any((tmp_path / "run" / "teaching").iterdir())
    resumed = tune(make_task(n=5120), heavy(0.001), **how)
    assert (resumed.method, resumed.teachers) == ("b-tuning", ())


def test_a_method_that_loses_its_teachers_names_what_is_not_heeded_without_them():
    tuned, _ = timed(heavy(SLOW, 1), method="logit-kd", kd_temperature=4.0, trade_off=0.2, learning_rate=1e-3)
    assert (tuned.method, tuned.teachers) == ("fine-tune", ())
    assert "Not heeded by fine-tune without teachers: kd_temperature=4.0, trade_off=0.2." in tuned.notes


def test_features_that_are_cached_cost_nothing(tmp_path):
    teacher = heavy(SLOW, 1)
    extract(teacher, make_task(n=5120), device="cpu", cache=FeatureCache(tmp_path))
    tuned, seconds = timed(teacher, heavy(SLOW, 2), cache=tmp_path)
    assert tuned.teachers == ("small/perceptron-1-16",)
    assert seconds < 1.05 * BUDGET


class Killed(BaseException):
    pass


def test_a_resumed_run_has_the_teachers_that_it_began_with(tmp_path):
    """Meanwhile the features of the other one have come into the cache."""
    teachers = heavy(SLOW, 1), heavy(FAST, 2)
    how = {"out": tmp_path / "run", "cache": tmp_path / "cache", "checkpoint_every_steps": 10}
    with pytest.raises(Killed):
        timed(*teachers, observer=kill_after(20), **how)
    extract(teachers[0], make_task(n=5120), device="cpu", cache=FeatureCache(tmp_path / "cache"))
    resumed, seconds = timed(*teachers, **how)
    assert any("Resumed" in note for note in resumed.notes)
    assert resumed.teachers == ("small/perceptron-2-16",)
    assert left_out(resumed) == ["Too slow to teach in this budget: small/perceptron-1-16."]
    assert seconds < 0.6 * BUDGET
    again, seconds = timed(*teachers, **how)
    assert seconds < 1
    assert (again.teachers, again.steps) == (resumed.teachers, resumed.steps)


def kill_after(seconds):
    def observer(event):
        if isinstance(event, Validated) and CLOCK.now - 1000 > seconds:
            raise Killed

    return observer


@pytest.mark.parametrize("method", ["b-tuning", "kd", "distill-weighted"])
def test_a_resumed_run_without_a_cache_keeps_the_budget_too(tmp_path, method):
    """By then the teacher takes a hundred times as long: another pass would be 512 s."""
    how = {"method": method, "out": tmp_path, "learning_rate": 1e-3, "checkpoint_every_steps": 10}
    with pytest.raises(Killed):
        timed(heavy(FAST, 1), observer=kill_after(20), **how)
    killed = CLOCK.now - 1000
    resumed, seconds = timed(heavy(100 * FAST, 1), **how)
    assert any("Resumed" in note for note in resumed.notes)
    assert resumed.teachers == ("small/perceptron-1-16",)
    assert killed + seconds < 1.05 * BUDGET
    assert not (tmp_path / "teaching").exists()


def test_a_resumed_run_does_not_ask_for_the_same_views_again(tmp_path):
    options = {**OPTIONS, "learning_rate": 1e-3, "teacher_targets": "views", "out": tmp_path}
    task, model = image_task(96), heavy_on_images(0.01)
    with pytest.raises(Killed):
        tune(task, model, [heavy_on_images(0.02, 1)], observer=kill_after(20), **options)
    resumed = tune(task, model, [heavy_on_images(1.0, 1)], **options)
    assert any("Resumed" in note for note in resumed.notes)
    assert any("cached for 2 views of each sample." in note for note in resumed.notes)
    assert CLOCK.now - 1000 < 1.1 * BUDGET


def test_views_that_a_power_cut_has_emptied_are_asked_for_again(tmp_path):
    options = {**OPTIONS, "learning_rate": 1e-3, "teacher_targets": "views", "out": tmp_path}
    task, model, teacher = image_task(96), heavy_on_images(0.01), heavy_on_images(0.02, 1)
    with pytest.raises(Killed):
        tune(task, model, [teacher], observer=kill_after(20), **options)
    (kept,) = tmp_path.rglob("views.npy")
    kept.write_bytes(b"")
    resumed = tune(task, model, [teacher], **options)
    assert any("cached for 2 views of each sample." in note for note in resumed.notes)


def test_a_resumed_run_takes_its_head_from_the_checkpoint(tmp_path):
    """Fitting it anew would be a pass over the train samples, for nothing."""
    told = []
    options = {**OPTIONS, "learning_rate": 1e-3, "head_init": "posterior", "out": tmp_path}
    with pytest.raises(Killed):
        tune(make_task(n=5120), heavy(0.001), observer=kill_after(20), **options)
    tune(make_task(n=5120), heavy(0.001), observer=told.append, **options)
    texts = [event.text for event in told if isinstance(event, Message)]
    assert any("Resumed" in text for text in texts)
    assert not any("Computing the features" in text for text in texts)


def test_without_a_budget_all_of_them_teach():
    tuned = tune(make_task(n=5120), heavy(0.001), [heavy(SLOW, 1)], **{**OPTIONS, "budget": None, "steps": 2})
    assert len(tuned.teachers) == 1


@pytest.mark.parametrize("method", ["b-tuning", "kd"])
def test_there_are_as_many_views_as_there_is_time_for(method):
    """Each takes 1.9 s, and about 5 s are for them."""
    began = CLOCK.now
    options = {**OPTIONS, "learning_rate": 1e-3, "teacher_targets": "views", "method": method}
    tuned = tune(image_task(96), heavy_on_images(0.01), [heavy_on_images(0.02, 1)], **options)
    (told,) = [note for note in tuned.notes if "views of each sample" in note]
    assert "for 2 views of each sample, not for 4: there is no time for more" in told
    assert len(tuned.teachers) == 1
    assert CLOCK.now - began < 1.1 * BUDGET


def test_teachers_whose_views_are_slow_are_left_out_whatever_the_cache_has(tmp_path):
    """A batch of them takes 5 s, and a view 14 s."""
    task, teacher, cache = image_task(96), heavy_on_images(0.15, 1), FeatureCache(tmp_path)
    options = {**OPTIONS, "learning_rate": 1e-3, "cache": cache}
    tune(task, heavy_on_images(0.01), [teacher], **{**options, "budget": None, "steps": 1})
    began = CLOCK.now
    tuned = tune(task, heavy_on_images(0.01), [teacher], teacher_targets="views", **options)
    assert (tuned.method, tuned.teachers) == ("b-tuning", ())
    assert left_out(tuned)
    assert CLOCK.now - began < 1.1 * BUDGET
