from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hubscout.tasks.images import Images
from hubscout.tasks.sequences import Chained, Rows, content_digest, derived_fingerprint, join, row_digests


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


def test_join() -> None:
    assert join([[1], [2, 3]]) == [1, 2, 3]
    assert list(join(["a", "b"])) == ["a", "b"]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)


@given(values, values)
def test_different_content_has_different_digests(one: object, other: object) -> None:
    assert (content_digest(one) == content_digest(other)) == (repr(one) == repr(other))


def test_words_are_kept_apart() -> None:
    assert content_digest(["ab", "c"]) != content_digest(["a", "bc"])
    assert content_digest(["1", "2"]) != content_digest(["12"])


def test_memory_order_is_no_content() -> None:
    array = np.arange(6.0).reshape(2, 3)
    assert content_digest(array) == content_digest(np.asfortranarray(array)) == content_digest(array.astype(">f8"))
    assert content_digest(array) != content_digest(array.reshape(3, 2))
    assert content_digest(array) != content_digest(array.astype(np.float32))


def test_pillow_images() -> None:
    assert content_digest(Image.new("L", (2, 3))) != content_digest(Image.new("L", (3, 2)))


def test_rows_of_files_are_digested_in_order() -> None:
    data = [bytes([i % 256, i // 256]) for i in range(300)]
    expected = [hashlib.sha256(one).digest() for one in data]
    images = Images(data)
    assert list(row_digests(images)) == expected
    assert list(row_digests(Rows(images, [5, 3]))) == [expected[5], expected[3]]
    assert list(row_digests(Chained([images, images[:2]]))) == expected + expected[:2]


def test_views_have_the_digests_of_what_they_show() -> None:
    texts = ["a", "b", "c"]
    assert list(row_digests(Rows(texts, [2, 0]))) == [content_digest("c"), content_digest("a")]


def test_derived_fingerprints() -> None:
    assert derived_fingerprint("x", n=1, seed=2) == derived_fingerprint("x", seed=2, n=1)
    assert derived_fingerprint("x", n=1) != derived_fingerprint("y", n=1)
