"""On a GPU, steps that are recorded and played back are the steps that are taken kernel by kernel."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from tuning_networks import Layers, SmallBackbone, convolutional, make_task, weights_of

from hubscout.tuning import single_run, train_step, tune
from hubscout.tuning.graphed_passes import GraphedPasses, can_be_graphed

IMAGE = {"model": {"pixel_values": torch.zeros(2, 3, 4, 4)}}
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
OPTIONS = {"epochs": 6, "batch_size": 16, "learning_rate": 0.02, "keep_best": False, "mixed_precision": "no"}
ON_CPU = {**OPTIONS, "device": "cpu"}
"""With stand-ins for the functions of a GPU, also where there is one."""


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
    body = nn.Sequential(nn.Conv2d(3, 8, 3), Looking(), nn.Dropout(0.2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
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


class _Once(torch.autograd.Function):
    """Passes everything on; of the first batch, memory runs out on the way back."""

    raised = False

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if len(gradient) > 1 and not _Once.raised:
            _Once.raised = True
            raise torch.OutOfMemoryError("CUDA out of memory")
        return gradient


class FullOnce(nn.Module):
    def forward(self, x):
        return _Once.apply(x) if x.requires_grad else x


def full_once() -> SmallBackbone:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 8, 3), FullOnce(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return SmallBackbone(Layers(body, 8), "full-once", 8)


@pytest.fixture
def stand_ins(monkeypatch):
    """Steps take the way of recorded ones on this machine; what is recorded is not played, but raises at its end."""
    if torch.cuda.is_available():
        pytest.skip("stands in for a GPU, and there is one")
    state = SimpleNamespace(recording=False)
    generator = SimpleNamespace(clone_state=lambda: "a new state", graphsafe_set_state=lambda new: left.append(new))
    stream = SimpleNamespace(wait_stream=lambda other: None)
    left: list[str] = []

    @contextmanager
    def recording(*given, **options):
        state.recording = True
        yield
        raise RuntimeError("operation not permitted when stream is capturing\nwith more lines")

    for name, value in {
        "Stream": lambda: stream,
        "current_stream": lambda: stream,
        "stream": lambda one: nullcontext(),
        "graph_pool_handle": lambda: None,
        "CUDAGraph": lambda: None,
        "graph": recording,
        "default_generators": (generator,),
        "current_device": lambda: 0,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(train_step, "can_be_graphed", lambda *given: True)
    state.left = left
    return state


def test_what_cannot_be_recorded_leaves_neither_gradients_nor_a_generator_that_cannot_draw(stand_ins):
    found = [tune(plain_task(), dropping(), cuda_graphs=on, **ON_CPU) for on in (False, True)]
    notes = [line["text"] for line in found[1].curves if line["event"] == "note"]
    assert [text for text in notes if "CUDA graph" in text] == [
        "The steps cannot be recorded as a CUDA graph, and are taken kernel by kernel: operation not permitted when "
        "stream is capturing"
    ]
    assert stand_ins.left == ["a new state"]
    np.testing.assert_allclose(losses(found[1])[:4], losses(found[0])[:4], rtol=1e-6)


def test_memory_that_runs_out_before_anything_is_recorded_makes_smaller_batches(stand_ins):
    """Half of the gradients were there by then: they must not count twice."""
    _Once.raised = True
    expected = losses(tune(plain_task(), full_once(), cuda_graphs=False, **ON_CPU))
    _Once.raised = False
    tuned = tune(plain_task(), full_once(), **ON_CPU)
    notes = [line["text"] for line in tuned.curves if line["event"] == "note"]
    assert any("micro-batches of 8" in text for text in notes)
    assert not any("CUDA graph" in text for text in notes)
    assert not stand_ins.recording
    np.testing.assert_allclose(losses(tuned), expected, rtol=1e-3)


def test_an_evaluation_without_room_gets_that_of_recorded_steps(stand_ins, monkeypatch):
    """A graph holds the activations of a whole batch for good."""
    real, held = single_run.predict_split, []

    def limited(*given):
        if not held and stand_ins.run is not None:
            held.append(1)
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(*given)

    stand_ins.run = None
    taken = train_step.TrainStep.take

    def take(self, *given):
        stand_ins.run = self
        return taken(self, *given)

    monkeypatch.setattr(single_run, "predict_split", limited)
    monkeypatch.setattr(train_step.TrainStep, "take", take)
    monkeypatch.setattr(GraphedPasses, "_record", lambda *given: pytest.fail("recorded after all"))
    tuned = tune(plain_task(), dropping(), **{**ON_CPU, "epochs": 1, "batch_size": 60})
    assert held
    assert stand_ins.run.graphs is None
    assert np.isfinite(losses(tuned)).all()
    held.clear()
    with pytest.raises(torch.OutOfMemoryError):
        tune(plain_task(), dropping(), cuda_graphs=False, **{**ON_CPU, "epochs": 1, "batch_size": 60})
