"""Every kind of task races: classes, labels, numbers and tags; of arrays, images, texts and pairs of texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from racing_networks import QUICK, names

from hubscout.racing import Race, race
from hubscout.tasks import Split, Task
from hubscout.tasks.kinds import KINDS
from hubscout.tuning import Tuned
from small_models import WORDS, save_bert

COLOURS = """
from torch import nn


def make(width=8, seed=0):
    import torch

    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(3, width, 3, stride=2), nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    net.num_features = width
    net.pretrained_cfg = {"input_size": (3, 16, 16), "mean": (0.5,) * 3, "std": (0.5,) * 3, "crop_pct": 1.0}
    return net
"""


def check(found: Race, out: Path, above: float) -> None:
    """The winner learnt something, every look is paired, and the model in the folder predicts."""
    assert found.tuned is not None
    assert found.tuned.metric("test").value > above
    started = {look.arm for look in found.looks if look.rung == 0}  # a rate beyond theirs may diverge
    for rung in {look.rung for look in found.looks}:
        seen = [look for look in found.looks if look.rung == rung and look.arm in started]
        assert len({len(look.log_likelihoods) for look in seen}) == 1
        assert not [look.failure for look in seen if look.failure]
    Tuned.load(out / "winner", allow_code=True)


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_arrays(networks: Path, tmp_path: Path, kind: str) -> None:
    draw = np.random.default_rng(1)
    inputs = draw.normal(size=(300, 6)).astype(np.float32)
    targets = inputs[:, :2] @ np.ones((2, 2)) + inputs[:, 2:4]
    labels = {"classification": targets[:, 0] > 0, "multilabel": (targets > 0).astype(int), "regression": targets}[kind]
    task = Task.from_arrays(inputs, labels, kind=kind, name=kind)
    models = names(networks, "width=4", "width=32")
    check(race(task, models, out=tmp_path / "run", refit=True, **QUICK), tmp_path / "run", 0.2)


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_images(tmp_path: Path, kind: str) -> None:
    (tmp_path / "nets.py").write_text(COLOURS)
    draw = np.random.default_rng(0)
    brightness = draw.uniform(size=160)
    pixels = np.clip(255 * brightness[:, None, None, None] + 20 * draw.normal(size=(160, 16, 16, 3)), 0, 255)
    labels = (brightness > 0.5).astype(int) if kind == "classification" else brightness
    task = Task.from_arrays(pixels.astype(np.uint8), labels, kind=kind, name="bright", modality="image")
    models = [f"python:{tmp_path / 'nets.py'}:make?width={width}" for width in (4, 8)]
    found = race(task, models, out=tmp_path / "run", **{**QUICK, "batch_size": 16, "augment": "none"})
    check(found, tmp_path / "run", 0.3)


@pytest.fixture(scope="module")
def berts(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two small encoders of transformers, with a tokenizer of a few words."""
    return [save_bert(tmp_path_factory.mktemp(f"bert-{width}"), width=width, seed=width) for width in (8, 16)]


def text_task(modality: str, kind: str) -> Task:
    draw = np.random.default_rng(0)

    def split(count: int) -> Split:
        good = np.arange(count) % 2
        first = [f"a {draw.choice(WORDS[2 * k : 2 * k + 2])} {draw.choice(WORDS[4:6])}" for k in 1 - good]
        if kind == "tagging":
            inputs: list[object] = [text.split() for text in first]
            return Split(inputs, [np.array([2, 1 - k, 2]) for k in good])
        inputs = [(text, "the good film") for text in first] if modality == "text-pair" else list(first)
        return Split(inputs, good if kind == "classification" else good[:, None].astype(float))

    names = {"classification": ("bad", "good"), "regression": ("score",), "tagging": ("good", "bad", "other")}[kind]
    splits = {"train": split(64), "validation": split(8), "test": split(16)}
    return Task(f"opinions-{modality}-{kind}", kind, modality, names, splits, f"opinions-{modality}-{kind}")


@pytest.mark.parametrize(
    ("modality", "kind"),
    [("text", "classification"), ("text-pair", "classification"), ("text-pair", "regression"), ("tokens", "tagging")],
)
def test_texts(berts: list[str], tmp_path: Path, modality: str, kind: str) -> None:
    task = text_task(modality, kind)
    options = {**QUICK, "steps": 40, "batch_size": 16, "workers": 0, "learning_rate": 5e-3}
    if kind == "tagging":
        options["trade_off"] = 2.0
    found = race(task, berts, out=tmp_path / "run", deploy=berts[0], **options)
    check(found, tmp_path / "run", 0.5)
    assert found.deployed is not None
    if kind == "tagging":
        assert found.winner.model != berts[0]
        assert found.deployed.teachers == ()
        assert any("nobody teaches the model to deploy" in note for note in found.notes)
        assert "Not heeded by fine-tune without teachers: trade_off=2.0." in found.notes
    assert Tuned.load(tmp_path / "run" / "deployed").predict(list(task.test.inputs)) is not None


def test_no_kind_of_task_is_forgotten() -> None:
    assert set(KINDS) == {"classification", "multilabel", "regression", "tagging"}
