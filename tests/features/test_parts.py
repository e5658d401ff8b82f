"""Parts of a model put together in any order give the whole, and only the whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hubscout.errors import EngineError
from hubscout.features import extract
from hubscout.features.parts import Merger, Part, pack
from hubscout.hubs import Backbone, load
from hubscout.tasks import Task

NETWORK = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(12, 6), nn.ReLU())
    network.num_features = 6
    return network
"""


@pytest.fixture
def task() -> Task:
    generator = np.random.default_rng(0)
    return Task.from_arrays(generator.standard_normal((1500, 12)).astype(np.float32), ["a", "b", "c"] * 500)


@pytest.fixture
def backbone(tmp_path: Path) -> Backbone:
    (tmp_path / "network.py").write_text(NETWORK)
    return load(f"python:{tmp_path}/network.py:make")


def parts_of(backbone: Backbone, task: Task, *, arrays: bool) -> list[Part]:
    found = []
    for shards in ([0, 1], [2], [3, 4]):
        extraction = extract(backbone, task, shards=shards, keep_features=arrays)
        found.append(pack(extraction, arrays=arrays, statistics=not arrays))
    return found


@pytest.mark.parametrize(("arrays", "keep"), [(False, False), (True, False), (True, True)])
def test_the_order_of_arrival_does_not_matter(backbone: Backbone, task: Task, arrays: bool, keep: bool) -> None:
    parts = parts_of(backbone, task, arrays=arrays)
    whole = extract(backbone, task)
    sums = []
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        merger = Merger(task, "train", np.arange(len(task.train)), parts=3, blocks=10, keep=keep)
        for number in order:
            assert not merger.complete
            merger.add(number, parts[number])
        assert merger.complete
        found = merger.extraction()
        np.testing.assert_array_equal(found.rows, whole.rows)
        np.testing.assert_array_equal(found.targets, whole.targets)
        if keep:
            np.testing.assert_array_equal(found.features(), whole.features())
        sums.append(found.statistics[""])
    for other in sums:
        assert other.n == whole.n
        assert sorted(other.blocks) == list(range(10))
        for index, block in other.blocks.items():
            np.testing.assert_array_equal(block.gram, sums[0].blocks[index].gram)
            np.testing.assert_allclose(block.gram, whole.statistics[""].blocks[index].gram, rtol=1e-12)


def test_a_part_counts_once_and_none_may_be_missing(backbone: Backbone, task: Task) -> None:
    parts = parts_of(backbone, task, arrays=True)
    merger = Merger(task, "train", np.arange(len(task.train)), parts=3, blocks=10, keep=False)
    merger.add(0, parts[0])
    with pytest.raises(EngineError, match="came twice"):
        merger.add(0, parts[0])
    merger.add(1, parts[2])
    merger.add(2, parts[2])
    with pytest.raises(EngineError, match="samples"):
        merger.extraction()
