from __future__ import annotations

import numpy as np
import pytest
import torch
from tuning_networks import make_task, perceptron

from hubscout.tuning import tune
from hubscout.tuning.arguments import TuningArguments
from hubscout.tuning.frozen_features import FrozenFeatures
from hubscout.tuning.methods import METHODS, Preparation
from hubscout.tuning.methods.feature_term import standardized

QUICK = {"steps": 60, "batch_size": 16, "learning_rate": 0.01, "validate_every_epochs": 100}


def parts(tuned, name):
    return [line["parts"][name] for line in tuned.curves if line["event"] == "step"]


@pytest.mark.parametrize("method", ["b-tuning", "logit-kd", "distill-weighted"])
def test_it_begins_at_its_strength_whatever_the_features_and_falls(method):
    task, teachers = make_task(n=64), [perceptron(1), perceptron(2, width=24)]
    with torch.no_grad():
        teachers[1].module.body[-1].weight.mul_(100)
    tuned = tune(task, perceptron(0), teachers, method, feature_trade_off=0.5, **QUICK)
    shares = parts(tuned, "features")
    per_epoch = -(-len(task.train) // 16)
    assert np.mean(shares[:per_epoch]) == pytest.approx(0.5, rel=0.15)
    assert np.mean(shares[-per_epoch:]) < 0.35
    assert set(parts(tuned, "teachers")) != {0.0}


def test_a_map_that_knows_nothing_leaves_all_of_the_variance():
    task, target, teachers = make_task(), perceptron(0), [perceptron(1), perceptron(2, width=24)]
    method = METHODS["b-tuning"]()
    arguments = TuningArguments(feature_trade_off=3.0).settled("array", "classification")
    method.prepare(Preparation(task, target, teachers, arguments, torch.device("cpu"), FrozenFeatures(task, "cpu")))
    rows = torch.arange(len(task.train))
    found = method.terms(method.extra, torch.randn(len(rows), 16), torch.empty(0), method.references(rows, {}))
    assert float(found["features"].mean()) == pytest.approx(3.0, rel=1e-5)


def test_it_pulls_at_no_feature_before_its_maps_know_a_direction():
    task = make_task()
    without = tune(task, perceptron(0), [perceptron(1)], steps=1, batch_size=16, keep_best=False)
    beside = tune(task, perceptron(0), [perceptron(1)], steps=1, batch_size=16, keep_best=False, feature_trade_off=1.0)
    assert torch.equal(without.head.weight, beside.head.weight)
    assert all(
        torch.equal(a, b)
        for a, b in zip(without.backbone.module.parameters(), beside.backbone.module.parameters(), strict=True)
    )


def test_constant_features_are_no_division_by_zero():
    assert np.array_equal(standardized(np.ones((4, 3))), np.zeros((4, 3)))
