from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from hubscout.errors import TaskError
from hubscout.tasks import Task


def make(n: int = 100, seed: int = 0) -> Task:
    generator = np.random.default_rng(seed)
    return Task.from_arrays(generator.normal(size=(n, 3)), [["a", "b", "b", "c"][i % 4] for i in range(n)])


def test_subset_is_stratified_and_only_of_train() -> None:
    task = make(200)
    small = task.subset(40)
    np.testing.assert_array_equal(np.bincount(small.train.targets), [10, 20, 10])
    assert len(small.validation) == len(task.validation)
    assert len(small.test) == len(task.test)
    assert set(task.subset(3).train.targets) == {0, 1, 2}
    assert task.subset("0.04k").fingerprint == small.fingerprint


def test_subsets_have_their_own_fingerprints() -> None:
    task = make()
    prints = {
        task.fingerprint,
        task.subset(20).fingerprint,
        task.subset(21).fingerprint,
        task.subset(20, 1).fingerprint,
    }
    assert len(prints) == 4
    assert task.subset(20).fingerprint == make().subset(20).fingerprint
    assert task.subset(10_000) is task


@pytest.mark.parametrize("n", [0, -1, 1.5, True])
def test_subset_checks_n(n: int) -> None:
    with pytest.raises(TaskError, match="whole number"):
        make().subset(n)


def test_subset_of_sentences_counts_sentences() -> None:
    task = Task.from_arrays([["a", "b", "c"]] * 30, [["X", "Y", "X"]] * 29 + [["X", "Z", "Z"]], test_size=0)
    small = task.subset(5)
    assert len(small.train) == len(small.train.targets) == 5
    assert {int(tag) for row in small.train.targets for tag in row} == {0, 1, 2}


def test_subset_of_regression() -> None:
    task = Task.from_arrays(np.eye(30), np.linspace(0, 1, 30))
    small = task.subset(7)
    assert small.train.targets.shape == (7, 1)
    for x, y in zip(small.train.inputs, small.train.targets, strict=True):
        assert y[0] == np.linspace(0, 1, 30)[int(np.argmax(x))]


def test_fingerprint_changes_with_inputs_labels_names_and_splits() -> None:
    x, y = np.eye(20), ["a", "b"] * 10
    base = Task.from_arrays(x, y)
    other = x.copy()
    other[3, 3] = 2
    variants = [
        Task.from_arrays(other, y),
        Task.from_arrays(x, ["b", "a"] * 10),
        Task.from_arrays(x, ["a", "c"] * 10),
        Task.from_arrays(x, y, seed=1),
        Task.from_arrays(x, y, test_size=0.3),
        Task.from_arrays(x.astype(np.float32), y),
    ]
    assert len({base.fingerprint, *(task.fingerprint for task in variants)}) == 7
    assert Task.from_arrays(np.asfortranarray(x), y, name="other") == base


def test_repr_summary_and_description() -> None:
    task = make(40)
    assert repr(task) == f"Task('arrays': array classification, 3 classes, 28/4/8, {task.fingerprint[:8]})"
    summary = json.loads(json.dumps(task.summary()))
    assert summary["rows"] == {"train": 28, "validation": 4, "test": 8}
    assert "note: kind guessed as classification" in task.describe()
    assert len({task, make(40)}) == 1


def test_data_in_memory_cannot_be_reopened() -> None:
    assert make().source is None
    with pytest.raises(TaskError, match="not the source of a task"):
        Task.reopen({"constructor": "from_thin_air"})


def test_import_is_light() -> None:
    code = (
        "import sys; from hubscout.tasks import Task, open_task; import hubscout.tasks.tables, hubscout.tasks.hf;"
        "print([m for m in ('pandas', 'PIL', 'torch', 'datasets', 'pyarrow') if m in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


@pytest.mark.parametrize(
    ("targets", "other"),
    [
        (["a", "b"] * 4, ["b", "a"] * 4),
        ([0.5, 1.0] * 4, [0.5, 1.25] * 4),
        ([["a"], ["a", "b"]] * 4, [["a", "b"], ["a"]] * 4),
    ],
)
def test_fingerprint_sees_labels_alone(targets: list[object], other: list[object]) -> None:
    """With the same inputs in the same splits."""
    one, two = (Task.from_arrays(np.eye(8), y, test_size=0, validation_size=0) for y in (targets, other))
    assert one.target_names == two.target_names
    assert one.fingerprint != two.fingerprint
