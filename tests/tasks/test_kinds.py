from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import hubscout
from hubscout.errors import TaskError
from hubscout.tasks import Kind
from hubscout.tasks.kinds import KINDS, Targets, kind_of

SENTENCES = [np.array([0, 2]), np.array([1]), np.array([], dtype=np.int64), np.array([2, 2, 0])]
TARGETS: dict[str, Targets] = {
    "classification": np.array([0, 2, 2, 0]),
    "multilabel": np.array([[1, 0, 1], [0, 0, 1], [0, 0, 0], [1, 0, 0]]),
    "regression": np.array([[0.5, 1.0, 2.0], [1.5, 1.0, 4.0], [0.0, 1.0, 3.0], [2.0, 1.0, 3.0]]),
    "tagging": SENTENCES,
}


def test_every_name_has_its_object_and_another_is_an_error() -> None:
    assert tuple(KINDS) == get_args(Kind) == tuple(TARGETS)
    assert all(kind_of(name).name == name for name in KINDS)
    with pytest.raises(TaskError, match="one of classification, multilabel, regression, tagging; got 'ranking'"):
        kind_of("ranking")


def test_words_for_people() -> None:
    said = {name: (kind.count_targets(1), kind.count_targets(2), kind.unit) for name, kind in KINDS.items()}
    assert said == {
        "classification": ("1 class", "2 classes", "samples"),
        "multilabel": ("1 label", "2 labels", "samples"),
        "regression": ("1 target", "2 targets", "samples"),
        "tagging": ("1 tag", "2 tags", "words"),
    }


@pytest.mark.parametrize("name", KINDS)
def test_rows_counts_and_samples_agree(name: str) -> None:
    kind, targets = kind_of(name), TARGETS[name]
    for samples in (None, [3, 0], np.array([1, 2])):
        assert len(kind.rows_of(targets, samples)) == kind.row_counts(targets, samples).sum()
    samples_of_rows = kind.sample_of_row(targets)
    if samples_of_rows is None:
        np.testing.assert_array_equal(kind.row_counts(targets), 1)
        np.testing.assert_array_equal(kind.rows_of(targets, [3, 0]), np.asarray(targets)[[3, 0]])
    else:
        np.testing.assert_array_equal(np.bincount(samples_of_rows, minlength=4), kind.row_counts(targets))
    assert kind_of(kind.row_kind).row_kind == kind.row_kind


def test_rows_of_tagging_are_the_words_in_order() -> None:
    kind = kind_of("tagging")
    np.testing.assert_array_equal(kind.rows_of(SENTENCES, [3, 2, 0]), [2, 2, 0, 0, 2])
    np.testing.assert_array_equal(kind.sample_of_row(SENTENCES), [0, 0, 1, 3, 3, 3])
    assert len(kind.rows_of(SENTENCES, [])) == 0
    with pytest.raises(TaskError, match="test, row 1: 2 words but 1 tags"):
        kind.check_lengths([["a", "b"], ["a", "b"]], SENTENCES[:2], "test")


def test_strata_take_the_rarest_label() -> None:
    matrix = np.array([[1, 1, 0], [1, 0, 0], [1, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(kind_of("multilabel").strata(matrix), [1, 0, 2, -1])
    sentences = [np.array([0, 0, 1]), np.array([0, 0]), np.array([], dtype=np.int64)]
    np.testing.assert_array_equal(kind_of("tagging").strata(sentences), [1, 0, -1])
    np.testing.assert_array_equal(kind_of("regression").strata(np.array([[0.5], [1.0]])), [0, 0])
    np.testing.assert_array_equal(kind_of("classification").strata([1, 0, 1]), [1, 0, 1])


@pytest.mark.parametrize("name", KINDS)
def test_the_null_model_says_the_mean_of_the_target_columns(name: str) -> None:
    kind, targets = kind_of(name), TARGETS[name]
    columns = kind.target_columns(targets, 3)
    assert columns.shape == (len(kind.rows_of(targets)), 3)
    said = kind.null_prediction(targets, 3)
    np.testing.assert_allclose(said, columns.mean(axis=0))
    if not kind.is_real_valued:
        np.testing.assert_array_equal(kind.target_counts(targets, 3), columns.sum(axis=0))
    expected = {"classification": "always saying 'a'", "multilabel": "a random order", "tagging": "always saying 'c'"}
    assert kind.null_words(said, ["a", "b", "c"]) == expected.get(name, "always saying the mean of train")


def test_labels_are_encoded_and_predictions_read_back() -> None:
    names = ["cat", "dog"]
    for name, labels in {
        "classification": ["dog", "cat"],
        "multilabel": [["cat", "dog"], []],
        "regression": [{"cat": 0.5, "dog": 2.0}],
    }.items():
        kind = kind_of(name)
        given = [tuple(label.values()) for label in labels] if name == "regression" else labels
        _, targets = kind.encode({"train": given}, names)
        assert kind.labels_of(kind.target_columns(targets["train"], 2), names) == labels
    _, targets = kind_of("tagging").encode({"train": [["dog", "cat"], []]}, names)
    assert [tags.tolist() for tags in targets["train"]] == [[1, 0], []]


def test_columns_must_be_as_many_as_the_names_of_numbers() -> None:
    kind = kind_of("regression")
    with pytest.raises(TaskError, match=r"The targets have \[1\] columns, but there are 2 target names"):
        kind.encode({"the inputs": [0.5, 1.0]}, ["x", "y"])
    with pytest.raises(TaskError, match="tagging takes one label column; 2 were given: a, b"):
        kind_of("tagging").encode_columns({"train": []}, ["a", "b"])


def test_the_code_asks_the_kind_and_does_not_compare_its_name() -> None:
    """The mathematics knows nothing of tasks: it has kinds of its own."""
    package = Path(hubscout.__file__).parent
    found = []
    for path in package.rglob("*.py"):
        if path.relative_to(package).parts[0] in {"evidence", "metrics"}:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            compared = ast.walk(node) if isinstance(node, ast.Compare) else ()
            if any(isinstance(one, ast.Constant) and one.value in KINDS for one in compared):
                found.append(f"{path.relative_to(package)}:{node.lineno}")
    assert not found
