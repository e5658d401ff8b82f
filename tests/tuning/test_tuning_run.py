from __future__ import annotations

import copy
import gc
import json
import re
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from tuning_networks import (
    Layers,
    SmallBackbone,
    assert_same,
    convolutional,
    image_task,
    make_task,
    perceptron,
    weights_of,
)

from hubscout.errors import CheckpointError, DivergedError, InputError, InterruptedRunError
from hubscout.features.feature_keys import identity
from hubscout.hubs import load
from hubscout.runs.events import Message, Validated
from hubscout.tasks import Split, Task
from hubscout.tasks.task_metrics import Outcome
from hubscout.tuning import Tuned, single_run, tune
from hubscout.tuning.arguments import TuningArguments
from hubscout.tuning.frozen_features import FrozenFeatures

HOT = {"method": "fine-tune", "epochs": 12, "batch_size": 16, "optimizer": "sgd", "learning_rate": 0.9}
IMAGES = "python:tuning_networks:images?seed=1"


def lights():
    """Images whose brightness is to be told, in large units."""
    generator = np.random.default_rng(0)

    def split(count):
        light = generator.uniform(size=count)
        pixels = generator.integers(0, 40, size=(count, 16, 16, 3)) + (200 * light)[:, None, None, None]
        return list(pixels.astype(np.uint8)), 1000 + 5000 * light[:, None]

    return Task.from_arrays(
        *split(64), validation=split(24), test=split(24), kind="regression", modality="image", name="lights"
    )


def test_a_diverging_run_starts_anew_at_a_lower_rate_as_if_it_had_been_asked_for(tmp_path):
    task, heard = make_task("regression"), []
    tuned = tune(task, perceptron(0), out=tmp_path, observer=heard.append, **HOT)
    told = [note for note in tuned.notes if "restarts with" in note]
    assert told
    assert set(told) <= {event.text for event in heard if isinstance(event, Message)}
    rate = tuned.arguments.learning_rate
    assert rate == pytest.approx(0.9 / 5 ** len(told))
    assert tuned.metric().value > 0.5
    plain = tune(task, perceptron(0), restarts=0, **{**HOT, "learning_rate": rate})
    assert all(torch.equal(a, weights_of(plain.backbone)[name]) for name, a in weights_of(tuned.backbone).items())
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["text"] for line in lines if line["event"] == "note"] == told


def test_networks_are_trained_and_measured_on_a_cpu_with_channels_last():
    seen, backbone = [], convolutional(0)

    def look(layer, inputs, outputs):
        tensors = (*inputs, layer.weight, outputs)
        seen.append((layer.training, [t.is_contiguous(memory_format=torch.channels_last) for t in tensors]))

    backbone.module.body[0].register_forward_hook(look)
    tune(make_task(shape=(3, 8, 8), n=40), backbone, epochs=1, batch_size=16, linear_probe=False)
    assert {True, False} == {training for training, _ in seen}
    assert all(all(last) for _, last in seen)


@pytest.mark.parametrize("first", [nn.Conv2d(3, 4, 3), nn.Identity()])
def test_networks_that_take_a_view_of_their_maps_are_trained_in_the_usual_layout(first):
    class Viewed(nn.Module):
        def forward(self, x):
            return x.view(len(x), -1)

    width = int(np.prod(first(torch.zeros(1, 3, 8, 8)).shape[1:]))
    backbone = SmallBackbone(Layers(nn.Sequential(first, Viewed(), nn.Linear(width, 6)), 6), "viewed", 6)
    tuned = tune(make_task(shape=(3, 8, 8), n=40), backbone, epochs=2, batch_size=16)
    assert tuned.metrics["test"]


def test_what_the_models_are_made_of_is_worked_out_once_however_often_a_run_restarts(monkeypatch):
    asked = []
    monkeypatch.setattr(single_run, "identity", lambda backbone: asked.append(backbone) or identity(backbone))
    tuned = tune(make_task("regression"), perceptron(0), **HOT)
    assert any("restarts with" in note for note in tuned.notes)
    assert len(asked) == 1


def test_a_restarted_run_that_was_killed_resumes_to_the_same_result(tmp_path):
    class Killed(BaseException):
        pass

    def killer(event):
        if isinstance(event, Message) and "restarts with" in event.text:
            killer.armed = True
        if isinstance(event, Validated) and event.step == 60 and killer.armed:
            raise Killed

    killer.armed = False
    task = make_task("regression")
    whole = tune(task, perceptron(0), **HOT)
    with pytest.raises(Killed):
        tune(task, perceptron(0), out=tmp_path, observer=killer, **HOT)
    resumed = tune(task, perceptron(0), out=tmp_path, resume=True, **HOT)
    assert any("Resumed after step" in note for note in resumed.notes)
    assert resumed.arguments == whole.arguments
    assert [n for n in resumed.notes if "restarts with" in n] == [n for n in whole.notes if "restarts with" in n]
    assert all(torch.equal(a, weights_of(whole.backbone)[name]) for name, a in weights_of(resumed.backbone).items())


def test_a_run_that_is_resumed_keeps_its_own_trade_off(tmp_path, monkeypatch):
    """The default may have changed since: the weights before and after would be those of two losses."""
    from hubscout.tuning.methods import distillation

    def killer(event):
        if isinstance(event, Validated) and event.step >= 8:
            raise KeyboardInterrupt

    options = {"teachers": [perceptron(1)], "method": "logit-kd", "epochs": 4, "batch_size": 16, "learning_rate": 0.01}
    task = make_task("classification")
    whole = tune(task, perceptron(0), **options)
    with pytest.raises(InterruptedRunError):
        tune(task, perceptron(0), out=tmp_path, observer=killer, **options)
    monkeypatch.setattr(distillation, "DEFAULT_TRADE_OFF", 30.0)
    resumed = tune(task, perceptron(0), out=tmp_path, resume=True, **options)
    assert any("Resumed after step" in note for note in resumed.notes)
    assert all(torch.equal(a, weights_of(whole.backbone)[name]) for name, a in weights_of(resumed.backbone).items())
    now = tune(task, perceptron(0), **options)
    assert any(not torch.equal(a, weights_of(now.backbone)[name]) for name, a in weights_of(whole.backbone).items())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "No learning rate was given. The run is too short to compare some: the default is taken, learning_rate="),
        ({"learning_rate": 0.01}, ""),
    ],
)
def test_a_run_that_is_too_short_to_search_says_its_rate(options, told):
    heard = []
    tuned = tune(image_task(), IMAGES, steps=3, batch_size=8, observer=heard.append, **options)
    found = [note for note in tuned.notes if "learning rate" in note]
    assert [note for event in heard if isinstance(event, Message) and "learning rate" in (note := event.text)] == found
    assert found == ([f"{told}{tuned.arguments.learning_rate:g}."] if told else [])


def test_a_cache_is_named_as_for_a_ranking(tmp_path, monkeypatch):
    monkeypatch.setenv("HUBSCOUT_CACHE", str(tmp_path / "usual"))
    for cache, place in ((tmp_path / "own", "own"), (str(tmp_path / "text"), "text"), (True, "usual"), (False, None)):
        before = {path.name for path in tmp_path.iterdir()}
        tune(image_task(), IMAGES, steps=1, linear_probe=True, cache=cache)
        assert {path.name for path in tmp_path.iterdir()} - before == ({place} if place else set())


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("length", [{"epochs": 2}, {"budget": 1.5}])
def test_a_finished_run_is_told_and_returned_and_nothing_of_it_changes(tmp_path, length):
    task, heard = image_task(), []
    options = {"batch_size": 8, "bootstrap_resamples": 10, "method": "fine-tune", "learning_rate": 1e-3, **length}
    first = tune(task, IMAGES, out=tmp_path, **options)
    before = contents(tmp_path)
    again = tune(task, IMAGES, out=tmp_path, observer=heard.append, **options)
    assert contents(tmp_path) == before
    assert again.record() == first.record()
    assert again.curves == first.curves
    assert_same(first, again)
    (said,) = [event.text for event in heard if isinstance(event, Message)]
    assert f"{tmp_path} holds the result of this run ({first.steps:,} steps): nothing is trained" in said
    with pytest.raises(CheckpointError, match="another run: seed was 0 and is 1"):
        tune(task, IMAGES, out=tmp_path, seed=1, **options)
    assert contents(tmp_path) == before
    tune(task, IMAGES, out=tmp_path, overwrite=True, **options)
    assert json.loads((tmp_path / "tuning.json").read_text())["seconds"] != first.seconds


def test_a_finished_run_names_its_teachers_as_they_are_called_now(tmp_path):
    task, teacher = image_task(), load("python:tuning_networks:images?seed=2")
    options = {"out": tmp_path, "epochs": 1, "batch_size": 8, "bootstrap_resamples": 10}
    first = tune(task, IMAGES, teacher, **options)
    before = contents(tmp_path)
    called = copy.copy(teacher)
    called.card = replace(teacher.card, identifier="another/name")
    again = tune(task, IMAGES, called, **options)
    assert contents(tmp_path) == before
    assert (first.teachers, again.teachers) == ((teacher.card.identifier,), ("another/name",))


def test_a_linear_probe_that_is_the_result_is_known_as_finished_and_opens_again(tmp_path, monkeypatch):
    """A budget of nothing: there is no step that could be resumed."""
    monkeypatch.setattr(FrozenFeatures, "seconds_per_sample", lambda *_: 1e-9)
    task, options = image_task(), {"batch_size": 8, "bootstrap_resamples": 10, "budget": 0.001}
    first = tune(task, IMAGES, out=tmp_path, **options)
    assert first.steps == 0
    before = contents(tmp_path)
    again = tune(task, IMAGES, out=tmp_path, **options)
    assert contents(tmp_path) == before
    assert again.record() == first.record()
    assert_same(first, again)
    inputs = list(task.test.inputs)
    np.testing.assert_allclose(
        Tuned.load(tmp_path, allow_code=True).predict(inputs).values, first.predict(inputs).values
    )


def test_a_run_without_its_whole_result_goes_on(tmp_path):
    class Killed(BaseException):
        pass

    def killer(event):
        if isinstance(event, Validated) and event.step == 6:
            raise Killed

    def resumes(**changed):
        told = tune(task, IMAGES, out=tmp_path, **{**options, **changed})
        return any("Resumed after step" in note for note in told.notes)

    task = image_task()
    options = {"epochs": 2, "batch_size": 8, "bootstrap_resamples": 10, "method": "fine-tune"}
    tune(task, IMAGES, out=tmp_path, **options)
    with pytest.raises(Killed):  # the result of the run before is still there
        tune(task, IMAGES, out=tmp_path, overwrite=True, observer=killer, **options)
    assert resumes()
    (tmp_path / "model.safetensors").unlink()
    assert resumes()
    assert (tmp_path / "model.safetensors").is_file()
    (tmp_path / "tuning.json").write_text("{")
    assert resumes()
    assert resumes(confidence=0.5)  # to be measured in another way
    assert tune(task, IMAGES, out=tmp_path, confidence=0.5, **options).arguments.confidence == 0.5


def test_a_loss_that_explodes_without_becoming_nan_is_divergence():
    with pytest.raises(DivergedError, match="a model that says the same of every input has 1"):
        tune(make_task("regression"), perceptron(0), restarts=0, warmup=0.0, **{**HOT, "learning_rate": 0.15})


COLLAPSES = {"method": "fine-tune", "steps": 180, "batch_size": 16, "learning_rate": 0.15, "warmup": 0.0}
"""The first steps throw the network off; over the ten epochs up to the first validation its mean loss hides that."""
LATE = {**COLLAPSES, "validate_every_epochs": 10.0, "keep_best": False}


def test_a_run_that_its_first_steps_have_thrown_off_starts_anew_at_a_lower_rate():
    task = make_task("regression")
    alone = tune(task, perceptron(2), restarts=0, **LATE)
    assert alone.metric("validation").value < 0.1
    assert max(line["parts"]["task"] for line in alone.curves if line["event"] == "step") > 30
    tuned = tune(task, perceptron(2), **LATE)
    (told,) = [note for note in tuned.notes if "restarts with" in note]
    assert "a model that says the same of every input has" in told
    assert tuned.arguments.learning_rate == pytest.approx(0.03)
    assert tuned.metric("validation").value > 0.8


def test_a_run_that_learns_nothing_at_a_low_rate_does_not_start_anew():
    tuned = tune(make_task("regression"), perceptron(2), **{**LATE, "learning_rate": 1e-9})
    assert not [note for note in tuned.notes if "restarts with" in note]


def test_a_run_that_was_thrown_off_at_the_last_rate_that_may_be_tried_goes_on():
    """Its data may have nothing to learn: that is no error."""
    tuned = tune(make_task("regression"), perceptron(2), **{**LATE, "learning_rate": 0.75, "restarts": 1})
    assert len([note for note in tuned.notes if "restarts with" in note]) == 1
    assert tuned.metric("validation").value < 0.1
    assert tuned.steps == 180


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
@pytest.mark.parametrize("rate", [1e-9, 0.3])
def test_no_kind_of_task_ends_below_its_linear_probe(kind, rate):
    tuned = tune(make_task(kind), perceptron(0), method="fine-tune", steps=12, learning_rate=rate, linear_probe=True)
    probe = tuned.tuning_run().probes["model"]
    assert tuned.metric("validation").value >= probe.metric("validation") - 1e-5
    if rate == 1e-9:
        assert any("the result is that probe" in note for note in tuned.notes)
        assert tuned.metric("test").value == pytest.approx(probe.metric("test"), abs=1e-5)


def test_restarts_are_bounded():
    with pytest.raises(DivergedError, match="restarted 2 times"):
        tune(make_task("regression"), perceptron(0), **{**HOT, "learning_rate": 1e6, "restarts": 2})


def test_regression_is_sane_at_defaults_whatever_the_size_of_the_features():
    task = make_task("regression", n=200)
    for size in (1.0, 100.0):
        target = perceptron(0, width=64)
        with torch.no_grad():
            target.module.body[-1].weight.mul_(size)
        tuned = tune(task, target, method="fine-tune", epochs=12, batch_size=16)
        assert tuned.metric().value > 0.3, size
        assert not tuned.warning


def test_numbers_start_from_the_null_model():
    tuned = tune(make_task("regression"), perceptron(0), method="fine-tune", epochs=40, batch_size=96)
    assert next(line["loss"] for line in tuned.curves if line["event"] == "step") == pytest.approx(1.0, rel=1e-4)


def test_a_saved_regression_model_speaks_in_the_targets_own_units(tmp_path):
    task = lights()
    tuned = tune(
        task, IMAGES, method="fine-tune", epochs=12, batch_size=16, learning_rate=0.01, augment="none", out=tmp_path
    )
    assert tuned.metric().value > 0.5
    mine = tuned.predict(list(task.test.inputs)).values
    assert 1000 < mine.mean() < 6000
    np.testing.assert_allclose(
        Tuned.load(tmp_path, allow_code=True).predict(list(task.test.inputs)).values, mine, rtol=1e-4
    )


def test_a_model_worse_than_guessing_is_marked(tmp_path):
    task = make_task("regression")
    # A validation and a test split in which everything is the other way round.
    turned = {
        name: Split(-split.inputs if name != "train" else split.inputs, split.targets)
        for name, split in task.splits.items()
    }
    wrong = Task("turned", "regression", "array", task.target_names, turned, "turned")
    options = {"method": "fine-tune", "epochs": 6, "batch_size": 16, "keep_best": False, "learning_rate": 0.01}
    with pytest.warns(UserWarning, match=r"worse than guessing: validation r2 -.*by always saying the mean of train"):
        tuned = tune(wrong, perceptron(0), out=tmp_path, **options)
    assert tuned.warning
    assert tuned.warning in tuned.notes
    assert tuned.warning in str(tuned)
    assert json.loads((tmp_path / "tuning.json").read_text())["warning"] == tuned.warning
    assert tuned.warning in (tmp_path / "README.md").read_text()
    assert not tune(task, perceptron(0), **options).warning


def test_the_model_is_saved_before_it_is_tested(tmp_path, monkeypatch):
    def fails(*arguments, **options):
        raise RuntimeError("the test split fell into the sea")

    monkeypatch.setattr(Outcome, "with_intervals", fails)
    with pytest.raises(RuntimeError, match="sea"):
        tune(lights(), IMAGES, method="fine-tune", epochs=1, batch_size=16, out=tmp_path)
    assert Tuned.load(tmp_path, allow_code=True).predict([np.zeros((16, 16, 3), np.uint8)]).values.shape == (1, 1)


def test_defaults_by_inputs_and_kind():
    settled = {
        (modality, kind): TuningArguments().settled(modality, kind)
        for modality, kind in (("image", "classification"), ("image", "regression"), ("text", "classification"))
    }
    found = {place: (arguments.optimizer, arguments.learning_rate) for place, arguments in settled.items()}
    assert found == {
        ("image", "classification"): ("sgd", 0.001),
        ("image", "regression"): ("adamw", 3e-4),
        ("text", "classification"): ("adamw", 5e-5),
    }
    assert TuningArguments(optimizer="sgd").settled("image", "regression").learning_rate == 0.001


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"method": "kdd"}, "Did you mean 'kd'"),
        ({"method": "kd"}, "learns from teachers"),
        ({"method": "fine-tune", "teachers": ["timm/a"]}, "has no teachers"),
        ({"model": "resnet18"}, "names no hub"),
        ({"lr": 0.1}, "it is called learning_rate"),
        ({"device": "cuda:1"}, "device='cuda:1': allowed are 'auto', 'cpu', 'cuda'"),
    ],
)
def test_a_wrong_argument_is_refused_before_data_are_read(arguments, told):
    with pytest.raises(InputError, match=re.escape(told)):
        tune("nowhere/", **{"model": "timm/resnet18", **arguments})


def test_how_long_a_run_is_where_nobody_says():
    assert TuningArguments().settled("image", "classification").epochs == 20
    assert TuningArguments().length(7) == 140
    assert TuningArguments(steps=30).settled("image", "classification").epochs is None
    assert TuningArguments(steps=30).length(7) == 30


@pytest.mark.parametrize("missing", [("test",), ("validation", "test")])
def test_a_task_without_all_splits_is_tuned_and_measured_on_what_it_has(tmp_path, missing):
    whole = make_task()
    there = {name: split for name, split in whole.splits.items() if name not in missing}
    task = Task(whole.name, whole.kind, whole.modality, whole.target_names, there, whole.fingerprint)
    tuned = tune(task, perceptron(0), out=tmp_path / "run", steps=4, batch_size=16, learning_rate=0.01)
    assert set(tuned.metrics) == {"validation", "test"} - set(missing)
    assert len(task.test) == 0


def test_a_run_holds_on_to_no_network():
    gc.disable()  # which may collect at any time
    try:
        model = perceptron(0)
        network = weakref.ref(model.module)
        tune(make_task(), model, steps=2)
        del model
        assert network() is None
    finally:
        gc.enable()
