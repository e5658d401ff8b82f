from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubscout.errors import TaskError
from hubscout.tasks import Task
from hubscout.tasks.labels import class_name, encode_classes, encode_label_sets, encode_tags, guess_kind


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["a", "b"], "classification"),
        (["1", "2", ""], "classification"),
        ([1.0, 2.0, float("nan")], "classification"),
        (["1.5", "2"], "regression"),
        ([0.1], "regression"),
        (list(range(500)), "regression"),
        ([i % 200 for i in range(5000)], "classification"),
        ([3 * (i % 60) + i % 2 for i in range(120)], "regression"),  # lengths, prices: few rows per number, with gaps
        ([i % 60 for i in range(120)], "classification"),  # two of each of 60 numbered classes
        ([7 * (i % 60) for i in range(600)], "classification"),
        ([["a"], []], "multilabel"),
        ([True, False], "classification"),
        (["a", 1.5], "classification"),
        ([None], "classification"),
    ],
)
def test_kinds(values: list[object], kind: str) -> None:
    assert guess_kind(values)[0] == kind


def test_names_that_differ_by_case_are_distinct() -> None:
    names, ids = encode_classes({"train": ["Cat", "cat", "CAT", " cat "]})
    assert names == ("CAT", "Cat", "cat")
    np.testing.assert_array_equal(ids["train"], [1, 2, 0, 2])


def test_numbers_are_sorted_as_numbers_and_whole_floats_are_whole() -> None:
    names, ids = encode_classes({"train": [10, 9.0, -1], "test": [np.int64(9)]})
    assert names == ("-1", "9", "10")
    assert ids["test"].tolist() == [1]


def test_whole_numbers_are_one_class_with_and_without_decimals(write: Callable[..., Path]) -> None:
    """A column with a gap is written with decimals, the next file without one not; version numbers stay as they are."""
    files = {
        "train": write("train.csv", "text,stars\n" + "so so,1.0\nvery good,5.0\nno stars,\n" * 5),
        "test": write("test.csv", "text,stars\n" + "so so,1\nvery good,5\n" * 5),
    }
    assert Task.from_table(files).target_names == ("1", "5")
    assert encode_classes({"test": ["5.0", "1"]}, ["1", "5"])[1]["test"].tolist() == [1, 0]
    assert encode_classes({"test": ["5.0"]}, ["1.0", "5.0"])[1]["test"].tolist() == [1]
    assert encode_classes({"train": ["1.0", "1.5", "2.0"]})[0] == ("1.0", "1.5", "2.0")
    assert encode_classes({"train": ["007", "7"]})[0] == ("007", "7")


def test_mixed_types_name_both_rows() -> None:
    with pytest.raises(TaskError, match=r"'a' \(train, row 0\) is text, 3 \(test, row 0\) is number"):
        encode_classes({"train": ["a"], "test": [3]})
    with pytest.raises(TaskError, match="mixed types"):
        encode_tags({"train": [["a", 1]]})
    with pytest.raises(TaskError, match="mixed types"):
        encode_label_sets({"train": [["a"], [1]]})


@pytest.mark.parametrize("value", [["a"], object(), float("inf"), b"a"])
def test_what_is_no_class(value: object) -> None:
    with pytest.raises(TaskError, match="label"):
        class_name(value)


@given(st.lists(st.text(alphabet="abc", max_size=3), min_size=1))
def test_ids_and_names_are_inverse(labels: list[str]) -> None:
    names, ids = encode_classes({"train": labels})
    assert [names[i] for i in ids["train"]] == labels
    assert list(names) == sorted(set(labels))


@given(st.lists(st.sets(st.sampled_from("abcde")), min_size=1))
def test_label_sets_and_matrices_are_inverse(sets: list[set[str]]) -> None:
    names, matrices = encode_label_sets({"train": sets})
    assert [{names[i] for i in np.flatnonzero(row)} for row in matrices["train"]] == sets


def test_lists_of_zeros_and_ones_are_rows_of_a_matrix() -> None:
    names, matrices = encode_label_sets({"train": [[0, 1, 1], [1, 0, 0]], "test": [[0, 0, 0]]})
    assert names == ("0", "1", "2")
    assert matrices["train"].tolist() == [[0, 1, 1], [1, 0, 0]]
    assert matrices["test"].tolist() == [[0, 0, 0]]
    names, matrices = encode_label_sets({"train": [[0, 1], [1]]})
    assert matrices["train"].tolist() == [[1, 1], [0, 1]]


@pytest.mark.parametrize("form", ["frame", "parquet"])
def test_labels_that_only_databases_have(form: str, tmp_path: Path) -> None:
    """Columns of exact decimals and of dates are read as the same labels in a CSV file are."""
    texts, days = [f"a film {i}" for i in range(40)], [date(2024, 5, 1 + i % 2) for i in range(40)]

    def opened(labels: list[Any]) -> Task:
        frame = pd.DataFrame({"text": texts, "label": pd.Series(labels, dtype=object)})
        if form == "frame":
            return Task.from_table(frame)
        frame.to_parquet(tmp_path / "a.parquet")
        return Task.from_table(tmp_path / "a.parquet")

    assert opened([Decimal(i % 2) for i in range(40)]).target_names == ("0", "1")
    priced = opened([Decimal(i) / 4 for i in range(40)])
    assert priced.kind == "regression"
    assert float(priced.train.targets.max()) == 9.75
    assert opened(list(days)).target_names == ("2024-05-01", "2024-05-02")
    moments = [datetime(2024, 5, 1 + i % 2, 12 * (i % 2)) for i in range(40)]
    assert opened(moments).target_names == ("2024-05-01", "2024-05-02T12:00:00")
