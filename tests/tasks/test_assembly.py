from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hubscout.errors import TaskError
from hubscout.tasks import Task

TEXTS = [f"a film number {i}" for i in range(20)]


def by_split(test: list[Any], train: tuple[Any, Any] = (0, 1)) -> dict[str, pd.DataFrame]:
    return {
        "train": pd.DataFrame({"text": TEXTS, "label": list(train) * 10}),
        "test": pd.DataFrame({"text": TEXTS[: len(test)], "label": test}),
    }


def from_frames(test: list[Any], train: tuple[Any, Any] = (0, 1)) -> Task:
    return Task.from_table(by_split(test, train))


def from_files(folder: Path, test: list[Any], train: tuple[Any, Any] = (0, 1)) -> Task:
    for split, frame in by_split(test, train).items():
        frame.to_csv(folder / f"{split}.csv", index=False)
    return Task.from_table(folder)


def from_datasets(test: list[Any], train: tuple[Any, Any] = (0, 1)) -> Task:
    datasets = pytest.importorskip("datasets")
    parts = {split: datasets.Dataset.from_pandas(frame) for split, frame in by_split(test, train).items()}
    return Task.from_hf(datasets.DatasetDict(parts))


def from_memory(test: list[Any], train: tuple[Any, Any] = (0, 1), **options: Any) -> Task:
    return Task.from_arrays(TEXTS, list(train) * 10, test=(TEXTS[: len(test)], test), **options)


@pytest.mark.parametrize("way", ["frames", "files", "datasets", "memory", "names"])
def test_a_split_of_minus_one_is_unlabelled(way: str, tmp_path: Path) -> None:
    test = [-1] * 5
    task = {
        "frames": lambda: from_frames(test),
        "files": lambda: from_files(tmp_path, test),
        "datasets": lambda: from_datasets(test),
        "memory": lambda: from_memory(test),
        "names": lambda: from_memory(test, target_names=["0", "1"]),
    }[way]()
    assert task.target_names == ("0", "1")
    assert sum(map(len, task.splits.values())) == 20
    assert any("5 of 5 rows in test have the label -1" in note for note in task.notes)
    assert any("no test split" in note for note in task.notes)


@pytest.mark.parametrize("make", [from_frames, from_memory])
def test_rows_of_minus_one_beside_labels_are_left_out(make: Any) -> None:
    task = make([0, -1, 1, -1, 0])
    assert task.target_names == ("0", "1")
    np.testing.assert_array_equal(task.test.targets, [0, 1, 0])
    assert list(task.test.inputs) == [TEXTS[0], TEXTS[2], TEXTS[4]]
    assert any("2 of 5 rows in test have the label -1" in note for note in task.notes)


def test_minus_one_and_one_are_classes() -> None:
    assert from_frames([-1, 1, -1], train=(-1, 1)).target_names == ("-1", "1")
    assert from_frames([-1, -1, -2], train=(-2, -1)).target_names == ("-2", "-1")
    assert from_frames(["b", "-1", "a"], train=("a", "b")).target_names == ("-1", "a", "b")


def test_minus_one_among_the_labels_of_train_is_refused() -> None:
    frame = pd.DataFrame({"text": TEXTS, "label": ([-1, 0, 1, 2] * 5)})
    with pytest.raises(TaskError, match=r"Train has the label -1 beside 0, 1, 2\..*Leave the label of such rows empty"):
        Task.from_table(frame)
    with pytest.raises(TaskError, match="in all rows"):
        from_memory([0, 1], train=(-1, -1))


def test_numbers_may_be_minus_one_unless_a_whole_split_is() -> None:
    whole = from_frames([-1.0] * 5, train=(0.5, 3.25))
    assert whole.kind == "regression"
    assert any("5 of 5 rows in test" in note for note in whole.notes)
    some = from_frames([-1.0, 2.0], train=(0.5, 3.25))
    np.testing.assert_array_equal(some.test.targets, [[-1.0], [2.0]])
    np.testing.assert_array_equal(from_frames([-1.0] * 2, train=(-0.5, 3.25)).test.targets, [[-1.0], [-1.0]])


def test_numbers_far_from_all_others_are_said() -> None:
    numbers = np.arange(60.0)[:, None] + [0, 100]
    numbers[7, 1] = 1e6
    task = Task.from_arrays(np.arange(60.0)[:, None], numbers, kind="regression", test_size=0, validation_size=0)
    (note,) = [note for note in task.notes if "far from all others" in note]
    assert "1 of 60 numbers of 'y1' in train, such as 1e+06 (half of train is from 115.75 to" in note
    frame = pd.DataFrame({"text": [f"a film {i}" for i in range(60)], "y": numbers[:, 1]})
    apart = Task.from_table({"train": frame[10:], "test": frame[:10]}, label="y", kind="regression")
    (note,) = [note for note in apart.notes if "far from all others" in note]
    assert "1 of 10 numbers of 'y' in test, such as 1e+06" in note
    usual = np.random.default_rng(0).lognormal(sigma=1.5, size=(500, 1))
    assert not [note for note in Task.from_arrays(usual, usual, kind="regression").notes if "far" in note]
    counts = np.zeros((50, 1))
    counts[:3] = 1  # mostly zero: no middle half to be far from
    assert not [note for note in Task.from_arrays(counts, counts, kind="regression").notes if "far" in note]


def test_a_column_of_one_number_is_left_out(tmp_path: Path) -> None:
    frame = pd.DataFrame({"text": TEXTS, "long": np.arange(20.0), "always": 7.0, "wide": np.arange(20.0) ** 2})
    task = Task.from_table(frame, text="text", label=["long", "always", "wide"])
    assert task.target_names == ("long", "wide")
    assert all(part.targets.shape[1] == 2 for part in task.splits.values())
    assert [note for note in task.notes if "left out" in note and "'always'" in note]
    with pytest.raises(TaskError, match=r"'always' has the one value 7 in all of train"):
        Task.from_table(frame, text="text", label="always", kind="regression")
