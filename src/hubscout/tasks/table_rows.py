"""From tables to a task: choose columns and kind, leave out rows without a label, make targets, divide by splits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hubscout.errors import TaskError
from hubscout.tasks.assembly import assemble, check_fit, unlabelled_rows
from hubscout.tasks.audio import AudioArrays, Sounds
from hubscout.tasks.columns import Roles, find_roles, usual_group
from hubscout.tasks.images import Images
from hubscout.tasks.kinds import TaskKind, kind_of
from hubscout.tasks.labels import SEPARATORS, as_number, check_lists, guess_kind, is_missing
from hubscout.tasks.reading import Table, stack
from hubscout.tasks.sequences import join, take
from hubscout.tasks.splitting import canonical_split, group_numbers, known_split_names
from hubscout.tasks.task import Split, Task

_AMOUNT = re.compile(r"[-+]?[$€£¥]?\s?[-+]?\d[\d.,']*\s?[%$€£¥]?")
_MISSING_WORDS = frozenset({"na", "n/a", "#n/a", "<na>", "null", "none", "-", "?"})
_INPUT_ROLES = ("image", "text", "audio", "tokens")
TABLE_OPTIONS = (*_INPUT_ROLES, "label", "kind", "split", "group", "separator", "validation_size", "test_size", "seed")
"""The options that every constructor which reads columns has, and `task_from_tables` takes."""


def task_from_tables(
    tables: Mapping[str | None, Sequence[Table]],
    *,
    name: str,
    source: Mapping[str, Any] | None,
    label: str | Sequence[str] | None = None,
    kind: str | None = None,
    split: str | bool | None = None,
    group: str | None = None,
    separator: str | None = None,
    notes: Sequence[str] = (),
    **options: Any,
) -> Task:
    """A task out of tables by split; under None, tables that do not say by themselves which split they are.

    `options` are the others of `TABLE_OPTIONS`.
    """
    given = {role: options.pop(role, None) for role in _INPUT_ROLES}
    if split is True:
        raise TaskError("split= takes the name of a column, or False to ignore such a column.")
    said = list(notes)
    everything = [one for ones in tables.values() for one in ones]
    first = next(iter(tables.get("train", everything)))
    by_file = None not in tables
    roles = find_roles(first, given, label=label, split=split, split_by_file=by_file, notes=said, group=group)
    free = [name for name in first.columns if name not in {*roles.inputs, *roles.targets, roles.split}]
    if group is None and all((usual := usual_group(free)) in one.columns for one in everything):
        roles = replace(roles, group=usual)
    if roles.split is not None:
        parts = _by_column(everything, roles, said)
        if set(parts) == {"train"} and (options.get("validation_size") or options.get("test_size")):
            said.append(
                f"column {roles.split!r} marks every row as train; rows to validate and test on are taken from these "
                "all the same, unless validation_size=0 and test_size=0 say otherwise"
            )
    else:
        labelled_tables = _labelled(tables, roles, said)
        parts = {part or "train": gather(ones, roles, first.origin) for part, ones in labelled_tables.items()}
    for target in roles.targets:
        parts = _without_marks(parts, target, kind, said)
    guessed = label is None and first.origin.lower().removesuffix(".gz").endswith((".csv", ".tsv"))
    if guessed and any(roles.targets[0] in data[roles.targets[0]] for data in parts.values()):
        said.append(
            f"the first line of {first.origin} is taken for the names of the columns, and {roles.targets[0]!r} is a "
            "label too: if it is a row of data, put a line with names above it"
        )
    if kind is None:
        kind, why = _guess_kind(roles, parts)
        said.append(f"kind guessed as {kind}: {why}")
        column = next(iter(parts.values()))[roles.targets[0]]
        if kind_of(kind).classes_of_samples and (example := dressed_number(column)):
            said.append(
                f"labels such as {example!r} look like amounts, and are taken for names: write plain numbers (3.5) for "
                "a regression, or say kind='multilabel' if they are several labels in one"
            )
        elif kind_of(kind).classes_of_samples and (example := joined_labels(column)):
            said.append(f"labels such as {example!r} look like several in one: if they are, say kind='multilabel'")
    check_fit(kind, roles.modality)
    chosen = kind_of(kind)
    parts = {part: _with_labels(part, data, roles, chosen, said) for part, data in parts.items()}
    if len(roles.targets) == 1:
        labels = {part: columns[roles.targets[0]] for part, columns in parts.items()}
        for part, rows in unlabelled_rows(labels, kind, said).items():
            parts[part] = _take(parts[part], np.flatnonzero(~rows))
    labelled = {part: list(zip(*(data[name] for name in roles.targets), strict=True)) for part, data in parts.items()}
    names, targets = chosen.encode_columns(labelled, roles.targets, separator)
    groups = {} if roles.group is None else group_numbers({p: data[roles.group] for p, data in parts.items()})
    splits = {part: Split(inputs_of(parts[part], roles), targets[part], groups=groups.get(part)) for part in parts}
    return assemble(
        name=name,
        kind=kind,
        modality=roles.modality,
        target_names=names,
        splits=splits,
        notes=said,
        source=source,
        group=roles.group,
        group_guessed=group is None,
        **options,
    )


Columns = dict[str, Sequence[Any]]
"""The columns of one split that have a role."""


def _labelled(
    tables: Mapping[str | None, Sequence[Table]], roles: Roles, notes: list[str]
) -> dict[str | None, Sequence[Table]]:
    """The splits without those that have no column of labels at all, as the test files of competitions have none."""
    found: dict[str | None, Sequence[Table]] = {}
    for part, ones in tables.items():
        if part in (None, "train") or any(name in one.columns for one in ones for name in roles.targets):
            found[part] = ones
        else:
            rows = sum(one.length for one in ones)
            notes.append(
                f"{ones[0].origin} has no column {roles.targets[0]!r}: its {rows:,} rows of {part} have no labels and "
                "are left out (hubscout predict reads them)"
            )
    return found


def gather(tables: Sequence[Table], roles: Roles, origin: str = "") -> Columns:
    """The columns with a role, of all files of a split; paths in them are made absolute, each from its own file.

    `origin` is the file that the roles were found in, for an error.
    """
    named = [*roles.inputs, *roles.targets, roles.split, roles.group]
    wanted = list(dict.fromkeys(name for name in named if name is not None))
    columns = stack(tables, wanted, origin)
    if roles.modality in {"image", "audio"}:
        name = roles.inputs[0]
        columns[name] = join([_rooted(table.columns[name], table.root) for table in tables])
    return columns


def _rooted(values: Sequence[Any], root: Path | None) -> Sequence[Any]:
    if root is None or not isinstance(values, list):
        return values
    return [str(root / value) if isinstance(value, str) and value else value for value in values]


def _length(columns: Columns) -> int:
    return len(next(iter(columns.values())))


def _take(columns: Columns, rows: np.ndarray) -> Columns:
    if len(rows) == _length(columns):
        return columns
    return {name: take(values, rows) for name, values in columns.items()}


def _by_column(tables: Sequence[Table], roles: Roles, notes: list[str]) -> dict[str, Columns]:
    assert roles.split is not None
    columns = gather(tables, roles, tables[0].origin)
    values = columns[roles.split]
    rows: dict[str, list[int]] = {}
    named = [(row, value) for row, value in enumerate(values) if not is_missing(value)]
    for row, value in named:
        if (part := canonical_split(value)) is None:
            raise TaskError(
                f"The column {roles.split!r} holds {value!r:.60} (row {row}), which is not the name of a split. Known "
                f"names: {known_split_names()}. Say split=False to ignore the column."
            )
        rows.setdefault(part, []).append(row)
    if unnamed := len(values) - len(named):
        notes.append(f"{unnamed:,} of {len(values):,} rows have no value in {roles.split!r} and are left out")
    if not rows:
        raise TaskError(f"The column {roles.split!r} is empty in all {len(values):,} rows.")
    return {part: _take(columns, np.array(chosen)) for part, chosen in rows.items()}


def _guess_kind(roles: Roles, parts: Mapping[str, Columns]) -> tuple[str, str]:
    if roles.modality == "tokens":
        return "tagging", "the inputs are lists of words"
    columns = parts.get("train") or next(iter(parts.values()))
    if len(roles.targets) == 1:
        return guess_kind(columns[roles.targets[0]])
    numbers = [as_number(value) for name in roles.targets for value in columns[name]]
    if any(number is None for number in numbers):
        names = [name for name in roles.targets if any(as_number(value) is None for value in columns[name])]
        raise TaskError(f"Several label columns must hold numbers; {names[0]!r} does not. Say label= one column.")
    if {number for number in numbers if number == number} <= {0.0, 1.0}:
        return "multilabel", "the label columns hold 0 and 1"
    return "regression", "the label columns hold numbers"


def dressed_number(values: Sequence[Any]) -> str | None:
    """An example of labels that are all amounts, some of them not written as plain numbers.

    >>> dressed_number(["3,5", "4", "12,75"]), dressed_number(["$3", "$1,200"]), dressed_number(["1,2", "red"])
    ('3,5', '$3', None)
    """
    names = {value.strip() for value in values if isinstance(value, str) and not is_missing(value)}
    if not all(_AMOUNT.fullmatch(name) for name in names):
        return None
    return min((name for name in names if as_number(name) is None), default=None, key=lambda name: (len(name), name))


def _without_marks(parts: Mapping[str, Columns], column: str, kind: str | None, notes: list[str]) -> dict[str, Columns]:
    """Columns of amounts without words for a missing one, such as "N/A", which would make classes of them all."""
    values = [value for data in parts.values() for value in data[column] if not is_missing(value)]
    numbers = [value for value in values if as_number(value) is not None]
    others = [value for value in values if as_number(value) is None]
    if not others or len(others) > len(numbers):
        return dict(parts)
    if not all(isinstance(value, str) and value.strip().lower() in _MISSING_WORDS for value in others):
        return dict(parts)
    if not kind_of(kind or guess_kind(numbers)[0]).is_real_valued:
        return dict(parts)
    notes.append(f"{others[0]!r} counts as missing in column {column!r}, whose other values are numbers")
    return {
        part: {**data, column: [None if as_number(value) is None else value for value in data[column]]}
        for part, data in parts.items()
    }


def joined_labels(values: Sequence[Any]) -> str | None:
    """An example of labels that look like several in one, because their parts occur in other labels too.

    >>> joined_labels(["big;red", "big", "red;small"]), joined_labels(["Portland, OR", "Salem, MA"])
    ('big;red', None)
    """
    names = {value.strip() for value in values if isinstance(value, str)}
    for mark in SEPARATORS:
        joined = sorted(name for name in names if mark in name.strip(mark))
        parts = Counter(part.strip() for name in names for part in {*name.split(mark)})
        shared = [name for name in joined if all(parts[part.strip()] > 1 for part in name.split(mark))]
        if shared:
            return shared[0]
    return None


def _with_labels(part: str, columns: Columns, roles: Roles, kind: TaskKind, notes: list[str]) -> Columns:
    """The rows that have a label: for several targets, those that have all of them."""
    if kind.has_label_sets and len(roles.targets) == 1:
        # An empty cell of text is the empty set of labels; None is no answer.
        gone = [value is None for value in columns[roles.targets[0]]]
    else:
        gone = [any(is_missing(columns[name][row]) for name in roles.targets) for row in range(_length(columns))]
    if missing := sum(gone):
        what = "a label" if len(roles.targets) > 1 else f"a value in {roles.targets[0]!r}"
        if part == "train" and missing == len(gone):
            raise TaskError(f"None of the {len(gone):,} rows has {what}: check which column holds the labels.")
        notes.append(f"{missing:,} of {len(gone):,} rows in {part} lack {what} and are left out")
    return _take(columns, np.flatnonzero(~np.array(gone)))


def inputs_of(columns: Columns, roles: Roles) -> Sequence[Any]:
    """The inputs of a split, as its modality has them."""
    values = columns[roles.inputs[0]]
    if roles.modality == "image":
        return Images(values, origin=f"column {roles.inputs[0]!r}")
    if roles.modality == "audio":
        if len(values) and isinstance(values[0], Mapping) and "array" in values[0]:
            return AudioArrays(values)
        return Sounds(values, origin=f"column {roles.inputs[0]!r}")
    if roles.modality == "tokens":
        check_lists(values, f"words in {roles.inputs[0]!r}", "the data")
        return [[str(word) for word in row] for row in values]
    if roles.modality == "text-pair":
        return list(zip(*(map(_text, columns[name]) for name in roles.inputs), strict=True))
    return [_text(value) for value in values]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if is_missing(value):
        return ""
    if isinstance(value, (bool, int, float)):
        return str(value)
    raise TaskError(f"A text column must hold text; {type(value).__name__} {value!r:.60} came.")
