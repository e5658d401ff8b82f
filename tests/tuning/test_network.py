"""The one module that is trained: its parts of the loss, and what is refused or frozen before the first step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tuning_networks import make_task, perceptron

from hubscout.errors import InputError
from hubscout.hubs.vision import ARRAYS
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
