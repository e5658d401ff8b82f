"""`Predictions`: what a model says of inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.errors import InputError
from hubscout.optional import require
from hubscout.tasks.kinds import kind_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Predictions:
    """What a model says of inputs.

    `values` are (rows, C): probabilities of classes or labels, or numbers in the targets' own units. A row is an
    input, or a word of a tagging task; `lengths` then tells how many words each input has.

    >>> said = Predictions("classification", ("cat", "dog"), np.array([[0.9, 0.1], [0.2, 0.8]]))
    >>> said.labels, said.records()[0]
    (['cat', 'dog'], {'prediction': 'cat', 'probabilities': {'cat': 0.9}})
    """

    kind: str
    """Of the task."""
    target_names: tuple[str, ...]
    """Of the classes, labels or numbers."""
    values: np.ndarray
    lengths: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.lengths) if self.lengths is not None else len(self.values)

    @property
    def probabilities(self) -> np.ndarray:
        """(rows, C) probabilities, a column per name in `target_names`; not for regression, which has `values`."""
        if kind_of(self.kind).is_real_valued:
            raise InputError("A regression has no probabilities: its predictions are numbers, in .values.")
        return self.values

    def to_frame(self) -> pd.DataFrame:
        """A pandas data frame with one line per input, or per word of a tagging task.

        Returns:
            For classes `label`, `probability` (of that class) and a column per class; for several labels `labels`, as a
            list, and a column per label; for numbers a column per target. Words have the numbers `input` and `word`.

        """
        pandas = require("pandas", extra="tables", purpose="Predictions.to_frame")
        kind = kind_of(self.kind)
        first: dict[str, Any] = {}
        if self.lengths is not None:
            first["input"] = np.repeat(np.arange(len(self)), self.lengths)
            first["word"] = np.concatenate([np.arange(length) for length in self.lengths] or [np.arange(0)])
        if not kind.is_real_valued:
            first["labels" if kind.has_label_sets else "label"] = kind.labels_of(self.values, self.target_names)
        if kind.has_classes:
            first["probability"] = self.values.max(axis=1)
        columns = pandas.DataFrame(self.values, columns=list(self.target_names))
        return pandas.concat([pandas.DataFrame(first), columns], axis=1) if first else columns

    def __repr__(self) -> str:
        return f"Predictions({self.kind}, {len(self)} inputs, {len(self.target_names)} targets)"

    @property
    def labels(self) -> list[Any]:
        """By kind: the most probable class; the labels of at least one half; the numbers; a list of tags."""
        labels = kind_of(self.kind).labels_of(self.values, self.target_names)
        if self.lengths is None:
            return labels
        words = iter(labels)
        return [[next(words) for _ in range(length)] for length in self.lengths]

    def records(self, top: int = 1) -> list[dict[str, Any]]:
        """One plain dictionary per input.

        Args:
            top: how many of the most probable classes are told with their probabilities; of several labels, all that
                are predicted, and so many at least.

        Returns:
            Dictionaries with `prediction`, and `probabilities` for classes and labels.

        """
        kind, labels = kind_of(self.kind), self.labels
        if not kind.classes_of_samples and not kind.has_label_sets:
            return [{"prediction": label} for label in labels]
        found = []
        for row, order, label in zip(self.values, np.argsort(-self.values, axis=1), labels, strict=True):
            told = order[: max(top, len(label)) if kind.has_label_sets else top]
            shares = {self.target_names[c]: round(float(row[c]), 6) for c in told}
            found.append({"prediction": label, "probabilities": shares})
        return found
