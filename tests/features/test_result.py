"""Sums over blocks do not depend on how the rows came, and those of tapped layers are made when they are asked for."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hubscout.evidence.array_backend import to_host
from hubscout.evidence.block import ARRAYS
from hubscout.evidence.statistics import Statistics
from hubscout.features.result import BlockAccumulator, LayerStatistics

ON_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_CUDA)])
def test_rows_in_many_pieces_give_the_sums_of_each_block(device: str) -> None:
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(1500, 4)).astype(np.float32), rng.integers(0, 3, 1500)
    blocks = rng.integers(0, 2, 1500)  # more rows of a block than are held back
    names = ("a", "b", "c")
    accumulator = BlockAccumulator("classification", names, device=device)
    expected = Statistics("classification", names)
    for rows in np.array_split(np.arange(1500), 40):
        accumulator.add(features[rows], targets[rows], blocks[rows], np.where(rows < 10, rows, -1))
    for block in range(2):
        expected.update(features[blocks == block], targets[blocks == block], block=block)
    found = accumulator.finish()
    assert found.n == expected.n == 1500
    for block in range(2):
        one, other = found.blocks[block].about_zero(), expected.blocks[block].about_zero()
        for name in ("gram", "cross", "feature_sum", "target_sum"):
            np.testing.assert_allclose(to_host(getattr(one, name)), getattr(other, name), rtol=1e-9, atol=1e-9)
    assert np.concatenate([kept.features for kept in found.kept]).tolist() == features[:10].tolist()


def test_statistics_of_tapped_layers_are_made_when_they_are_asked_for() -> None:
    made: list[str] = []

    def make() -> Statistics:
        made.append("stem")
        return Statistics("regression", ("y",))

    statistics = LayerStatistics({"": Statistics("regression", ("y",))}, {"stem": make})
    assert (list(statistics), len(statistics), made) == (["", "stem"], 2, [])
    assert statistics["stem"].n == 0
    assert made == ["stem"]
    with pytest.raises(KeyError):
        statistics["head"]


def test_memory_of_sums_stays_until_the_stream_that_reads_them_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU: stand-ins, since the sums belong to a stream of their own, and another one reads them."""
    made, recorded, real = SimpleNamespace(synchronize=lambda: None), [], torch.Tensor.to
    monkeypatch.setattr("hubscout.evidence.array_backend.HOST_TENSORS_AS_NUMPY", False)
    monkeypatch.setattr("hubscout.features.result._stream_beside", lambda device: made)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "that of the caller")
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *given: self if given == ("cuda",) else real(self, *given))
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: recorded.append((id(self), stream)))
    accumulator = BlockAccumulator("classification", ("a", "b"), device="cuda")
    rng = np.random.default_rng(0)
    accumulator.add(rng.normal(size=(40, 3)).astype(np.float32), rng.integers(0, 2, 40), np.arange(40) % 2)
    found = accumulator.finish()
    held = {id(getattr(block, name)) for block in found.blocks.values() for name in ARRAYS}
    assert len(held) >= 2 * 5
    assert {one for one, _ in recorded} == held
    assert {stream for _, stream in recorded} == {"that of the caller"}
