"""The one module that is trained: its parts of the loss, and what is refused or frozen before the first step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tuning_networks import make_task, perceptron

from hubscout.errors import InputError
from hubscout.hubs import Backbone
from hubscout.hubs.vision import ARRAYS
from hubscout.tuning import network as network_module
from hubscout.tuning import tune
from hubscout.tuning.batches import BatchPlan
from hubscout.tuning.losses import TaskLoss
from hubscout.tuning.methods import FineTune
from hubscout.tuning.network import Network, check_batches, check_width, new_head, silence_unused


def build(width=16, **options):
    task, backbone = make_task(), perceptron(0, **options)
    loss = TaskLoss.of(task)
    batch = {ARRAYS: torch.as_tensor(np.asarray(task.train.inputs)[:6])}
    return Network(backbone, new_head(width, loss, seed=0), loss, FineTune()), batch


def test_samples_with_partners_have_the_weighted_sum_of_both_losses():
    network, batch = build()
    targets, others = torch.tensor([0, 1, 2, 0, 1, 2]), torch.tensor([2, 2, 0, 0, 1, 1])
    mixed = network(batch, targets, {}, (others, {}, 0.3))["rows"]["task"]
    alone = [network(batch, labels, {})["rows"]["task"] for labels in (targets, others)]
    torch.testing.assert_close(mixed, 0.3 * alone[0] + 0.7 * alone[1])


def test_features_of_another_width_than_the_head_takes_are_refused():
    check_width(*build())
    with pytest.raises(InputError, match=r"gives 16 features on this task, and 12 were expected"):
        check_width(*build(width=12))


def test_a_batch_norm_refuses_batches_of_one():
    network, _ = build(norm=True)
    with pytest.raises(InputError, match=r"at least 2 are needed \(batch norm needs two\)"):
        check_batches(network, BatchPlan(samples=4, batch_size=1, seed=0), processes=1)
    check_batches(network, BatchPlan(samples=4, batch_size=2, seed=0), processes=1)


def test_what_does_not_reach_the_features_is_frozen_and_named():
    network, batch = build()
    assert silence_unused(network, batch) == ["head.weight", "head.bias"]
    assert not network.body.head.weight.requires_grad


def normed(mean: float = 0.5) -> Backbone:
    """A perceptron whose batch norm has seen other data; with mean 0, one that has seen none."""
    network = perceptron(0, norm=True)
    network.module.body[1].running_mean.fill_(mean)
    return network


NORM = {"method": "fine-tune", "keep_best": False, "bootstrap_resamples": 2, "batch_size": 32}


@pytest.mark.parametrize(
    ("options", "mean", "kept"),
    [
        ({"steps": 3}, 0.5, True),
        ({"steps": 40}, 0.5, True),
        ({"steps": 41}, 0.5, False),
        ({"steps": 3, "frozen_norm_statistics": False}, 0.5, False),
        ({"steps": 41, "frozen_norm_statistics": True}, 0.5, True),
        ({"steps": 3, "learning_rate": 1e-3}, 0.5, True),
        ({"steps": 3, "learning_rate": 1e-2}, 0.5, False),  # networks with norms that stay break down there
        ({"steps": 3}, 0.0, False),  # never trained: statistics there are none
        ({"budget": 2.0}, 0.5, True),  # twenty passes, unless it says otherwise
        ({"budget": 2.0, "batch_size": 16}, 0.5, False),
    ],
)
def test_short_runs_keep_the_statistics_of_batch_norms(monkeypatch, options, mean, kept):
    monkeypatch.setattr(network_module, "SHORT_RUN", 40)
    tuned = tune(make_task(n=64), normed(mean), **{**NORM, **options})
    assert bool((tuned.backbone.module.body[1].running_mean == mean).all()) == kept
    assert any("keep the statistics they came with" in note for note in tuned.notes) == (
        kept and "frozen_norm_statistics" not in options
    )


def test_zoo_tuning_lets_norms_move_in_short_runs_too():
    tuned = tune(make_task(n=64), normed(), [normed()], **{**NORM, "method": "zoo", "zoo_lite": True, "steps": 3})
    assert not (tuned.backbone.module.body[1].running_mean == 0.5).any()
    assert not any("keep the statistics" in note or "vanish" in note for note in tuned.notes)
