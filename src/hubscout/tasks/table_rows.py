"""From tables to a task: choose columns and kind, leave out rows without a label, make targets, divide by splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hubscout.errors import TaskError
from hubscout.tasks.assembly import assemble, check_fit, unlabelled_rows
from hubscout.tasks.audio import AudioArrays, Sounds
from hubscout.tasks.columns import Roles, find_roles
from hubscout.tasks.images import Images
from hubscout.tasks.kinds import TaskKind, kind_of
from hubscout.tasks.labels import SEPARATORS, as_number, check_lists, guess_kind, is_missing
from hubscout.tasks.reading import Table, stack
from hubscout.tasks.sequences import join, take
from hubscout.tasks.splitting import canonical_split, known_split_names
from hubscout.tasks.task import Split, Task

_INPUT_ROLES = ("image", "text", "audio", "tokens")
TABLE_OPTIONS = (*_INPUT_ROLES, "label", "kind", "split", "separator", "validation_size", "test_size", "seed")
"""The options that every constructor which reads columns has, and `task_from_tables` takes."""


def task_from_tables(
    tables: Mapping[str | None, Sequence[Table]],
    *,
    name: str,
    source: Mapping[str, Any] | None,
    label: str | Sequence[str] | None = None,
    kind: str | None = None,
    split: str | bool | None = None,
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
    roles = find_roles(first, given, label=label, split=split, split_by_file=None not in tables, notes=said)
    if roles.split is not None:
        parts = _by_column(everything, roles, said)
        if set(parts) == {"train"} and (options.get("validation_size") or options.get("test_size")):
            said.append(
                f"column {roles.split!r} marks every row as train; rows to validate and test on are taken from these "
                "all the same, unless validation_size=0 and test_size=0 say otherwise"
            )
    else:
        parts = {part or "train": gather(ones, roles) for part, ones in tables.items()}
    if kind is None:
        kind, why = _guess_kind(roles, parts)
        said.append(f"kind guessed as {kind}: {why}")
        column = next(iter(parts.values()))[roles.targets[0]]
        if kind_of(kind).classes_of_samples and (example := joined_labels(column)):
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
    splits = {part: Split(inputs_of(parts[part], roles), targets[part]) for part in parts}
    return assemble(
        name=name,
        kind=kind,
        modality=roles.modality,
        target_names=names,
        splits=splits,
        notes=said,
        source=source,
        **options,
    )


Columns = dict[str, Sequence[Any]]
"""The columns of one split that have a role."""


def gather(tables: Sequence[Table], roles: Roles) -> Columns:
    """The columns with a role, of all files of a split; paths in them are made absolute, each from its own file."""
    wanted = list(dict.fromkeys([*roles.inputs, *roles.targets, *([roles.split] if roles.split else [])]))
    columns = stack(tables, wanted)
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
    columns = gather(tables, roles)
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
