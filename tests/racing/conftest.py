"""Networks and data that races of the tests are run with."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from hubscout.tasks import Task

sys.path.insert(0, str(Path(__file__).parent))

from racing_networks import NETWORKS


@pytest.fixture
def networks(tmp_path: Path) -> Path:
    (tmp_path / "nets.py").write_text(NETWORKS)
    return tmp_path / "nets.py"


@pytest.fixture(scope="session")
def task() -> Task:
    """Whether the product of two inputs is positive: a wide network learns it, one of width 2 cannot."""
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(600, 6)).astype(np.float32)
    return Task.from_arrays(inputs, (inputs[:, 0] * inputs[:, 1] > 0).astype(int), kind="classification", name="signs")
