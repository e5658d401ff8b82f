"""Small but real backbones and tasks, built in the test: a convolutional network and a bag-of-words tagger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hubscout.hubs import Backbone, Batch, ModelCard, Output
from hubscout.tasks import Split, Task


class ArrayPreprocessing:
    def __init__(self, key: str = "array/scaled") -> None:
        self.key = key
        self.calls = 0

    def __call__(self, sample: np.ndarray) -> torch.Tensor:
        self.calls += 1
        return torch.from_numpy(np.asarray(sample, dtype=np.float32)) / 2.0

    def collate(self, samples: Sequence[torch.Tensor]) -> Batch:
        return {"pixels": torch.stack(list(samples))}

    def augmented(self) -> ArrayPreprocessing:
        return self


class ConvBackbone(Backbone):
    """A convolutional network of two stages, with a source head."""

    def __init__(self, seed: int = 0, width: int = 12, identifier: str = "test/conv") -> None:
        torch.manual_seed(seed)
        self.module = nn.ModuleDict(
            {
                "stem": nn.Conv2d(3, 8, 3, padding=1),
                "norm": nn.BatchNorm2d(8),
                "body": nn.Conv2d(8, width, 3, stride=2, padding=1),
                "head": nn.Linear(width, 5),
            }
        )
        self.preprocessing = ArrayPreprocessing()
        self.batches: list[int] = []
        self.card = ModelCard(
            identifier=identifier,
            architecture="conv",
            modalities=("array",),
            feature_dim=width,
            params=sum(p.numel() for p in self.module.parameters()),
            bytes=0,
            source_classes=5,
        )

    @property
    def layer_names(self) -> tuple[str, ...]:
        return ("stem", "body")

    def forward(self, batch: Batch, layers: Sequence[str] = ()) -> Output:
        x = batch["pixels"]
        self.batches.append(len(x))
        stem = torch.relu(self.module["norm"](self.module["stem"](x)))
        body = torch.relu(self.module["body"](stem))
        features = body.mean(dim=(2, 3))
        tapped = {"stem": stem.mean(dim=(2, 3)), "body": features}
        return Output(features, self.module["head"](features), {name: tapped[name] for name in layers})


class WordPreprocessing(ArrayPreprocessing):
    def __call__(self, sample: Any) -> list[int]:
        self.calls += 1
        words = sample.split() if isinstance(sample, str) else sample
        return [sum(map(ord, word)) % 97 for word in words]

    def collate(self, samples: Sequence[list[int]]) -> Batch:
        longest = max(map(len, samples))
        ids = torch.tensor([sample + [0] * (longest - len(sample)) for sample in samples])
        return {"ids": ids, "lengths": torch.tensor([len(sample) for sample in samples])}


class TaggerBackbone(Backbone):
    """An embedding of each word and of its left neighbour; one row a word, or a mean a text."""

    def __init__(self, *, words: bool = True) -> None:
        torch.manual_seed(1)
        self.module = nn.Embedding(97, 6)
        self.preprocessing = WordPreprocessing("words")
        self.words = words
        self.widths: list[int] = []
        self.card = ModelCard(
            identifier="test/tagger",
            architecture="bag",
            modalities=("tokens", "text"),
            feature_dim=6,
            params=582,
            bytes=0,
        )

    def forward(self, batch: Batch, layers: Sequence[str] = ()) -> Output:
        ids, lengths = batch["ids"], batch["lengths"]
        self.widths.append(ids.shape[1])
        states = self.module(ids)
        mask = torch.arange(ids.shape[1])[None] < lengths[:, None]
        if self.words:
            return Output(states[mask])
        return Output((states * mask[..., None]).sum(1) / lengths[:, None].clamp_min(1))


def image_task(n: int = 700, classes: int = 3, seed: int = 0, inputs: Any = None, kind: str = "classification") -> Task:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    images = rng.normal(size=(n, 3, 8, 8)).astype(np.float32) + labels[:, None, None, None] * 0.3
    names = tuple(f"class {c}" for c in range(classes))
    targets: np.ndarray = labels.astype(np.int64)
    if kind == "multilabel":
        targets = rng.integers(0, 2, (n, classes))
    elif kind == "regression":
        targets = rng.normal(size=(n, classes))
    train = Split(list(images) if inputs is None else inputs, targets)
    small = Split(list(images[:5]), targets[:5])
    return Task(
        "noise", kind, "array", names, {"train": train, "validation": small, "test": small}, f"noise-{n}-{seed}"
    )


def tagging_task(n: int = 400, seed: int = 0) -> Task:
    rng = np.random.default_rng(seed)
    words = [f"w{i}" for i in range(50)]
    sentences = [[words[i] for i in rng.integers(0, 50, rng.integers(1, 12))] for _ in range(n)]
    tags = [
        np.array([len(word) + int(word[1:]) % 2 - 2 for word in sentence], dtype=np.int64) for sentence in sentences
    ]
    split = Split(sentences, tags)
    return Task(
        "tags", "tagging", "tokens", ("a", "b", "c"), {"train": split, "validation": split, "test": split}, "tags"
    )


@pytest.fixture
def backbone() -> ConvBackbone:
    return ConvBackbone()


@pytest.fixture
def task() -> Task:
    return image_task()


@pytest.fixture
def make_backbone() -> type[ConvBackbone]:
    return ConvBackbone


@pytest.fixture
def make_tagger() -> type[TaggerBackbone]:
    return TaggerBackbone


@pytest.fixture
def make_image_task() -> Callable[..., Task]:
    return image_task


@pytest.fixture
def make_tagging_task() -> Callable[..., Task]:
    return tagging_task
