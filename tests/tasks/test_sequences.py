from __future__ import annotations

import pytest

from hubscout.tasks.sequences import Chained, Pairs, Rows, join


def test_rows_of_rows_are_one_step_deep() -> None:
    rows = Rows(Rows("abcdef", [5, 3, 1]), [2, 0])
    assert list(rows) == ["b", "f"]
    assert rows.base == "abcdef"
    assert list(rows[::-1]) == ["f", "b"]
    assert rows[-1] == "f"
    with pytest.raises(IndexError):
        rows[2]


def test_chained() -> None:
    chain = Chained(["ab", "", "cd"])
    assert [chain[i] for i in range(4)] == list(chain) == ["a", "b", "c", "d"]
    assert chain[-1] == "d"
    assert list(chain[1:3]) == ["b", "c"]
    for row in (4, -5):
        with pytest.raises(IndexError):
            chain[row]
    assert len(Chained([])) == 0


def test_join_and_pairs() -> None:
    assert join([[1], [2, 3]]) == [1, 2, 3]
    assert list(join(["a", "b"])) == ["a", "b"]
    pairs = Pairs("abc", "xyz")
    assert (len(pairs), pairs[1], list(pairs[1:])) == (3, ("b", "y"), [("b", "y"), ("c", "z")])
