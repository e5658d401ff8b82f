"""Batches become shards in the order of the data, and shards are kept until they are read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubscout.errors import CacheError, InputError
from hubscout.features.shards import FINAL, BatchResult, Collector, MemoryStore, ShardData, WithFallback, word_positions


@given(st.lists(st.integers(0, 5), max_size=20), st.randoms())
def test_words_follow_their_sentences(counts: list[int], random: object) -> None:
    order = np.random.default_rng(0).permutation(len(counts))
    words = np.array([(s, w) for s, count in enumerate(counts) for w in range(count)]).reshape(-1, 2)
    expected = [(s, w) for s in order for w in range(counts[s])]
    assert words[word_positions(counts, order)].tolist() == [list(pair) for pair in expected]


def test_batches_in_any_order_become_a_shard_in_the_order_of_the_plan() -> None:
    finished: list[ShardData] = []
    collector = Collector({3: np.array([5, 6, 7, 8])}, finished.append)
    for rows, skipped in (([8, 5], (6,)), ([7], ())):
        assert not finished
        arrays = {FINAL: np.array(rows, dtype=np.float32)[:, None]}
        collector.add(BatchResult(3, np.array(rows), skipped, np.ones(len(rows), dtype=int), arrays))
    (shard,) = finished
    assert (shard.index, shard.rows.tolist(), shard.skipped) == (3, [5, 7, 8], (6,))
    assert shard.arrays[FINAL].tolist() == [[5], [7], [8]]


def test_a_shard_does_not_hang_on_the_arrays_of_its_batch() -> None:
    finished: list[ShardData] = []
    collector = Collector({0: np.array([5, 6])}, finished.append)
    buffer = np.array([[1.0], [2.0], [3.0]])
    collector.add(BatchResult(0, np.array([5, 6]), (), np.ones(2, dtype=int), {FINAL: buffer[:2]}))
    buffer[:] = 0  # the network writes the next batch to the same place
    assert finished[0].arrays[FINAL].tolist() == [[1], [2]]


def test_a_store_that_keeps_nothing_says_how_to_keep_it() -> None:
    store = MemoryStore(keep=False)
    store.put(ShardData(0, np.arange(2), {FINAL: np.zeros((2, 3))}))
    assert not store.has(0, FINAL)
    with pytest.raises(InputError, match="keep_features=True"):
        store.read(0, FINAL)


def test_what_the_cache_does_not_take_goes_on_in_memory() -> None:
    class Full(MemoryStore):
        def put(self, data: ShardData) -> None:
            if data.index > 0:
                raise CacheError("no room")
            super().put(data)

    told: list[str] = []
    store = WithFallback(Full(), MemoryStore(), told.append)
    for index in range(3):
        store.put(ShardData(index, np.arange(1), {FINAL: np.full((1, 1), index)}))
    assert [store.read(index, FINAL).item() for index in range(3)] == [0, 1, 2]
    assert told == ["going on without the cache: no room"]
