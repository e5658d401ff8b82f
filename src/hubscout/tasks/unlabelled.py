"""Labels of -1: the mark of many benchmarks for rows whose labels are not given away, as in the test splits of GLUE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hubscout.errors import TaskError
from hubscout.tasks.kinds import kind_of
from hubscout.tasks.labels import as_number


def unlabelled_rows(labels: Mapping[str, Sequence[Any]], kind: str, notes: list[str]) -> dict[str, np.ndarray]:
    """For each split where -1 means "no label", a mask of the rows that have it.

    -1 is such a mark where all other labels are numbers of 0 or more and train has no -1. In regression, where -1
    may be a measurement, a whole split must consist of it. Where train has it, it is a class of its own beside 1
    (the labels -1 and 1), and refused beside others, for there it may be either.

    >>> unlabelled_rows({"train": [0, 1], "test": [-1, -1]}, "classification", [])
    {'test': array([ True,  True])}
    >>> unlabelled_rows({"train": [-1, 1], "test": [-1, 1]}, "classification", [])
    {}
    """
    asked = kind_of(kind)
    if asked.has_label_sets or asked.rows_are_words:
        return {}
    numbers: dict[str, np.ndarray] = {}
    for part, values in labels.items():
        if (found := _numbers(values)) is None:
            return {}
        numbers[part] = found
    known = {part: values[~np.isnan(values)] for part, values in numbers.items()}
    marked = {part: values == -1 for part, values in numbers.items()}
    # Beside other negative numbers, -1 is a number like them.
    if any((values[values != -1] < 0).any() for values in known.values()):
        return {}
    train = known.get("train", np.empty(0))
    if (train == -1).any():
        if not asked.is_real_valued:
            _check_train(train)
        return {}
    if asked.is_real_valued:
        marked = {part: rows for part, rows in marked.items() if len(known[part]) and (known[part] == -1).all()}
    marked = {part: rows for part, rows in marked.items() if rows.any()}
    for part, rows in marked.items():
        notes.append(
            f"{rows.sum():,} of {len(rows):,} rows in {part} have the label -1, which train does not have: they count "
            "as unlabelled and are left out"
        )
    return marked


def _check_train(train: np.ndarray) -> None:
    if set(train) == {-1.0, 1.0}:
        return
    others = sorted({int(value) for value in train} - {-1})
    beside = f"beside {', '.join(map(str, others[:5]))}{', …' if len(others) > 5 else ''}" if others else "in all rows"
    raise TaskError(
        f"Train has the label -1 {beside}. It may mark rows without a label, or be a class. Leave the label of such "
        "rows empty (they are then left out), or give the class a name, such as 'negative'."
    )


def _numbers(values: Sequence[Any]) -> np.ndarray | None:
    """Labels as floats, NaN where one is missing; None where some are not numbers."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return values.astype(np.float64) if values.ndim == 1 else None
    numbers = np.empty(len(values))
    for row, value in enumerate(values):
        number = as_number(value)
        if number is None:
            return None
        numbers[row] = number
    return numbers
