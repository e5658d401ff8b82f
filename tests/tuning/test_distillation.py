from __future__ import annotations

import numpy as np
import pytest
import torch
from tuning_networks import image_task, make_task, outputs, perceptron, softmax, weights_of

from hubscout.tuning import Tuned, tune
from hubscout.tuning.losses import TaskLoss
from hubscout.tuning.methods.distillation import answer_divergence

QUICK = {"epochs": 2, "batch_size": 16, "bootstrap_resamples": 10, "device": "cpu"}


def test_divergence_of_classes_is_the_formula_by_hand():
    generator = np.random.default_rng(0)
    ours, theirs, temperature = generator.normal(size=(4, 3)), generator.normal(size=(4, 3)), 3.0
    p, q = (np.exp(z / temperature) / np.exp(z / temperature).sum(axis=1, keepdims=True) for z in (theirs, ours))
    by_hand = temperature**2 * (p * np.log(p / q)).sum(axis=1)
    found = answer_divergence(
        torch.as_tensor(ours), torch.as_tensor(theirs), TaskLoss("classification", 3), temperature
    )
    np.testing.assert_allclose(found.numpy(), by_hand, rtol=1e-12)


def test_divergence_of_labels_is_the_formula_by_hand():
    generator = np.random.default_rng(1)
    ours, theirs = generator.normal(size=(4, 3)), generator.normal(size=(4, 3))
    p, q = (1 / (1 + np.exp(-z / 2)) for z in (theirs, ours))
    by_hand = 4 * (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))).mean(axis=1)
    found = answer_divergence(torch.as_tensor(ours), torch.as_tensor(theirs), TaskLoss("multilabel", 3), 2.0)
    np.testing.assert_allclose(found.numpy(), by_hand, rtol=1e-10)


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
@pytest.mark.parametrize("answers", ["cached", "left-out", "live"])
def test_a_teacher_that_knows_better_is_followed(kind, answers):
    task = make_task(kind)
    options = {**QUICK, "linear_probe": False}  # which may be the better result of so short a run
    plain = tune(task, perceptron(0), **options)
    taught = tune(task, perceptron(0), [perceptron(1)], "logit-kd", teacher_targets=answers, **options)
    assert any(
        not torch.equal(a, b)
        for a, b in zip(weights_of(plain.backbone).values(), weights_of(taught.backbone).values(), strict=True)
    )
    parts = [line["parts"] for line in taught.curves if "parts" in line]
    assert parts
    assert all(part["teachers"] >= -1e-6 for part in parts)


def test_without_trade_off_it_is_fine_tuning_bit_for_bit(task):
    plain = tune(task, perceptron(0), **QUICK)
    taught = tune(task, perceptron(0), [perceptron(1)], "logit-kd", trade_off=0, **QUICK)
    for name, value in weights_of(plain.backbone).items():
        assert torch.equal(value, weights_of(taught.backbone)[name]), name


def first_term(taught):
    return taught.curves[0]["parts"]["teachers"]


ONE_STEP = {
    "steps": 1,
    "batch_size": 96,
    "bootstrap_resamples": 10,
    "device": "cpu",
    "learning_rate": 1e-3,
    "trade_off": 1.0,
}
# The whole train split is one batch, and in the first step the model is as it came.


def test_a_tuned_teacher_answers_with_its_own_head(task):
    teacher = tune(task, perceptron(1), **{**QUICK, "epochs": 20})
    taught = tune(task, perceptron(0), [teacher], "logit-kd", kd_temperature=3.0, **ONE_STEP)
    assert any("tuned with" in note for note in taught.notes)
    start = tune(task, perceptron(0), **{**ONE_STEP, "learning_rate": 1e-12, "keep_best": False})
    p, q = (softmax(outputs(model, task) / 3) for model in (teacher, start))
    assert first_term(taught) == pytest.approx(9 * (p * np.log(p / q)).sum(axis=1).mean(), rel=1e-4)


def test_its_backbone_alone_is_probed(task):
    teacher = tune(task, perceptron(1), **{**QUICK, "epochs": 20, "linear_probe": False})  # which may be the result
    probed = tune(task, perceptron(0), [teacher.backbone], "logit-kd", **ONE_STEP)
    untuned = tune(task, perceptron(0), [perceptron(1)], "logit-kd", **ONE_STEP)
    own = tune(task, perceptron(0), [teacher], "logit-kd", **ONE_STEP)
    assert not any("tuned with" in note for note in probed.notes)
    assert len({round(first_term(run), 6) for run in (probed, untuned, own)}) == 3


def test_the_head_of_another_task_is_not_asked():
    classes, numbers = make_task(), make_task("regression")
    teacher = tune(numbers, perceptron(1), **QUICK)
    taught = tune(classes, perceptron(0), [teacher], "logit-kd", **QUICK)
    assert not any("tuned with" in note for note in taught.notes)


@pytest.mark.parametrize("answers", ["cached", "left-out", "live"])
@pytest.mark.parametrize("method", ["logit-kd", "distill-weighted"])
def test_a_tuned_regressor_answers_in_the_units_of_the_targets(method, answers):
    task = make_task("regression")
    teacher = tune(task, perceptron(1), **{**QUICK, "epochs": 30})
    taught = tune(task, perceptron(0), [teacher], method, teacher_targets=answers, **ONE_STEP)
    # The model's head starts at zero, the mean: the term is the mean square of what the teacher says, in deviations.
    values = (teacher.predict(task.train.inputs).values - taught.loss.offset) / taught.loss.scale
    assert first_term(taught) == pytest.approx((values**2).mean(), rel=1e-4)


def test_a_teacher_that_was_saved_is_the_same_teacher(tmp_path):
    task = image_task()
    teacher = tune(task, "python:tuning_networks:images?seed=1", out=tmp_path, **QUICK)
    loaded = Tuned.load(tmp_path, allow_code=True)
    options = {**ONE_STEP, "augment": "none"}
    runs = [tune(task, "python:tuning_networks:images", [t], "logit-kd", **options) for t in (teacher, loaded)]
    assert first_term(runs[0]) == pytest.approx(first_term(runs[1]), rel=1e-5)


def test_features_of_the_model_before_tuning_are_not_taken_for_those_of_the_tuned_teacher(task, tmp_path):
    from hubscout.features import FeatureCache

    cache = FeatureCache(tmp_path)
    tune(task, perceptron(0), [perceptron(1)], "logit-kd", cache=cache, **ONE_STEP)
    teacher = tune(task, perceptron(1), **{**QUICK, "epochs": 20})
    runs = [tune(task, perceptron(0), [teacher], "logit-kd", cache=chosen, **ONE_STEP) for chosen in (cache, None)]
    assert first_term(runs[0]) == pytest.approx(first_term(runs[1]), rel=1e-6)


@pytest.mark.parametrize(("method", "default"), [("kd", 0.5 / 12), ("logit-kd", 0.3), ("distill-weighted", 0.3)])
def test_the_default_strength_fits_the_number_of_features(task, method, default):
    teachers = [perceptron(1, width=8), perceptron(2, width=16)]
    own = tune(task, perceptron(0), teachers, method, **{**ONE_STEP, "trade_off": None})
    given = tune(task, perceptron(0), teachers, method, **{**ONE_STEP, "trade_off": default})
    assert first_term(own) == pytest.approx(first_term(given), rel=1e-6)


@pytest.mark.parametrize(("kind", "share"), [("multilabel", 0.01), ("regression", 0.1)])
def test_features_weigh_little_beside_the_loss_of_knowing_nothing_unless_there_are_classes(kind, share):
    task, teachers = make_task(kind), [perceptron(1, width=8), perceptron(2, width=16)]
    y = np.asarray(task.train.targets, dtype=float)
    p = y.mean(axis=0)
    nothing = 1.0 if kind == "regression" else -(p * np.log(p) + (1 - p) * np.log(1 - p)).mean()
    with torch.no_grad():
        shown = {"inputs": torch.as_tensor(np.asarray(task.train.inputs))}
        size = np.mean([float(one.forward(shown).features.square().sum(dim=1).mean()) for one in teachers])
    own = tune(task, perceptron(0), teachers, "kd", **{**ONE_STEP, "trade_off": None})
    given = tune(task, perceptron(0), teachers, "kd", **{**ONE_STEP, "trade_off": share * nothing / size})
    assert first_term(own) == pytest.approx(first_term(given), rel=1e-5)
