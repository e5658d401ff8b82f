"""Rankings made by hand, with block scores whose differences are known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hubscout.ranking import Ranking, Row
from hubscout.ranking.ranking import TaskSummary

Maker = Callable[..., Ranking]


@pytest.fixture
def task_summary() -> TaskSummary:
    return TaskSummary(
        name="pets", kind="classification", modality="image", fingerprint="f" * 16, target_names=("cat", "dog"),
        rows={"train": 1000, "validation": 100, "test": 100}, notes=("labels from folders",), source={"kind": "image-folder", "path": "pets"},
    )  # fmt: skip


@pytest.fixture
def make_row() -> Callable[..., Row]:
    def build(name: str, score: float, *, spread: float = 0.01, seed: int = 0, **fields: object) -> Row:
        noise = np.random.default_rng(seed).standard_normal(10)
        noise = (noise - noise.mean()) / noise.std(ddof=1)
        defaults: dict[str, object] = {
            "identifier": name,
            "score": score,
            "scores": {"logme": score},
            "standard_error": spread / np.sqrt(10),
            "gain": score + 1.0,
            "per_target": (score + 0.9, score + 1.1),
            "block_scores": tuple((score + spread * noise).tolist()),
            "block_sizes": (100,) * 10,
            "n": 1000,
            "feature_dim": 64,
            "params": 1_000_000,
        }
        return Row(**{**defaults, **fields})

    return build


@pytest.fixture
def make_ranking(task_summary: TaskSummary) -> Maker:
    def build(*rows: Row, **fields: object) -> Ranking:
        return Ranking(**{"task": task_summary, "metrics": ("logme",), "rows": rows, **fields})

    return build
