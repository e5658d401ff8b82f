"""The kinds of tasks: an object for each, that knows everything in which they differ.

In a task, a file and on the command line a kind is a string; `kind_of` gives the object. Task metrics are in
`task_metrics`, losses and the first weights of a head in `hubscout.tuning`, in tables by the same strings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from hubscout.errors import TaskError, check_choice
from hubscout.tasks.labels import (
    check_lists,
    encode_classes,
    encode_indicators,
    encode_label_sets,
    encode_numbers,
    encode_tags,
    number_matrix,
)

Kind = Literal["classification", "multilabel", "regression", "tagging"]

Targets = np.ndarray | list[np.ndarray]
"""By kind: classification (n,) int64 ids into `target_names`; multilabel (n, C) of 0 and 1; regression (n, C)
float64; tagging, one int64 array per sentence, as long as the sentence has words."""

Parts = Mapping[str, Sequence[Any]]
Samples = Sequence[int] | np.ndarray | None
Encoded = tuple[Sequence[str], Mapping[str, Targets]]
"""The names of the targets, and the targets of each split."""


class TaskKind:
    """What the code asks of a kind of task. The targets of this class are a matrix with one row per sample.

    A *row* is what a model gives one feature vector for and a loss one number: a sample, or a word of a sentence.
    """

    name: str
    noun = "target"
    plural = "targets"
    unit = "samples"
    """What rows are called."""
    row_kind: Literal["classification", "multilabel", "regression"]
    """The kind of the rows taken one by one, which is what the evidence and the metrics are told."""
    has_classes = False
    """Every row has exactly one class."""
    has_label_sets = False
    """A sample has any number of labels; an empty cell of a table is the empty set."""
    is_real_valued = False
    rows_are_words = False
    """Inputs are lists of words, and every word has a target."""
    takes_columns = False
    """The targets may stand in several columns of a table."""
    center = False
    """Whether the evidence takes the means away first, unless told otherwise."""
    separator = ";"
    """Between the labels of a sample where they are written into one cell."""

    @property
    def classes_of_samples(self) -> bool:
        """Whether every sample has exactly one class."""
        return self.has_classes and not self.rows_are_words

    @property
    def text_role(self) -> str:
        """The role of a column of texts."""
        return "tokens" if self.rows_are_words else "text"

    def count_targets(self, count: int) -> str:
        """A number of targets, in words.

        >>> KINDS["classification"].count_targets(1), KINDS["tagging"].count_targets(9)
        ('1 class', '9 tags')
        """
        return f"{count} {self.noun if count == 1 else self.plural}"

    def encode(self, parts: Parts, names: Sequence[str] | None = None, separator: str | None = None) -> Encoded:
        """Targets out of one label per sample, by split. Labels must be among `names`, where these are given."""
        raise NotImplementedError

    def encode_ids(self, parts: Parts, names: Sequence[str]) -> Encoded:
        """As `encode`; labels that are whole numbers are places in `names`."""
        return self.encode(parts, names)

    def encode_columns(self, parts: Parts, columns: Sequence[str], separator: str | None = None) -> Encoded:
        """Targets out of rows of tables with one value per label column."""
        if len(columns) > 1:
            raise TaskError(f"{self.name} takes one label column; {len(columns)} were given: {', '.join(columns)}.")
        return self.encode({part: [row[0] for row in rows] for part, rows in parts.items()}, None, separator)

    def check_lengths(self, inputs: Sequence[Any], targets: Targets, split: str) -> None:
        """Raise where a sample does not have as many targets as it has rows."""

    def strata(self, targets: Targets) -> np.ndarray:
        """One integer per sample: samples of the same integer are interchangeable for a split."""
        return np.zeros(len(targets), dtype=np.int64)

    def row_counts(self, targets: Targets, samples: Samples = None) -> np.ndarray:
        """How many rows each of these samples has; all samples by default."""
        return np.ones(len(targets if samples is None else samples), dtype=np.int64)

    def rows_of(self, targets: Targets, samples: Samples = None) -> np.ndarray:
        """The targets of the rows of these samples, one after the other; of all samples by default."""
        array = np.asarray(targets)
        return array if samples is None else array[samples]

    def sample_of_row(self, targets: Targets) -> np.ndarray | None:
        """The sample that each row belongs to; None where a sample is a row."""
        return np.repeat(np.arange(len(targets)), self.row_counts(targets)) if self.rows_are_words else None

    def target_counts(self, targets: Targets, width: int) -> np.ndarray:
        """(width,) how many rows have each class or label; not for numbers."""
        raise NotImplementedError

    def target_columns(self, targets: Targets, width: int) -> np.ndarray:
        """(rows, width) float64: 0 and 1 for classes and labels, numbers for regression."""
        return self.columns_of_rows(self.rows_of(targets), width)

    def columns_of_rows(self, rows: np.ndarray, width: int) -> np.ndarray:
        """The same of targets by row, as `rows_of` gives them."""
        return np.asarray(rows, dtype=np.float64).reshape(len(rows), -1)

    def null_prediction(self, targets: Targets, width: int) -> np.ndarray:
        """(width,) what the null model says of every row: how frequent each class or label is, or the mean number."""
        return np.asarray(targets, dtype=np.float64).mean(axis=0)

    def null_words(self, prediction: np.ndarray, names: Sequence[str]) -> str:
        """What the null model does, in words."""
        raise NotImplementedError

    def labels_of(self, values: np.ndarray, names: Sequence[str]) -> list[Any]:
        """What predictions (rows, C) say of each row, in names."""
        raise NotImplementedError


class Classification(TaskKind):
    """One class per sample."""

    name = "classification"
    row_kind = "classification"
    noun, plural = "class", "classes"
    has_classes = True

    def encode(self, parts: Parts, names: Sequence[str] | None = None, separator: str | None = None) -> Encoded:
        return encode_classes({part: list(values) for part, values in parts.items()}, names)

    def encode_ids(self, parts: Parts, names: Sequence[str]) -> Encoded:
        named = {part: [_named(value, names) for value in values] for part, values in parts.items()}
        return self.encode(named, [str(name) for name in names])

    def strata(self, targets: Targets) -> np.ndarray:
        return np.asarray(targets, dtype=np.int64)

    def target_counts(self, targets: Targets, width: int) -> np.ndarray:
        return np.bincount(self.rows_of(targets), minlength=width)

    def columns_of_rows(self, rows: np.ndarray, width: int) -> np.ndarray:
        return np.eye(width)[rows]

    def null_prediction(self, targets: Targets, width: int) -> np.ndarray:
        counts = self.target_counts(targets, width)
        return counts / counts.sum()

    def null_words(self, prediction: np.ndarray, names: Sequence[str]) -> str:
        return f"always saying {names[int(prediction.argmax())]!r}"

    def labels_of(self, values: np.ndarray, names: Sequence[str]) -> list[Any]:
        return [names[place] for place in values.argmax(axis=1)]


class Tagging(Classification):
    """One class per word of a sentence."""

    name = "tagging"
    noun, plural, unit = "tag", "tags", "words"
    rows_are_words = True
    separator = " "

    def encode(self, parts: Parts, names: Sequence[str] | None = None, separator: str | None = None) -> Encoded:
        return encode_tags(parts, names)

    def encode_ids(self, parts: Parts, names: Sequence[str]) -> Encoded:
        for part, rows in parts.items():
            check_lists(rows, "tags", part)
        named = {part: [[_named(tag, names) for tag in row] for row in rows] for part, rows in parts.items()}
        return self.encode(named)

    def check_lengths(self, inputs: Sequence[Any], targets: Targets, split: str) -> None:
        for row, (words, tags) in enumerate(zip(inputs, targets, strict=True)):
            if len(words) != len(tags):
                raise TaskError(f"{split}, row {row}: {len(words)} words but {len(tags)} tags.")

    def strata(self, targets: Targets) -> np.ndarray:
        present = [np.unique(tags) for tags in targets]
        return _rarest(present, np.bincount(np.concatenate([*present, np.empty(0, dtype=np.int64)])))

    def row_counts(self, targets: Targets, samples: Samples = None) -> np.ndarray:
        chosen = targets if samples is None else [targets[sample] for sample in samples]
        return np.array([len(tags) for tags in chosen], dtype=np.int64)

    def rows_of(self, targets: Targets, samples: Samples = None) -> np.ndarray:
        chosen = targets if samples is None else [targets[sample] for sample in samples]
        return np.concatenate([np.empty(0, np.int64), *(np.asarray(tags, dtype=np.int64) for tags in chosen)])


class Multilabel(TaskKind):
    """Any number of labels per sample."""

    name = row_kind = "multilabel"
    noun, plural = "label", "labels"
    has_label_sets = takes_columns = True

    def encode(self, parts: Parts, names: Sequence[str] | None = None, separator: str | None = None) -> Encoded:
        arrays = {part: np.asarray(values) for part, values in parts.items() if isinstance(values, np.ndarray)}
        if len(arrays) < len(parts) or any(array.ndim != 2 for array in arrays.values()):
            listed = {part: list(values) for part, values in parts.items()}
            return encode_label_sets(listed, separator=separator, names=names)
        widths = {array.shape[1] for array in arrays.values()}
        chosen = [str(name) for name in names or range(max(widths))]
        if widths != {len(chosen)}:
            raise TaskError(
                f"The label matrices have {sorted(widths)} columns, but there are {len(chosen)} target names."
            )
        for part, array in arrays.items():
            if not np.isin(array, (0, 1)).all():
                raise TaskError(f"A multi-label matrix must hold 0 and 1; that of {part} holds other values.")
        return chosen, {part: array.astype(np.int64) for part, array in arrays.items()}

    def encode_columns(self, parts: Parts, columns: Sequence[str], separator: str | None = None) -> Encoded:
        if len(columns) == 1:
            return super().encode_columns(parts, columns, separator)
        return columns, {part: encode_indicators(rows, columns, part) for part, rows in parts.items()}

    def strata(self, targets: Targets) -> np.ndarray:
        matrix = np.asarray(targets)
        return _rarest([np.flatnonzero(row) for row in matrix], matrix.sum(axis=0))

    def target_counts(self, targets: Targets, width: int) -> np.ndarray:
        return np.asarray(targets).sum(axis=0)

    def null_words(self, prediction: np.ndarray, names: Sequence[str]) -> str:
        return "a random order"

    def labels_of(self, values: np.ndarray, names: Sequence[str]) -> list[Any]:
        return [[names[place] for place in np.flatnonzero(row >= 0.5).tolist()] for row in values]


class Regression(TaskKind):
    """One or more real numbers per sample."""

    name = row_kind = "regression"
    is_real_valued = takes_columns = center = True

    def encode(self, parts: Parts, names: Sequence[str] | None = None, separator: str | None = None) -> Encoded:
        matrices = {part: number_matrix(values, part) for part, values in parts.items()}
        widths = {matrix.shape[1] for matrix in matrices.values()}
        chosen = list(names or ([f"y{i}" for i in range(max(widths))] if max(widths) > 1 else ["y"]))
        if widths != {len(chosen)}:
            raise TaskError(f"The targets have {sorted(widths)} columns, but there are {len(chosen)} target names.")
        return chosen, {part: encode_numbers(matrix.tolist(), chosen, part) for part, matrix in matrices.items()}

    def encode_columns(self, parts: Parts, columns: Sequence[str], separator: str | None = None) -> Encoded:
        return columns, {part: encode_numbers(rows, columns, part) for part, rows in parts.items()}

    def null_words(self, prediction: np.ndarray, names: Sequence[str]) -> str:
        return "always saying the mean of train"

    def labels_of(self, values: np.ndarray, names: Sequence[str]) -> list[Any]:
        return [dict(zip(names, row.tolist(), strict=True)) for row in values]


KINDS: dict[str, TaskKind] = {kind.name: kind for kind in (Classification(), Multilabel(), Regression(), Tagging())}


def kind_of(name: str) -> TaskKind:
    """The kind of this name."""
    check_choice("kind", name, KINDS, TaskError)
    return KINDS[name]


def _named(value: Any, names: Sequence[str]) -> Any:
    """The name a whole number is the place of; other labels are names already."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        if not 0 <= value < len(names):
            raise TaskError(
                f"The label {int(value)} is not an id into the {len(names)} target names (0 to {len(names) - 1})."
            )
        return str(names[int(value)])
    return value


def _rarest(present: Sequence[np.ndarray], counts: np.ndarray) -> np.ndarray:
    """The rarest label of each sample, so that rare ones are spread as well as they can be; -1 where it has none."""
    return np.array([labels[np.argmin(counts[labels])] if len(labels) else -1 for labels in present], dtype=np.int64)
