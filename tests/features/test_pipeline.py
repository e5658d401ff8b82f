"""Which rows go through a model together."""

from __future__ import annotations

import numpy as np

from hubscout.features.pipeline import plan


def test_texts_are_batched_like_with_like_and_a_few_very_long_ones_apart():
    lengths = {row: 40 + row for row in range(64)} | {7: 3000, 50: 2500}
    batches = [batch.rows.tolist() for batch in plan([(0, np.arange(64))], 32, lengths.__getitem__)]
    assert [len(rows) for rows in batches] == [2, 30, 32]
    assert batches[0] == [7, 50]
    assert sorted(row for rows in batches for row in rows) == list(range(64))
    # What saves little stays one batch, and inputs of one size have no lengths.
    assert [len(batch.rows) for batch in plan([(0, np.arange(64))], 32, lambda row: 40 + row)] == [32, 32]
    assert [batch.rows.tolist() for batch in plan([(0, np.arange(5))], 2, None)] == [[0, 1], [2, 3], [4]]
