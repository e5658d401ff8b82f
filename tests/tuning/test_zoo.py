from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from tuning_networks import convolutional, make_task, perceptron

from hubscout.errors import InputError
from hubscout.tuning import METHODS, tune
from hubscout.tuning.methods.zoo import AggregatedLayer, distinct_sources, is_mixture, merge

LAYERS = {
    "convolution": (lambda: nn.Conv2d(6, 10, 3, stride=2, padding=1), (5, 6, 9, 9)),
    "depthwise": (lambda: nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=False), (5, 6, 9, 9)),
    "pointwise": (lambda: nn.Conv2d(6, 4, 1), (5, 6, 9, 9)),
    "linear": (lambda: nn.Linear(6, 4), (5, 6)),
    "linear-on-tokens": (lambda: nn.Linear(6, 4), (5, 7, 6)),
}


@pytest.mark.parametrize("lite", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_identical_sources_give_back_the_source(name, lite):
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    layer = make().double()
    mixture = AggregatedLayer([layer, copy.deepcopy(layer), copy.deepcopy(layer)], start=0.5, lite=lite)
    nn.init.normal_(mixture.gate[2].weight)  # gates that do depend on the input
    inputs = torch.randn(shape, dtype=torch.float64)
    for mode in (True, False):
        torch.testing.assert_close(mixture.train(mode)(inputs), layer(inputs), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(mixture.merged()(inputs), layer(inputs), rtol=1e-6, atol=1e-6)


def test_a_mixture_is_a_weight_for_each_sample():
    torch.manual_seed(0)
    layers = [nn.Conv2d(4, 5, 3, padding=1).double() for _ in range(3)]
    mixture = AggregatedLayer(layers, start=0.4, lite=False)
    nn.init.normal_(mixture.gate[2].weight)
    nn.init.normal_(mixture.align)
    inputs = torch.randn(6, 4, 5, 5, dtype=torch.float64)
    gates = mixture.gates(inputs)
    torch.testing.assert_close(gates.sum(dim=1), torch.ones(6, dtype=torch.float64))
    assert (gates.std(dim=0) > 0).all()
    for i in range(6):
        weight = sum(gates[i, k] * torch.einsum("op,pxyz->oxyz", mixture.align[k], mixture.weight[k]) for k in range(3))
        bias = sum(gates[i, k] * mixture.bias[k] for k in range(3))
        expected = nn.functional.conv2d(inputs[i : i + 1], weight, bias, padding=1)
        torch.testing.assert_close(mixture(inputs)[i : i + 1], expected)


def test_a_network_of_identical_sources_is_the_target():
    target = convolutional(0)
    inputs = torch.randn(4, 3, 8, 8)
    before = target.forward({"inputs": inputs}).features
    tuned = tune(
        make_task(shape=(3, 8, 8)),
        target,
        [convolutional(0)],
        method="zoo",
        steps=1,
        learning_rate=1e-12,
        weight_decay=0.0,
    )
    # The one step moved the norms' statistics: put them back to see the layers alone.
    tuned.backbone.module.load_state_dict(
        {n: v for n, v in target.module.state_dict().items() if "running" in n or "num_batches" in n}, strict=False
    )
    torch.testing.assert_close(tuned.backbone.forward({"inputs": inputs}).features, before, rtol=1e-4, atol=1e-5)


def test_lite_merges_without_loss_and_the_gates_learn(monkeypatch):
    task = make_task(shape=(3, 8, 8))
    tuned = tune(task, convolutional(0), [convolutional(1), convolutional(2)], method="zoo", zoo_lite=True, epochs=3)
    assert not is_mixture(tuned.backbone.module)
    assert tuned.merged_metrics is None
    gates = {}
    method = METHODS["zoo"]

    class Watched(method):
        def finish(self, target):
            gates.update({n: m.gate[2].bias.detach() for n, m in target.module.named_modules() if hasattr(m, "gate")})
            super().finish(target)

    monkeypatch.setitem(METHODS._entries, "zoo", Watched)
    tune(task, convolutional(0), [convolutional(1), convolutional(2)], method="zoo", zoo_lite=True, epochs=3)
    start = torch.tensor([0.8, 0.1, 0.1]).log()
    trained = [name for name, bias in gates.items() if not torch.allclose(bias, start, atol=1e-6)]
    assert {"body.0", "body.3", "body.6"} <= set(trained)
    assert set(tuned.backbone.module.state_dict()) == set(convolutional(0).module.state_dict())


def test_merging_the_lite_form_changes_nothing_in_eval_mode():
    torch.manual_seed(0)
    mixture = nn.Sequential(AggregatedLayer([nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)], start=0.7, lite=True))
    nn.init.normal_(mixture[0].gate[2].weight)
    inputs = torch.randn(4, 3, 8, 8)
    mixture.train()(inputs)
    mixture.eval()
    plain = copy.deepcopy(mixture)
    merge(plain)
    assert isinstance(plain[0], nn.Conv2d)
    torch.testing.assert_close(plain(inputs), mixture(inputs))
    assert merge(mixture)
    assert not merge(mixture)


def test_data_dependent_gates_stay_and_the_merged_metrics_stand_beside():
    task = make_task(shape=(3, 8, 8))
    tuned = tune(task, convolutional(0), [convolutional(1)], method="zoo", epochs=2)
    assert is_mixture(tuned.backbone.module)
    assert set(tuned.merged_metrics) == {"validation", "test"}
    assert not is_mixture(tuned.deployable()[0].module)


def test_other_architectures_are_refused_by_name_and_reason():
    with pytest.raises(InputError, match=r"one architecture.*perceptron-1-24.*shape.*b-tuning"):
        distinct_sources(perceptron(0), [perceptron(1, width=24)])
    with pytest.raises(InputError, match="has no parameter"):
        tune(make_task(), perceptron(0, norm=True), [perceptron(1)], method="zoo")


def test_frozen_norms_are_said_to_be_unfit():
    task = make_task(shape=(3, 8, 8), n=40)
    options = {"teachers": [convolutional(1)], "method": "zoo", "zoo_lite": True, "epochs": 1, "batch_size": 16}
    moving = tune(task, convolutional(0), **options)
    frozen = tune(task, convolutional(0), frozen_norm_statistics=True, **options)
    assert not any("vanish" in note for note in moving.notes)
    assert any("vanish" in note for note in frozen.notes)
