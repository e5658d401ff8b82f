"""Parquet files: values as they are stored, within the limits of memory."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hubscout.errors import TaskError
from hubscout.tasks import Task, parquet
from hubscout.tasks.parquet import RowGroups
from hubscout.tasks.reading import read_table


def test_large_columns_are_read_by_row_group(image_table: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = image_table(n=60)
    in_memory = Task.from_table(path)
    monkeypatch.setattr(parquet, "_LARGEST_IN_MEMORY_BYTES", 0)
    lazy = Task.from_table(path)
    assert isinstance(lazy.train.inputs.base.encoded, RowGroups)
    assert lazy == in_memory
    again = pickle.loads(pickle.dumps(lazy))
    for row in (0, 30, 3):
        np.testing.assert_array_equal(np.asarray(again.train.inputs[row]), np.asarray(in_memory.train.inputs[row]))


def repeated(value: str | bytes, times: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(times, dtype=np.int32)), pa.array([value]))


def bomb(name: str) -> pa.Table:
    """20 GB or so in some kilobytes."""
    large = "x" * 1_000_000
    if name == "rows":
        return pa.table({"label": pa.DictionaryArray.from_arrays(np.zeros(40_000_000, dtype=np.int8), ["a"])})
    if name == "beginnings":
        return pa.table({"text": [large + str(i) for i in range(300)]})
    texts, encoded = repeated(large, 20_000), repeated(large.encode(), 20_000)
    if name == "lists":
        starts = pa.array(np.arange(0, 20_001, 10, dtype=np.int32))
        return pa.table({"tokens": pa.ListArray.from_arrays(starts, texts)})
    if name == "pictures":
        paths = pa.nulls(20_000, pa.string())
        return pa.table({"image": pa.StructArray.from_arrays([encoded, paths], ["bytes", "path"])})
    return pa.table({"text": texts} if name == "texts" else {"image": encoded})


@pytest.mark.parametrize("name", ["texts", "bytes", "lists", "pictures", "rows", "beginnings"])
@pytest.mark.parametrize("noted", [True, False])
def test_a_parquet_bomb_is_not_written_out(name: str, noted: bool, tmp_path: Path) -> None:
    # Without Arrow's own notes in the file, it reads references as the values that they refer to.
    options: dict[str, Any] = {"store_schema": noted}
    if name == "beginnings":
        options |= {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}
    pq.write_table(bomb(name), tmp_path / "bomb.parquet", **options)
    assert (tmp_path / "bomb.parquet").stat().st_size < 200_000
    with pytest.raises(TaskError, match=r"unpacks to more than.*HUBSCOUT_MAX_UNPACKED_BYTES"):
        read_table(tmp_path / "bomb.parquet")


def test_repeated_values_are_read_as_they_are(tmp_path: Path) -> None:
    values = {
        "text": ["a", None, "b", "a"] * 5,
        "tokens": [["x", "y"], [], None, ["x"]] * 5,
        "image": [b"1", b"2", None, b"1"] * 5,
        "pair": [{"bytes": b"1", "path": None}, {"bytes": None, "path": "p"}] * 10,
        "number": [1, 2, None, 1] * 5,
    }
    forms = {"dictionary": {}, "plain": {"use_dictionary": False}}
    forms["beginnings"] = {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}
    for form, options in forms.items():
        pq.write_table(pa.table(values), tmp_path / f"{form}.parquet", row_group_size=7, **options)
        found = read_table(tmp_path / f"{form}.parquet").columns
        assert {name: list(column) for name, column in found.items()} == values
    frame = pd.DataFrame({"text": ["a b c", "d e f"] * 5, "label": pd.Categorical(["x", "y"] * 5)})
    frame.to_parquet(tmp_path / "categories.parquet")
    assert Task.from_table(tmp_path / "categories.parquet").target_names == ("x", "y")


def classes_described(values: list[Any], feature: Any, path: Path) -> Path:
    table = pa.table({"text": [f"text {number}" for number in range(len(values))], "label": values})
    described = json.dumps({"info": {"features": {"text": {"dtype": "string", "_type": "Value"}, "label": feature}}})
    pq.write_table(table.replace_schema_metadata({"huggingface": described}), path)
    return path


def test_classes_have_the_names_that_hugging_face_wrote_beside_them(tmp_path: Path) -> None:
    names = {"names": ["cat", "dog", "eel"], "_type": "ClassLabel"}
    plain = classes_described([0, 1, 2, 0, 1, -1] * 5, names, tmp_path / "plain.parquet")
    task = Task.from_table(plain)
    assert task.target_names == ("cat", "dog", "eel")
    assert sum(map(len, task.splits.values())) == 25
    for number, wrapped in enumerate(({"feature": names, "_type": "List"}, [names])):
        several = classes_described([[0, 2], [1], [0], [2]] * 5, wrapped, tmp_path / f"{number}.parquet")
        task = Task.from_table(several, kind="multilabel")
        assert task.target_names == ("cat", "dog", "eel")


@pytest.mark.parametrize("feature", [{"names": ["cat"], "_type": "ClassLabel"}, {"_type": "ClassLabel"}, "x", None])
def test_a_description_that_does_not_fit_is_not_believed(feature: Any, tmp_path: Path) -> None:
    path = classes_described([0, 1] * 10, feature, tmp_path / "odd.parquet")
    assert Task.from_table(path).target_names == ("0", "1")


def test_datasets_writes_what_is_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    rows = {"text": [f"text {number}" for number in range(20)], "label": [0, 1] * 10}
    datasets.Dataset.from_dict(rows, features).to_parquet(tmp_path / "rows.parquet")
    assert Task.from_table(tmp_path / "rows.parquet").target_names == ("no", "yes")
