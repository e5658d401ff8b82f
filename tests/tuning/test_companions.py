from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from tuning_networks import convolutional, make_task, perceptron, weights_of

from hubscout.errors import InputError
from hubscout.hubs import prepare_torchvision
from hubscout.tuning import tune
from hubscout.tuning.companions.bss import smallest_squared_singular_values
from hubscout.tuning.companions.freezing import freeze


def test_smallest_singular_values_against_svd():
    torch.manual_seed(0)
    for shape in ((6, 9), (9, 6)):
        matrix = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        expected = torch.linalg.svdvals(matrix).square().flip(0)[:2]
        torch.testing.assert_close(smallest_squared_singular_values(matrix, 2), expected)
        assert torch.autograd.gradcheck(lambda m: smallest_squared_singular_values(m, 1), (matrix,))


def test_l2_sp_keeps_the_backbone_near_its_start(task):
    def distance(strength):
        tuned = tune(task, perceptron(0), method="fine-tune", epochs=3, batch_size=16, l2_sp=strength, keep_best=False)
        start = weights_of(perceptron(0))
        return sum(float((value - start[name]).square().sum()) for name, value in weights_of(tuned.backbone).items())

    free, held, tight = distance(None), distance(0.1), distance(5.0)
    assert tight < held < free


def test_l2_sp_is_reported_as_half_alpha_times_the_squared_distance(task):
    tuned = tune(
        task, perceptron(0), method="fine-tune", steps=2, batch_size=16, l2_sp=0.5, keep_best=False, momentum=0
    )
    first, second = (line["parts"]["l2-sp"] for line in tuned.curves if line["event"] == "step")
    assert first == 0.0
    assert second > 0.0


def test_bss_adds_its_term(task):
    tuned = tune(task, perceptron(0), method="fine-tune", steps=1, batch_size=16, bss=0.1)
    assert tuned.curves[0]["parts"]["bss"] > 0


def test_linear_probing_leaves_the_backbone_alone_statistics_included():
    tuned = tune(make_task(shape=(3, 8, 8)), convolutional(0), method="fine-tune", epochs=2, freeze="all")
    start = weights_of(convolutional(0))
    for name, value in weights_of(tuned.backbone).items():
        assert torch.equal(value, start[name]), name


def test_freezing_up_to_a_layer(task):
    tuned = tune(task, perceptron(0), method="fine-tune", epochs=1, batch_size=16, freeze="body.0", keep_best=False)
    start, end = weights_of(perceptron(0)), weights_of(tuned.backbone)
    assert torch.equal(start["body.0.weight"], end["body.0.weight"])
    assert not torch.equal(start["body.3.weight"], end["body.3.weight"])
    with pytest.raises(InputError, match=r"Did you mean 'body.0'"):
        freeze(perceptron(0).module, "body.00")


def test_lora_trains_adapters_alone_and_merges_them(task):
    prepare_torchvision()
    pytest.importorskip("peft")
    tuned = tune(task, perceptron(0), method="fine-tune", epochs=2, batch_size=16, lora_rank=2, keep_best=False)
    start, end = weights_of(perceptron(0)), weights_of(tuned.backbone)
    assert set(start) == set(end)
    change = (end["body.3.weight"] - start["body.3.weight"]).double()
    assert 0 < torch.linalg.matrix_rank(change, rtol=1e-4) <= 2
    assert torch.equal(start["body.3.bias"], end["body.3.bias"])


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_a_head_from_the_posterior_starts_where_the_probe_ends(kind):
    task = make_task(kind, n=200)
    cold, warm = (
        tune(task, perceptron(0), method="fine-tune", steps=1, learning_rate=1e-9, head_init=start).curves[0]["loss"]
        for start in ("random", "posterior")
    )
    assert warm < 0.9 * cold


def test_companions_combine(task):
    tuned = tune(
        task,
        perceptron(0),
        [perceptron(1)],
        method="b-tuning",
        trade_off=1.0,
        epochs=1,
        l2_sp=0.1,
        bss=0.01,
        head_init="posterior",
        freeze="body.0",
    )
    assert set(tuned.curves[0]["parts"]) == {"task", "teachers", "l2-sp", "bss"}
    assert np.isfinite(tuned.metric().value)


def test_unused_source_heads_are_not_trained(task):
    tuned = tune(task, perceptron(0), method="fine-tune", epochs=1, weight_decay=0.5, keep_best=False)
    assert torch.equal(weights_of(tuned.backbone)["head.weight"], weights_of(perceptron(0))["head.weight"])
    assert isinstance(tuned.head, nn.Linear)


def test_norm_statistics_can_stay_while_their_weights_learn():
    tuned = tune(
        make_task(shape=(3, 8, 8)),
        convolutional(0),
        method="fine-tune",
        epochs=1,
        frozen_norm_statistics=True,
        keep_best=False,
    )
    start, end = weights_of(convolutional(0)), weights_of(tuned.backbone)
    assert torch.equal(start["body.1.running_mean"], end["body.1.running_mean"])
    assert not torch.equal(start["body.1.weight"], end["body.1.weight"])
