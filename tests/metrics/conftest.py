from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest


@dataclass(frozen=True)
class Data:
    features: np.ndarray
    logits: np.ndarray
    classes: np.ndarray
    labels: np.ndarray
    columns: np.ndarray

    def targets(self, kind: str) -> np.ndarray:
        return {"multilabel": self.labels, "regression": self.columns}.get(kind, self.classes)


def make(n: int = 90, width: int = 12, classes: int = 4, noise: float = 1.0, seed: int = 0) -> Data:
    """Features that know something of the targets, but not all."""
    generator = np.random.default_rng(seed)
    ids = np.concatenate([np.arange(classes), generator.integers(classes, size=n - classes)])
    features = generator.normal(size=(classes, width))[ids] + noise * generator.normal(size=(n, width))
    features *= np.exp(-np.arange(width) / width)
    logits = 2.0 * generator.normal(size=(classes, 7))[ids] + generator.normal(size=(n, 7))
    hidden = features @ generator.normal(size=(width, 3)) + generator.normal(size=(n, 3))
    return Data(features, logits, ids, (hidden > np.median(hidden, axis=0)).astype(int), hidden)


@pytest.fixture
def data() -> Data:
    return make()


@pytest.fixture
def wide() -> Data:
    """Fewer samples than dimensions."""
    return make(n=40, width=70, seed=1)


@pytest.fixture
def make_data():
    return make
