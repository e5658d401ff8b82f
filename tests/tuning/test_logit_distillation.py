from __future__ import annotations

import numpy as np
import pytest
import torch
from tuning_networks import make_task, perceptron, weights_of

from hubscout.tuning import tune
from hubscout.tuning.losses import TaskLoss
from hubscout.tuning.methods.logit_distillation import answer_divergence

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
    plain = tune(task, perceptron(0), **QUICK)
    taught = tune(task, perceptron(0), [perceptron(1)], "logit-kd", teacher_targets=answers, **QUICK)
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


def test_without_teachers_and_method_it_is_fine_tuning(task):
    assert tune(task, perceptron(0), **QUICK).method == "fine-tune"
    assert tune(task, perceptron(0), [perceptron(1)], **QUICK).method == "b-tuning"


def test_a_tuned_teacher_teaches_with_its_tuned_features(task):
    tuned = tune(task, perceptron(1), **{**QUICK, "epochs": 20})
    as_backbone = tune(task, perceptron(0), [tuned.backbone], "logit-kd", **QUICK)
    as_tuned = tune(task, perceptron(0), [tuned], "logit-kd", **QUICK)
    untuned = tune(task, perceptron(0), [perceptron(1)], "logit-kd", **QUICK)
    for name, value in weights_of(as_tuned.backbone).items():
        assert torch.equal(value, weights_of(as_backbone.backbone)[name]), name
    assert any(not torch.equal(v, weights_of(untuned.backbone)[n]) for n, v in weights_of(as_tuned.backbone).items())
