"""Task-weighted distillation: each teacher's probabilities, by its weight; and how teachers are weighed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tuning_networks import image_task, make_task, outputs, perceptron, softmax, weights_of

from hubscout.errors import InputError
from hubscout.runs.events import Message
from hubscout.tuning import tune
from hubscout.tuning.losses import TaskLoss
from hubscout.tuning.methods.distillation import answer_divergence

QUICK = {"epochs": 2, "batch_size": 16, "bootstrap_resamples": 10, "device": "cpu", "learning_rate": 1e-3}
ONE_STEP = {**QUICK, "epochs": 1, "batch_size": 96}
TEACHERS = (1, 2)


@pytest.mark.parametrize("answers", ["cached", "live"])
def test_the_term_is_the_divergence_from_the_mean_of_the_probabilities(task, answers):
    teachers = [tune(task, perceptron(seed), **QUICK) for seed in TEACHERS]
    taught = tune(
        task,
        perceptron(0),
        teachers,
        "distill-weighted",
        teacher_weights="uniform",
        kd_temperature=3.0,
        teacher_targets=answers,
        trade_off=0.5,
        **ONE_STEP,
    )
    start = tune(task, perceptron(0), **{**ONE_STEP, "learning_rate": 1e-12, "keep_best": False})
    p = np.mean([softmax(outputs(teacher, task) / 3) for teacher in teachers], axis=0)
    q = softmax(outputs(start, task) / 3)
    by_hand = 0.5 * 9 * (p * np.log(p / q)).sum(axis=1).mean()
    assert taught.curves[0]["parts"]["teachers"] == pytest.approx(by_hand, rel=1e-4)


def test_mixed_probabilities_have_the_gradient_of_the_weighted_sum_of_divergences():
    generator = torch.Generator().manual_seed(0)
    theirs = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    ours = torch.randn(5, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    loss, shares = TaskLoss("classification", 3), (0.3, 0.7)
    one_by_one = sum(s * answer_divergence(ours, z, loss, 2.0).sum() for s, z in zip(shares, theirs, strict=True))
    mixed = sum(s * (z / 2).softmax(dim=1) for s, z in zip(shares, theirs, strict=True))
    together = answer_divergence(ours, 2 * mixed.log(), loss, 2.0).sum()
    (expected,), (found,) = torch.autograd.grad(one_by_one, ours), torch.autograd.grad(together, ours)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
@pytest.mark.parametrize("answers", ["cached", "left-out", "live"])
def test_every_kind_can_be_taught(kind, answers):
    taught = tune(
        make_task(kind),
        perceptron(0),
        [perceptron(seed) for seed in TEACHERS],
        "distill-weighted",
        teacher_targets=answers,
        **QUICK,
    )
    assert all(line["parts"]["teachers"] >= -1e-6 for line in taught.curves if "parts" in line)


def test_with_one_probed_teacher_it_is_logit_distillation(task):
    runs = [tune(task, perceptron(0), [perceptron(1)], method, **QUICK) for method in ("logit-kd", "distill-weighted")]
    for name, value in weights_of(runs[0].backbone).items():
        torch.testing.assert_close(value, weights_of(runs[1].backbone)[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("method", ["b-tuning", "logit-kd", "distill-weighted"])
def test_uniform_weights_count_all_teachers_alike(task, method):
    teachers = [perceptron(1), perceptron(2, width=24)]
    taught = tune(task, perceptron(0), teachers, method, teacher_weights="uniform", **QUICK)
    assert any(note.count("weight 0.50") == 2 for note in taught.notes)


def test_a_weight_for_each_sample_is_refused(task):
    with pytest.raises(InputError, match=r"precision.*'uniform'"):
        tune(task, perceptron(0), [perceptron(1)], "distill-weighted", teacher_weights="precision", **QUICK)


@pytest.mark.parametrize("method", ["b-tuning", "logit-kd", "distill-weighted"])
def test_a_model_may_teach_itself(task, method):
    """Self-distillation: from the model as it came, and from the model as it was tuned before."""
    frozen = tune(task, perceptron(0), [perceptron(0)], method, **QUICK)
    assert any("among its own teachers" in note for note in frozen.notes)
    before = tune(task, perceptron(0), **QUICK)
    again = tune(task, perceptron(0), [before], method, **QUICK)
    first, second = (run.curves[0]["parts"]["teachers"] for run in (frozen, again))
    assert first != second


MODEL, TEACHER = "python:tuning_networks:images?seed=0", "python:tuning_networks:images?seed=1"
# 24 images in batches of 12: an epoch is two steps.
IMAGES = {"batch_size": 12, "bootstrap_resamples": 10, "device": "cpu", "learning_rate": 1e-2, "workers": 0}


def terms(tuned):
    return [line["parts"]["teachers"] for line in tuned.curves if line["event"] == "step"]


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("method", ["b-tuning", "logit-kd", "distill-weighted", "kd"])
def test_while_every_view_is_new_cached_views_are_live_teachers(method, held):
    options = {**IMAGES, "epochs": 3, "data_in_memory": held}
    live = tune(image_task(), MODEL, [TEACHER], method, teacher_targets="live", **options)
    cached = tune(image_task(), MODEL, [TEACHER], method, teacher_targets="views", teacher_views=3, **options)
    assert terms(cached) == pytest.approx(terms(live), rel=1e-4)
    for name, value in weights_of(live.backbone).items():
        torch.testing.assert_close(weights_of(cached.backbone)[name], value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("held", [False, True])
def test_the_views_come_back_in_turn(held):
    """At a learning rate of nothing the loss of an epoch depends on its view alone."""
    options = {**IMAGES, "learning_rate": 1e-12, "epochs": 4, "batch_size": 24, "data_in_memory": held}
    options |= {"frozen_norm_statistics": True, "rate_search": False}
    fixed = terms(tune(image_task(), MODEL, [TEACHER], teacher_targets="views", teacher_views=2, **options))
    assert fixed[0] == pytest.approx(fixed[2], rel=1e-5)
    assert fixed[1] == pytest.approx(fixed[3], rel=1e-5)
    assert fixed[0] != pytest.approx(fixed[1], rel=1e-3)


def test_the_teachers_run_once_per_view_and_not_during_training(monkeypatch):
    from hubscout.tuning.teacher_answers import TeacherPanel

    seen = []
    live = TeacherPanel.live_features

    def counted(panel, views):
        seen.append(len(next(iter(next(iter(views.values())).values()))))
        return live(panel, views)

    monkeypatch.setattr(TeacherPanel, "live_features", counted)
    tune(image_task(), MODEL, [TEACHER], teacher_targets="views", teacher_views=2, epochs=5, **IMAGES)
    assert sum(seen) == 2 * 24


def test_what_has_no_views_is_refused_with_a_way_out():
    with pytest.raises(InputError, match=r"views.*'cached'"):
        tune(make_task(), perceptron(0), [perceptron(1)], teacher_targets="views", epochs=1)
    with pytest.raises(InputError, match=r"views.*'cached'"):
        tune(image_task(), MODEL, [TEACHER], teacher_targets="views", augment="none", epochs=1)


@pytest.mark.parametrize("method", ["b-tuning", "zoo"])
def test_lines_and_notes_call_long_models_as_the_table_of_a_ranking_does(task, method):
    long = "python:/home/ann/projects/zoo/networks.py:build?name={}&pixels=128"
    models = [perceptron(seed) for seed in range(3)]
    for model, name in zip(models, ("small", "vgg", "resnet"), strict=True):
        model.card = replace(model.card, identifier=long.format(name))
    heard = []
    tuned = tune(task, models[0], models[1:], method=method, steps=2, learning_rate=1e-3, observer=heard.append)
    said = [*tuned.notes, *(event.text for event in heard if isinstance(event, Message))]
    assert not [line for line in said if "/home/ann" in line]
    assert [line for line in said if "vgg" in line and "resnet" in line]
    assert tuned.teachers == tuple(long.format(name) for name in ("vgg", "resnet"))
