"""A batch may be cut into micro-batches: the step is the same."""

from __future__ import annotations

import pytest
import torch
from tuning_networks import assert_same, perceptron

from hubscout.errors import TuningError
from hubscout.runs.events import Message
from hubscout.tuning import tune
from hubscout.tuning.train_step import TrainStep

OPTIONS = {"epochs": 4, "batch_size": 16, "method": "fine-tune"}


def test_micro_batches_add_up_to_the_batch(task):
    whole = tune(task, perceptron(0), keep_best=False, l2_sp=0.1, **OPTIONS)
    cut = tune(task, perceptron(0), keep_best=False, l2_sp=0.1, micro_batch_size=5, **OPTIONS)
    assert_same(whole, cut, exact=False)


def test_a_step_does_not_look_for_installed_packages(task, monkeypatch):
    from accelerate import optimizer

    asked = []
    monkeypatch.setattr(optimizer, "is_lomo_available", lambda: bool(asked.append(1)))
    assert tune(task, perceptron(0), **OPTIONS).steps > 0
    assert not asked


def test_out_of_memory_goes_on_by_accumulating(task, monkeypatch):
    plain = tune(task, perceptron(0), keep_best=False, **OPTIONS)
    real, seen = TrainStep._backward, []

    def limited(self, micro, *weights):
        if len(micro.samples) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        seen.append(len(micro.samples))
        return real(self, micro, *weights)

    monkeypatch.setattr(TrainStep, "_backward", limited)
    heard = []
    tuned = tune(task, perceptron(0), keep_best=False, observer=heard.append, **OPTIONS)
    assert max(seen) == 4
    assert any(isinstance(event, Message) and "micro-batches of 4" in event.text for event in heard)
    assert_same(plain, tuned, exact=False)


def test_out_of_memory_with_one_sample_is_an_error(task, monkeypatch):
    def never(self, micro, *weights):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(TrainStep, "_backward", never)
    with pytest.raises(TuningError, match="single sample"):
        tune(task, perceptron(0), **OPTIONS)
