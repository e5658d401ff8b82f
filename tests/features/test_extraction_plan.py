from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubscout.errors import InputError
from hubscout.features.extraction_plan import assign_blocks, cut, default_shard_rows, kept_groups


@given(st.integers(0, 100_000), st.one_of(st.none(), st.integers(1, 5_000)))
def test_shards_cover_every_row_once(n: int, shard_rows: int | None) -> None:
    shards = cut(n, shard_rows)
    assert sum(len(shard) for shard in shards) == n
    edges = [edge for shard in shards for edge in (shard.start, shard.stop)]
    assert edges == sorted(edges)
    assert all(len(shard) > 0 for shard in shards)


@given(st.integers(1, 10**8))
def test_there_are_never_many_shards(n: int) -> None:
    assert n / default_shard_rows(n) <= 200


@given(st.integers(1, 2000), st.integers(1, 30), st.text(max_size=10))
def test_blocks_are_even_and_repeatable(n: int, blocks: int, fingerprint: str) -> None:
    assigned = assign_blocks(n, blocks, fingerprint)
    sizes = np.bincount(assigned)
    assert len(sizes) == min(n, blocks)
    assert sizes.max() - sizes.min() <= 1
    np.testing.assert_array_equal(assigned, assign_blocks(n, blocks, fingerprint))


def test_another_task_has_other_blocks() -> None:
    assert not np.array_equal(assign_blocks(100, 10, "a"), assign_blocks(100, 10, "b"))


def test_a_shard_of_no_rows_is_refused() -> None:
    with pytest.raises(InputError, match="shard_rows"):
        cut(10, 0)


def test_blocks_do_not_divide_a_group() -> None:
    groups = np.random.default_rng(0).integers(0, 50, 1000)
    blocks = assign_blocks(1000, 10, "pets", groups)
    assert all(len(set(blocks[groups == group])) == 1 for group in range(50))
    assert len(set(blocks)) == 10
    assert np.ptp(np.bincount(blocks)) <= 2 * np.bincount(groups).max()
    assert set(assign_blocks(6, 10, "pets", np.array([1, 1, 2, 2, 3, 3]))) == {0, 1, 2}


def test_whole_groups_stay_up_to_so_many_rows() -> None:
    groups = np.repeat(np.arange(1000), 10)
    kept = kept_groups(groups, np.ones(10_000, dtype=np.int64), 2, "pets")
    assert 4096 <= kept.sum() < 4106
    assert set(kept.reshape(-1, 10).sum(axis=1)) == {0, 10}
