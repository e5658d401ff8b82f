"""On a GPU, steps that are recorded and played back are the steps that are taken kernel by kernel."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from tuning_networks import Layers, SmallBackbone, convolutional, make_task, weights_of

from hubscout.tuning import tune
from hubscout.tuning.graphed_passes import GraphedPasses, can_be_graphed

IMAGE = {"model": {"pixel_values": torch.zeros(2, 3, 4, 4)}}
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
OPTIONS = {"epochs": 6, "batch_size": 16, "learning_rate": 0.02, "keep_best": False, "mixed_precision": "no"}


def plain_task():
    return make_task(shape=(3, 8, 8), n=100)


def dropping() -> SmallBackbone:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return SmallBackbone(Layers(body, 8), "dropping", 8)


class Looking(nn.Module):
    """Looks at its numbers on the processor, which no graph can hold."""

    def forward(self, x):
        return x * (1.0 if float(x.sum()) > 0 else 2.0)


def looking() -> SmallBackbone:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 8, 3), Looking(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return SmallBackbone(Layers(body, 8), "looking", 8)


def losses(tuned):
    return np.array([line["loss"] for line in tuned.curves if line["event"] == "step"])


@pytest.mark.parametrize(
    ("device", "processes", "views", "expected"),
    [
        ("cuda", 1, IMAGE, True),
        ("cpu", 1, IMAGE, False),
        ("cuda", 2, IMAGE, False),
        ("cuda", 1, {"model": {"input_ids": torch.zeros(2, 7)}}, False),
    ],
)
def test_only_images_on_one_gpu_are_recorded(device, processes, views, expected):
    assert can_be_graphed(torch.device(device), processes, views) is expected


@on_gpu
@pytest.mark.parametrize(
    ("network", "options"),
    [
        (convolutional, {"frozen_norm_statistics": True}),
        (convolutional, {"frozen_norm_statistics": False}),
        (convolutional, {"gradient_clip": 0.1, "l2_sp": 0.01}),
        (convolutional, {"mixed_precision": "bf16"}),
        (convolutional, {"teachers": 1, "feature_trade_off": 1.0}),
        (convolutional, {"teachers": 1, "teacher_targets": "live"}),
        (dropping, {}),
    ],
)
def test_a_recorded_run_is_the_run_kernel_by_kernel(network, options, monkeypatch):
    played = []
    real = GraphedPasses._play
    monkeypatch.setattr(GraphedPasses, "_play", lambda self, *given: played.append(1) or real(self, *given))
    options = dict(options)
    teachers = [convolutional(1)] * options.pop("teachers", 0)
    runs = [tune(plain_task(), network(), teachers, cuda_graphs=on, **{**OPTIONS, **options}) for on in (False, True)]
    assert len(played) > len(losses(runs[0])) / 2
    tolerance = 0.02 if "mixed_precision" in options else 1e-3
    np.testing.assert_allclose(losses(runs[1]), losses(runs[0]), rtol=tolerance)
    if "mixed_precision" not in options:
        for name, weight in weights_of(runs[0].backbone).items():
            torch.testing.assert_close(weights_of(runs[1].backbone)[name], weight, rtol=1e-3, atol=1e-4)


@on_gpu
def test_a_search_for_a_rate_leaves_a_recorded_run_as_it_was():
    options = {**OPTIONS, "learning_rate": None, "epochs": None, "steps": 240, "frozen_norm_statistics": False}
    runs = [tune(plain_task(), convolutional(), cuda_graphs=on, **options) for on in (False, True)]
    assert runs[0].arguments.learning_rate == runs[1].arguments.learning_rate
    np.testing.assert_allclose(losses(runs[1]), losses(runs[0]), rtol=1e-2)


@on_gpu
def test_a_network_that_cannot_be_recorded_is_trained_all_the_same():
    found = [tune(plain_task(), looking(), cuda_graphs=on, **OPTIONS) for on in (False, True)]
    assert any("CUDA graph" in line.get("text", "") for line in found[1].curves)
    np.testing.assert_allclose(losses(found[1]), losses(found[0]), rtol=1e-3)
