"""From labels as they stand in files to targets: class ids, 0/1 matrices, real columns, tags.

Labels keep their names. A class id is the place of its name among the sorted names of all splits, so that the same
data gives the same ids whichever way it was read; names that are whole numbers are sorted as numbers.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np

from hubscout.errors import TaskError

SEPARATORS = (";", "|", ",")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_WHOLE_WITH_ZEROS = re.compile(r"[+-]?[0-9]+(\.0*)?")
# Whole numbers with more values than this, and none of them repeated often, are measured, not named.
_MOST_NUMBERED_CLASSES = 100
_MOST_NUMBERED_CLASSES_WITH_GAPS = 20


def is_missing(value: Any) -> bool:
    """None, NaN and blank strings.

    >>> [is_missing(value) for value in (None, float("nan"), " ", 0, "NA")]
    [True, True, True, False, False]
    """
    if value is None:
        return True
    if isinstance(value, str):
        return not value.strip()
    return isinstance(value, (float, np.floating)) and math.isnan(value)


def as_number(value: Any) -> float | None:
    """A float, or None for what is not a number. A blank or NaN is NaN."""
    if is_missing(value):
        return math.nan
    known = isinstance(value, (str, bool, np.bool_, int, float, np.number, Decimal))
    if not known or (isinstance(value, str) and "_" in value):
        return None
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):
        return None


def guess_kind(values: Sequence[Any]) -> tuple[str, str]:
    """Kind of one label column, and why."""
    present = [value for value in values if not is_missing(value)]
    if any(isinstance(value, (list, tuple, set, frozenset, np.ndarray)) for value in present):
        if any(not number.is_integer() for value in present for number in _plain_numbers(value)):
            return "regression", "the labels are lists of real numbers"
        return "multilabel", "the labels are lists"
    if any(isinstance(value, (bool, np.bool_)) for value in present):
        return "classification", "the labels are true and false"
    numbers = [as_number(value) for value in present]
    if not numbers or any(number is None for number in numbers):
        return "classification", "the labels are names"
    # The test for an infinite value comes later, where it can be named.
    if any(number != math.floor(number) for number in numbers if number is not None and math.isfinite(number)):
        return "regression", "the labels are real numbers"
    finite = {number for number in numbers if number is not None and math.isfinite(number)}
    distinct, gaps = len(set(numbers)), bool(finite) and max(finite) - min(finite) >= len(finite)
    why = f"the labels have {distinct:,} different whole numbers"
    # Classes are usually counted through: numbers with gaps, few rows each, are amounts.
    most = _MOST_NUMBERED_CLASSES_WITH_GAPS if gaps else _MOST_NUMBERED_CLASSES
    if distinct > most and distinct * 5 > len(numbers):
        return "regression", f"{why} in {len(numbers):,} rows"
    return "classification", why


def _plain_numbers(value: Any) -> list[float]:
    """The finite numbers in a list of labels."""
    items = value if isinstance(value, (list, tuple, set, frozenset, np.ndarray)) else ()
    return [float(item) for item in items if isinstance(item, (float, np.floating)) and math.isfinite(item)]


def _family(value: Any) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, (bool, np.bool_)):
        return "true/false"
    if isinstance(value, (int, float, np.number, Decimal)):
        return "number"
    return "date" if isinstance(value, date) else type(value).__name__


def class_name(value: Any, where: str = "") -> str:
    """The name of a class as it is shown.

    Text without blanks around it, whole numbers without a decimal point, dates as a text file would have them.

    >>> class_name(Decimal("2.00")), class_name(date(2024, 5, 1))
    ('2', '2024-05-01')
    """
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, date):
        return value.isoformat().removesuffix("T00:00:00")
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating, Decimal)):
        if not math.isfinite(value):
            raise TaskError(f"A class label must not be {value!r}{where}.")
        return str(int(value)) if float(value).is_integer() else repr(float(value))
    hint = " For lists of labels say kind='multilabel'." if isinstance(value, (list, tuple, set, np.ndarray)) else ""
    raise TaskError(f"A class label must be text or a number; {type(value).__name__} {value!r:.60} came{where}.{hint}")


def named_classes(values: Sequence[Any], classes: Sequence[str]) -> Sequence[Any]:
    """Ids of classes, also in lists, as their names; below 0 there is no label. If an id has no name, all stay.

    >>> named_classes([1, -1, [0, 1]], ["cat", "dog"]), named_classes([2], ["cat", "dog"])
    (['dog', None, ['cat', 'dog']], [2])
    """

    def name(value: Any) -> Any:
        if isinstance(value, list):
            return [name(one) for one in value]
        return None if value is None or value < 0 else classes[operator.index(value)]

    try:
        return [name(value) for value in values]
    except (TypeError, IndexError):
        return values


def sort_names(names: Iterable[str]) -> tuple[str, ...]:
    """Sorted, as numbers if all are whole numbers.

    >>> sort_names(["10", "9"]), sort_names(["b", "A", "a"])
    (('9', '10'), ('A', 'a', 'b'))
    """
    unique = set(names)
    if all(_WHOLE.fullmatch(name) for name in unique):
        return tuple(sorted(unique, key=lambda name: (int(name), name)))
    return tuple(sorted(unique))


def _check_one_family(parts: Mapping[str, Iterable[Any]]) -> None:
    seen: dict[str, tuple[str, int, Any]] = {}
    for part, values in parts.items():
        for row, value in enumerate(values):
            seen.setdefault(_family(value), (part, row, value))
            if len(seen) > 1:
                first, second = (f"{value!r:.60} ({part}, row {row})" for part, row, value in seen.values())
                raise TaskError(
                    f"The labels are of mixed types: {first} is {next(iter(seen))}, {second} is {_family(value)}. "
                    "Write all labels as text or all as numbers."
                )


def encode_classes(
    parts: Mapping[str, Sequence[Any]], names: Sequence[str] | None = None
) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """Names and, for each part, ids into them.

    Of labels that are all whole numbers, "5.0" is the class "5": a column with a gap is often written with decimals.

    >>> encode_classes({"train": [7, 2, 7]})
    (('2', '7'), {'train': array([1, 0, 1])})
    """
    _check_one_family(parts)
    named = {
        part: [class_name(value, f" ({part}, row {row})") for row, value in enumerate(values)]
        for part, values in parts.items()
    }
    known = {*(names or ())}
    others = {name for values in named.values() for name in values} - known
    if all(_WHOLE_WITH_ZEROS.fullmatch(name) for name in others):
        whole = {name: name.partition(".")[0] for name in others}
        named = {part: [whole.get(name, name) for name in values] for part, values in named.items()}
    chosen, places = _numbered((name for values in named.values() for name in values), names)
    return chosen, {part: _look_up(values, places, part) for part, values in named.items()}


def _numbered(found: Iterable[str], names: Sequence[str] | None) -> tuple[tuple[str, ...], dict[str, int]]:
    """The names of classes, those given or else those found, and the id of each."""
    chosen = sort_names(found) if names is None else tuple(names)
    return chosen, {name: place for place, name in enumerate(chosen)}


def _look_up(values: Sequence[str], places: Mapping[str, int], part: str) -> np.ndarray:
    try:
        return np.array([places[value] for value in values], dtype=np.int64)
    except KeyError as error:
        raise TaskError(
            f"The label {error.args[0]!r} ({part}) is not among the given names: {', '.join(map(str, places))}."
        ) from None


def check_lists(rows: Sequence[Any], what: str, part: str) -> None:
    """Every row is a list."""
    for row, value in enumerate(rows):
        if not isinstance(value, (list, tuple)) and not (isinstance(value, np.ndarray) and value.ndim == 1):
            raise TaskError(f"The {what} must be one list per row; {part}, row {row} is {value!r:.60}.")


def encode_tags(
    parts: Mapping[str, Sequence[Sequence[Any]]], names: Sequence[str] | None = None
) -> tuple[tuple[str, ...], dict[str, list[np.ndarray]]]:
    """As `encode_classes`, for a list of tags per row."""
    for part, rows in parts.items():
        check_lists(rows, "tags", part)
    return _encode_lists(parts, names)


def _encode_lists(
    parts: Mapping[str, Sequence[Sequence[Any]]], names: Sequence[str] | None
) -> tuple[tuple[str, ...], dict[str, list[np.ndarray]]]:
    _check_one_family({part: (label for row in rows for label in row) for part, rows in parts.items()})
    named = {part: [[class_name(one, f" ({part})") for one in row] for row in rows] for part, rows in parts.items()}
    chosen, places = _numbered((name for rows in named.values() for row in rows for name in row), names)
    return chosen, {part: [_look_up(row, places, part) for row in rows] for part, rows in named.items()}


def find_separator(values: Iterable[Any]) -> str:
    """The first of `;`, `|` and `,` that occurs."""
    seen = {mark for value in values if isinstance(value, str) for mark in SEPARATORS if mark in value}
    return next((mark for mark in SEPARATORS if mark in seen), SEPARATORS[0])


def encode_label_sets(
    parts: Mapping[str, Sequence[Any]], *, separator: str | None = None, names: Sequence[str] | None = None
) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """Names and 0/1 matrices out of lists of labels, or of text with the labels between separators.

    Lists that are rows of a 0/1 matrix are taken for one.

    >>> encode_label_sets({"train": ["cat;dog", "", "dog"]})[1]["train"].tolist()
    [[1, 1], [0, 0], [0, 1]]
    """
    mark = separator or find_separator(value for values in parts.values() for value in values)
    listed = {
        part: [_label_list(value, mark, part, row) for row, value in enumerate(values)]
        for part, values in parts.items()
    }
    width = _indicator_width([row for rows in listed.values() for row in rows])
    if width and (names is None or len(names) == width):
        matrices = {part: np.array(rows, dtype=np.int64).reshape(len(rows), width) for part, rows in listed.items()}
        return tuple(map(str, range(width) if names is None else names)), matrices
    chosen, ids = _encode_lists(listed, names)
    matrices = {part: np.zeros((len(rows), len(chosen)), dtype=np.int64) for part, rows in ids.items()}
    for part, rows in ids.items():
        for row, places in enumerate(rows):
            matrices[part][row, places] = 1
    return chosen, matrices


def _indicator_width(rows: Sequence[Sequence[Any]]) -> int:
    """How long the rows are, if they are rows of a 0/1 matrix and not sets of labels; 0 otherwise.

    Equally long rows of nothing but 0 and 1 would, as sets of the labels 0 and 1, say nothing.
    """
    widths = {len(row) for row in rows}
    if len(widths) != 1 or min(widths) < 2:
        return 0
    binary = all(isinstance(item, (bool, int, float, np.number)) and item in (0, 1) for row in rows for item in row)
    return widths.pop() if binary else 0


def _label_list(value: Any, separator: str, part: str, row: int) -> list[Any]:
    if isinstance(value, str):
        return [label.strip() for label in value.split(separator) if label.strip()]
    if is_missing(value):
        return []
    if isinstance(value, np.ndarray):
        return value.ravel().tolist()
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if isinstance(value, (bool, int, float, np.number)):
        return [value]
    raise TaskError(f"The labels of {part}, row {row} must be a list or text; {type(value).__name__} came.")


def encode_indicators(rows: Sequence[Sequence[Any]], columns: Sequence[str], part: str) -> np.ndarray:
    """A 0/1 matrix out of one column per label."""
    matrix = encode_numbers(rows, columns, part)
    wrong = np.argwhere((matrix != 0) & (matrix != 1))
    if len(wrong):
        row, column = wrong[0]
        raise TaskError(
            f"Multi-label columns hold 0 and 1: {part}, row {row} has {rows[row][column]!r} in {columns[column]!r}."
        )
    return matrix.astype(np.int64)


def encode_numbers(rows: Sequence[Sequence[Any]], columns: Sequence[str], part: str) -> np.ndarray:
    """Real targets (n, C) in float64; an error names the first value that is not a finite number."""
    matrix = np.empty((len(rows), len(columns)), dtype=np.float64)
    for row, values in enumerate(rows):
        for column, value in enumerate(values):
            number = as_number(value)
            if number is None or not math.isfinite(number):
                kind = "missing" if is_missing(value) else "not a finite number"
                raise TaskError(
                    f"The label {columns[column]!r} is {kind} in {part}, row {row}: {value!r:.60}. Real-valued "
                    "labels must be finite: take the row out or fill the value in"
                    + ("." if number is not None else ", or say kind='classification' if these are names.")
                )
            matrix[row, column] = number
    return matrix


def number_matrix(values: Sequence[Any], part: str) -> np.ndarray:
    """(n, C) out of numbers, or of equally long rows of them."""
    try:
        matrix = np.asarray(values)
    except ValueError as error:
        raise TaskError(f"The labels of {part} are not equally long rows of numbers: {error}.") from error
    if matrix.ndim not in (1, 2):
        raise TaskError(f"The labels of {part} must be (n,) or (n, C); their shape is {matrix.shape}.")
    return matrix.reshape(len(matrix), -1)
