"""A real run to report on: small networks pre-trained on one half of scikit-learn's digits, ranked on the other."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubscout.ranking import Ranking, Row
from hubscout.report import Run, open_run
from hubscout.runs.ranking import TaskSummary
from hubscout.tasks import Task

ZOO = '''
import torch
from sklearn.datasets import load_digits
from torch import nn


class Digits(nn.Module):
    """Two hidden layers, trained to tell the classes of `labels` on the even rows of the digits."""

    def __init__(self, width, depth):
        super().__init__()
        sizes = [64] + [width] * depth
        self.num_features = width
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in zip(sizes, sizes[1:])))

    def forward(self, inputs):
        return self.layers(inputs)


def build(name, width=32, depth=2, steps=60):
    torch.manual_seed(0)
    model = Digits(width, depth)
    inputs, labels = (torch.as_tensor(part[::2]) for part in load_digits(return_X_y=True))
    inputs = inputs.float() / 16
    labels = {"parity": labels % 2, "small": (labels < 3).long()}.get(name, labels)
    head = nn.Linear(width, int(labels.max()) + 1)
    optimiser = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=0.01)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(head(model(inputs)), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model
'''

MODELS = (
    "name=digits",
    "name=wide&width=128",
    "name=narrow&width=8",
    "name=parity",
    "name=small",
    "name=untrained&steps=0",
    "name=deep&depth=4",
)
METRICS = ("logme", "h-score", "knn")


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("zoo") / "zoo.py"
    path.write_text(ZOO)
    return f"python:{path}:build?"


@pytest.fixture(scope="session")
def task() -> Task:
    """The odd rows of the digits, which no model was pre-trained on."""
    from sklearn.datasets import load_digits

    inputs, labels = load_digits(return_X_y=True)
    names = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
    return Task.from_arrays((inputs[1::2] / 16).astype(np.float32), names[labels[1::2]], name="handwritten digits")


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory, zoo: str, task: Task) -> Path:
    """The folder of a real ranking with a model that fails, and of a real comparison of tuning methods."""
    from hubscout.ranking import rank
    from hubscout.tuning.method_comparison import compare

    folder = tmp_path_factory.mktemp("runs") / "digits"
    broken = f"{zoo}name=broken&width=zero"
    ranking = rank(
        task, [*(zoo + model for model in MODELS), broken], metrics=METRICS, layers="all", cache=False, out=folder
    )
    compare(
        task,
        ranking[-1].identifier,
        ranking.top(2),
        methods=("fine-tune", "b-tuning"),
        seeds=(0, 1),
        out=folder,
        epochs=3,
        device="cpu",
    )
    return folder


@pytest.fixture(scope="session")
def run(run_folder: Path) -> Run:
    return open_run(run_folder)


def make_row(index: int, identifier: str, targets: int, generator: np.random.Generator, **fields: Any) -> Row:
    """A row of plausible numbers; blocks are paired through their common noise."""
    score = float(0.9 - 0.03 * index + 0.01 * generator.standard_normal())
    blocks = score + 0.05 * generator.standard_normal(10)
    values: dict[str, Any] = {
        "identifier": identifier,
        "score": score,
        "scores": {"logme": score, "knn": score + 0.02 * float(generator.standard_normal())},
        "standard_error": 0.015,
        "gain": score,
        "per_target": tuple(float(v) for v in generator.gamma(2.0, 0.2, targets)),
        "block_scores": tuple(float(v) for v in blocks),
        "block_sizes": (50,) * 10,
        "n": 500,
        "feature_dim": 256,
        "params": int(1e6 * (1 + index) ** 1.3),
        "flops": int(1e9 * (1 + index)),
        "latency_seconds": 0.004 * (1 + index),
        "card": {"architecture": "resnet"},
    }
    return Row(**{**values, **fields})


@pytest.fixture(scope="session")
def make_ranking() -> Callable[..., Ranking]:
    def build(names: list[str], targets: tuple[str, ...] = ("cat", "dog", "bird"), **fields: Any) -> Ranking:
        generator = np.random.default_rng(0)
        rows = tuple(make_row(index, name, len(targets), generator) for index, name in enumerate(names))
        task = TaskSummary(
            name="pets",
            kind="classification",
            modality="image",
            fingerprint="0123456789abcdef",
            target_names=targets,
            rows={"train": 500, "validation": 50, "test": 100},
        )
        return Ranking(**{"task": task, "metrics": ("logme", "knn"), "rows": rows, **fields})

    return build


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go: $HUBSCOUT_ARTEFACTS, to look at them, or a temporary folder."""
    given = os.environ.get("HUBSCOUT_ARTEFACTS")
    folder = Path(given) if given else tmp_path_factory.mktemp("artefacts")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
