"""Live teachers at cached cost: their answers for a few fixed views of each image, which the model is shown in turn."""

from __future__ import annotations

import pytest
import torch
from tuning_networks import image_task, make_task, perceptron, weights_of

from hubscout.errors import InputError
from hubscout.tuning import tune

MODEL, TEACHER = "python:tuning_networks:images?seed=0", "python:tuning_networks:images?seed=1"
# 24 images in batches of 12: an epoch is two steps.
QUICK = {"batch_size": 12, "bootstrap_resamples": 10, "device": "cpu", "learning_rate": 1e-2, "workers": 0}


def terms(tuned):
    return [line["parts"]["teachers"] for line in tuned.curves if line["event"] == "step"]


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("method", ["b-tuning", "logit-kd", "distill-weighted"])
def test_while_every_view_is_new_cached_views_are_live_teachers(method, held):
    options = {**QUICK, "epochs": 3, "data_in_memory": held}
    live = tune(image_task(), MODEL, [TEACHER], method, teacher_targets="live", **options)
    cached = tune(image_task(), MODEL, [TEACHER], method, teacher_targets="views", teacher_views=3, **options)
    assert terms(cached) == pytest.approx(terms(live), rel=1e-4)
    for name, value in weights_of(live.backbone).items():
        torch.testing.assert_close(weights_of(cached.backbone)[name], value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("held", [False, True])
def test_the_views_come_back_in_turn(held):
    """At a learning rate of nothing the loss of an epoch depends on its view alone."""
    options = {**QUICK, "learning_rate": 1e-12, "epochs": 4, "batch_size": 24, "data_in_memory": held}
    options |= {"frozen_norm_statistics": True, "rate_search": False}
    fixed = terms(tune(image_task(), MODEL, [TEACHER], teacher_targets="views", teacher_views=2, **options))
    assert fixed[0] == pytest.approx(fixed[2], rel=1e-5)
    assert fixed[1] == pytest.approx(fixed[3], rel=1e-5)
    assert fixed[0] != pytest.approx(fixed[1], rel=1e-3)


def test_the_teachers_run_once_per_view_and_not_during_training(monkeypatch):
    from hubscout.tuning.teacher_panel import TeacherPanel

    seen = []
    live = TeacherPanel.live_features

    def counted(panel, views):
        seen.append(len(next(iter(next(iter(views.values())).values()))))
        return live(panel, views)

    monkeypatch.setattr(TeacherPanel, "live_features", counted)
    tune(image_task(), MODEL, [TEACHER], teacher_targets="views", teacher_views=2, epochs=5, **QUICK)
    assert sum(seen) == 2 * 24


def test_what_has_no_views_is_refused_with_a_way_out():
    with pytest.raises(InputError, match=r"views.*'cached'"):
        tune(make_task(), perceptron(0), [perceptron(1)], teacher_targets="views", epochs=1)
    with pytest.raises(InputError, match=r"views.*'cached'"):
        tune(image_task(), MODEL, [TEACHER], teacher_targets="views", augment="none", epochs=1)
    with pytest.raises(InputError, match=r"kd compares features.*logit-kd"):
        tune(image_task(), MODEL, [TEACHER], "kd", teacher_targets="views", epochs=1)
