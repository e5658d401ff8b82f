from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from hubscout.errors import TaskError
from hubscout.tasks import Task

X = np.arange(60.0).reshape(20, 3)


def test_labels_with_gaps_are_names() -> None:
    task = Task.from_arrays(X, np.array([2, 7, 100, 7] * 5))
    assert task.target_names == ("2", "7", "100")
    assert set(task.train.targets) == {0, 1, 2}


def test_given_names_are_looked_up_by_id() -> None:
    task = Task.from_arrays(X, [0, 2] * 10, target_names=["z", "y", "x"])
    assert task.target_names == ("z", "y", "x")
    assert set(task.train.targets) == {0, 2}
    assert any("'y'" in note for note in task.notes)
    with pytest.raises(TaskError, match="not an id into the 3 target names"):
        Task.from_arrays(X, [0, 3] * 10, target_names=["z", "y", "x"])
    with pytest.raises(TaskError, match="'w'"):
        Task.from_arrays(X, ["z", "w"] * 10, target_names=["z", "y", "x"])


def test_groups_are_not_divided() -> None:
    patients = [f"patient {row // 4}" for row in range(20)]
    task = Task.from_arrays(X, [0, 1] * 10, groups=patients, seed=3)
    held = [set(split.groups.tolist()) for split in task.splits.values()]  # type: ignore[union-attr]
    assert sum(map(len, held)) == len(set.union(*held)) == 5
    assert all(any("whole groups" in note and split in note for note in task.notes) for split in ("test", "validation"))
    alone = Task.from_arrays(X, [0, 1] * 10, groups=[None] * 20)
    assert len(alone.test) == 4  # each is by itself
    given = Task.from_arrays(X, [0, 1] * 10, groups=np.array(patients)[:, None], test=(X, [0, 1] * 10))
    assert len(np.unique(given.test.groups)) == 20
    with pytest.raises(TaskError, match="groups has 3 values for 20 inputs"):
        Task.from_arrays(X, [0, 1] * 10, groups=[1, 2, 3])


def test_a_task_with_other_groups_is_another_one() -> None:
    splits = {split: (X, [0, 1] * 10) for split in ("validation", "test")}
    tasks = [Task.from_arrays(X, [0, 1] * 10, groups=groups, **splits) for groups in (None, [0] * 20, range(20))]
    assert len({task.fingerprint for task in tasks}) == 3
    assert len({task.train.fingerprint for task in tasks}) == 1  # features may be cached


@pytest.mark.parametrize(
    ("targets", "kind"),
    [
        (["a", "b"] * 10, "classification"),
        ([True, False] * 10, "classification"),
        (np.linspace(0, 1, 20), "regression"),
        (np.linspace(0, 1, 40).reshape(20, 2), "regression"),
        (np.tile([[0, 1, 0], [1, 1, 0]], (10, 1)), "multilabel"),
        ([["a"], ["a", "b"]] * 10, "multilabel"),
        (torch.arange(20) % 3, "classification"),
        ([[0, 1, 0], [1, 1, 0]] * 10, "multilabel"),
        ([[0.5, 1.0], [2.0, 0.25]] * 10, "regression"),
    ],
)
def test_kinds_are_guessed(targets: object, kind: str) -> None:
    task = Task.from_arrays(X, targets)
    assert task.kind == kind
    assert any(kind in note for note in task.notes)


def test_shapes_and_types_of_targets() -> None:
    numbers = Task.from_arrays(X, np.linspace(0, 1, 20), kind="regression")
    assert numbers.train.targets.shape == (14, 1)
    assert numbers.train.targets.dtype == np.float64
    labels = Task.from_arrays(X, [["b"], ["a", "b"]] * 10)
    assert labels.target_names == ("a", "b")
    assert labels.train.targets.shape == (14, 2)
    assert Task.from_arrays(X, ["b", "a"] * 10).train.targets.dtype == np.int64


def test_modalities_are_guessed() -> None:
    y = [0, 1] * 5
    assert Task.from_arrays(["x y"] * 10, y).modality == "text"
    assert Task.from_arrays([("x", "y")] * 10, y).train.inputs[0] == ("x", "y")
    assert Task.from_arrays(np.zeros((10, 4, 4, 3), dtype=np.uint8), y).train.inputs[0].size == (4, 4)
    assert Task.from_arrays([Image.new("L", (3, 3))] * 10, y).train.inputs[0].mode == "RGB"
    sounds = [{"array": np.zeros(4), "sampling_rate": 8000}] * 10
    assert Task.from_arrays(sounds, y).train.inputs[0]["sampling_rate"] == 8000
    words = Task.from_arrays([["a", "b"]] * 10, [["X", "Y"]] * 10)
    assert (words.kind, words.modality) == ("tagging", "tokens")
    assert words.train.targets[0].tolist() == [0, 1]
    with pytest.raises(TaskError, match="Cannot tell"):
        Task.from_arrays([object()] * 10, y)


def test_given_splits_are_used() -> None:
    task = Task.from_arrays(X, [0, 1] * 10, validation=(X[:4], [0, 1, 1, 0]), test=(X[:2], [1, 0]))
    assert [len(part) for part in task.splits.values()] == [20, 4, 2]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_targets_that_are_not_finite(value: float) -> None:
    y = np.linspace(0, 1, 20)
    y[4] = value
    with pytest.raises(TaskError, match="row 4"):
        Task.from_arrays(X, y, kind="regression")


def test_bad_input() -> None:
    with pytest.raises(TaskError, match="20 inputs but 3 labels"):
        Task.from_arrays(X, [0, 1, 0])
    with pytest.raises(TaskError, match="mixed types"):
        Task.from_arrays(X, ["a", 1] * 10)
    with pytest.raises(TaskError, match="row 0: 2 words but 1 tags"):
        Task.from_arrays([["a", "b"]] * 4, [["X"]] * 4)
    with pytest.raises(TaskError, match="one class"):
        Task.from_arrays(X, [1] * 20)
    with pytest.raises(TaskError, match="kind must be one of"):
        Task.from_arrays(X, [0, 1] * 10, kind="ranking")
    with pytest.raises(TaskError, match="is empty"):
        Task.from_arrays([], [])
    with pytest.raises(TaskError, match="not finite"):
        Task.from_arrays(np.full((4, 2), np.nan), [0, 1, 0, 1])
    with pytest.raises(TaskError, match="row 1 is not an array of finite numbers"):
        Task.from_arrays([np.zeros(2), np.array([0, np.inf])], [0, 1])
    with pytest.raises(TaskError, match="Tagging goes with lists of words"):
        Task.from_arrays(["a", "b"], [["X"], ["Y"]], kind="tagging")
    with pytest.raises(TaskError, match="tags must be one list per row"):
        Task.from_arrays([["a"], ["b"]], ["X", "Y"])
    with pytest.raises(TaskError, match="hold 0 and 1"):
        Task.from_arrays(X, np.full((20, 2), 2), kind="multilabel")
    with pytest.raises(TaskError, match="not a text input"):
        Task.from_arrays(["a", 3] * 10, [0, 1] * 10)
    with pytest.raises(TaskError, match="below 1"):
        Task.from_arrays(X, [0, 1] * 10, test_size=0.6, validation_size=0.5)


def test_inputs_are_not_changed() -> None:
    x, y = X.copy(), np.array([0, 1] * 10)
    Task.from_arrays(x, y).subset(4)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, [0, 1] * 10)


def test_lists_of_rows_are_matrices() -> None:
    options = {"test_size": 0, "validation_size": 0}
    labels = Task.from_arrays(X, [[0, 1, 0], [1, 1, 0]] * 10, **options)
    assert labels.train.targets[:2].tolist() == [[0, 1, 0], [1, 1, 0]]
    numbers = Task.from_arrays(X, [[0.5, 1.0], [2.0, 0.25]] * 10, **options)
    assert numbers.train.targets[:2].tolist() == [[0.5, 1.0], [2.0, 0.25]]
    with pytest.raises(TaskError, match="equally long"):
        Task.from_arrays(X, [[0.5], [2.0, 0.25]] * 10)


@pytest.mark.parametrize("wrap", [np.asarray, torch.as_tensor])
def test_classes_in_a_matrix_of_one_column(wrap: Callable[[np.ndarray], Any]) -> None:
    """So Keras gives the labels of CIFAR-10, and MedMNIST those of all its sets."""
    inputs, classes = np.arange(60.0)[:, None], np.arange(60) % 3
    alone = Task.from_arrays(inputs, classes)
    assert Task.from_arrays(inputs, wrap(classes[:, None])) == alone
    names = np.array(["a", "b", "c"])[classes]
    assert Task.from_arrays(inputs, names[:, None]) == Task.from_arrays(inputs, names)
    numbers = Task.from_arrays(inputs, classes[:, None] / 7)
    assert numbers.kind == "regression"
    assert Task.from_arrays(inputs, classes[:, None] > 0, kind="multilabel").target_names == ("0",)


def test_classes_in_rows_with_a_single_one() -> None:
    inputs, classes = np.arange(60.0)[:, None], np.arange(60) % 3
    alone, rows = Task.from_arrays(inputs, classes), np.eye(3)[classes]
    assert Task.from_arrays(inputs, rows) == Task.from_arrays(inputs, rows, kind="classification") == alone
    assert any("each row of the labels has a single 1" in note for note in Task.from_arrays(inputs, rows).notes)
    named = Task.from_arrays(inputs, rows, target_names=["x", "y", "z"])
    assert named.target_names == ("x", "y", "z")
    assert Task.from_arrays(inputs, rows, kind="multilabel").kind == "multilabel"
    several = rows.copy()
    several[0] = 1
    assert Task.from_arrays(inputs, several).kind == "multilabel"
    # What is exclusive in train need not be so elsewhere.
    assert Task.from_arrays(inputs, rows, test=(inputs, several)).kind == "multilabel"
