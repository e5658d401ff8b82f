"""Batches become shards in the order of the data, and shards are kept until they are read."""

from __future__ import annotations

import tracemalloc

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
    collector = Collector({3: np.array([5, 6, 7, 8])}, np.ones_like, finished.append)
    for rows, skipped in (([8, 5], (6,)), ([7], ())):
        assert not finished
        arrays = {FINAL: np.array(rows, dtype=np.float32)[:, None]}
        collector.add(BatchResult(3, np.array(rows), skipped, arrays))
    (shard,) = finished
    assert (shard.index, shard.rows.tolist(), shard.skipped) == (3, [5, 7, 8], (6,))
    assert shard.arrays[FINAL].tolist() == [[5], [7], [8]]


def test_a_shard_does_not_hang_on_the_arrays_of_its_batch() -> None:
    finished: list[ShardData] = []
    collector = Collector({0: np.array([5, 6])}, np.ones_like, finished.append)
    buffer = np.array([[1.0], [2.0], [3.0]])
    collector.add(BatchResult(0, np.array([5, 6]), (), {FINAL: buffer[:2]}))
    buffer[:] = 0  # the network writes the next batch to the same place
    assert finished[0].arrays[FINAL].tolist() == [[1], [2]]


def test_words_go_to_the_places_of_their_sentences_and_leave_none_for_one_that_was_skipped() -> None:
    finished: list[ShardData] = []
    words = {4: 2, 5: 3, 6: 1, 7: 2}
    collector = Collector({0: np.array([4, 5, 6, 7])}, lambda rows: np.array([words[r] for r in rows]), finished.append)
    for rows, skipped in (([7, 4], ()), ([], (5,)), ([6], ())):
        arrays = {FINAL: np.array([[10.0 * row + word] for row in rows for word in range(words[row])])} if rows else {}
        collector.add(BatchResult(0, np.array(rows, dtype=np.int64), skipped, arrays))
    (shard,) = finished
    assert (shard.rows.tolist(), shard.skipped) == ([4, 6, 7], (5,))
    assert shard.arrays[FINAL].ravel().tolist() == [40, 41, 60, 70, 71]


def test_a_shard_of_which_nothing_could_be_read_is_empty() -> None:
    finished: list[ShardData] = []
    collector = Collector({0: np.array([4, 5])}, np.ones_like, finished.append)
    collector.add(BatchResult(0, np.zeros(0, dtype=np.int64), (5, 4), {}))
    assert (finished[0].rows.tolist(), dict(finished[0].arrays), finished[0].skipped) == ([], {}, (4, 5))


def test_a_shard_is_not_in_memory_twice() -> None:
    rows, width = np.arange(512), 256
    finished: list[ShardData] = []
    collector = Collector({0: rows}, np.ones_like, finished.append)
    tracemalloc.start()
    try:
        for batch in np.random.default_rng(0).permutation(rows).reshape(-1, 16):
            collector.add(BatchResult(0, batch, (), {FINAL: np.ones((16, width), dtype=np.float32)}))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert finished[0].arrays[FINAL].shape == (512, width)
    assert peak < 1.5 * finished[0].arrays[FINAL].nbytes


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
