"""Which column of a table plays which role: inputs, targets, split. What is not given is guessed, and said aloud."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubscout.errors import TaskError, did_you_mean, shortened
from hubscout.tasks.audio import is_sound_path
from hubscout.tasks.images import is_image_name
from hubscout.tasks.labels import is_missing
from hubscout.tasks.reading import Table
from hubscout.tasks.splitting import canonical_split

TEXT_NAMES = ("text", "sentence", "content", "document", "review", "question", "tweet", "body", "abstract", "utterance")
PAIR_NAMES = (
    ("sentence_a", "sentence_b"),
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("text", "text_pair"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "passage"),
    ("query", "passage"),
)
TOKEN_NAMES = ("tokens", "words")
TARGET_NAMES = ("label", "labels", "class", "target", "targets", "category", "y")
TAG_NAMES = ("ner_tags", "tags", "labels", "pos_tags", "chunk_tags", "label")
SPLIT_COLUMNS = ("split", "partition", "subset", "fold")
GROUP_NAMES = ("group", "patient", "subject", "person", "user", "customer", "session", "speaker", "author")
"""Columns of such a name, or with `_id` or `id` after it, say which rows come from one source."""
# Never taken for a target: they number or name the rows.
_NAMING_COLUMNS = frozenset({"id", "idx", "index", "guid", "uid", "file", "filename", "file_name", "path", "name", ""})
_NAMING_COLUMNS |= {"__index_level_0__", "unnamed: 0"}  # the index of a data frame, as pandas writes it
_LOOK_AT_ROWS = 200
_WITHOUT_SPACES = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


@dataclass(frozen=True)
class Roles:
    """The columns of a task."""

    modality: str
    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    split: str | None
    group: str | None = None
    """Rows with the same value come from one source."""


def find_roles(
    table: Table,
    given: Mapping[str, str | Sequence[str] | None],
    *,
    label: str | Sequence[str] | None,
    split: str | bool | None,
    split_by_file: bool,
    notes: list[str],
    group: str | None = None,
) -> Roles:
    """The roles of a table's columns: those `given` of the inputs, by role, and guesses for the rest."""
    targets = () if label is None else as_columns(label, table)
    split_column = _find_split(table, split, split_by_file)
    if group is not None:
        check_column(group, table)
    modality, inputs = find_inputs(table, given, taken={*targets, split_column, group}, notes=notes)
    if not targets:
        targets = guess_targets(table, modality, taken={*inputs, split_column, group})
        notes.append(f"{_quoted(targets)} holds the {'tags' if modality == 'tokens' else 'labels'}")
    overlap = set(targets) & set(inputs)
    if overlap:
        raise TaskError(f"The column {sorted(overlap)[0]!r} cannot be input and label at once.")
    if split_column is not None and not isinstance(split, str):
        notes.append(f"column {split_column!r} says which row is in which split")
    if group in {*inputs, *targets, split_column} - {None}:
        raise TaskError(f"group={group!r}: this column holds inputs, labels or splits. Name another one.")
    return Roles(modality, inputs, targets, split_column, group)


def usual_group(columns: Iterable[str]) -> str | None:
    """The column that by its name says which rows come from one source, such as `patient_id`; None if none does.

    >>> usual_group(["text", "label", "Patient ID"]), usual_group(["text", "id"])
    ('Patient ID', None)
    """
    plain = {re.sub(r"[^a-z]", "", name.lower()).removesuffix("id"): name for name in columns}
    return next((plain[name] for name in GROUP_NAMES if name in plain), None)


def find_inputs(
    table: Table, given: Mapping[str, str | Sequence[str] | None], *, taken: set[str | None], notes: list[str]
) -> tuple[str, tuple[str, ...]]:
    """Modality and columns of the inputs: those `given` by role, or a guess among the columns not `taken`."""
    named = {role: as_columns(value, table) for role, value in given.items() if value is not None}
    if len(named) > 1:
        raise TaskError(f"Say one of image=, text=, audio= and tokens=; {' and '.join(named)} were given.")
    for role, inputs in named.items():
        if len(inputs) > (2 if role == "text" else 1):
            most = "one column, or two for pairs" if role == "text" else "one column"
            raise TaskError(f"{role}= takes {most}; {len(inputs)} came: {', '.join(inputs)}.")
        return "text-pair" if len(inputs) == 2 else role, inputs
    modality, inputs = _guess_inputs(table, taken)
    notes.append(f"{_quoted(inputs)} {'hold' if len(inputs) > 1 else 'holds'} the inputs ({modality})")
    return modality, inputs


def check_column(name: str, table: Table) -> None:
    """The column is there; otherwise the error lists those that are, and offers the nearest."""
    if name not in table.columns:
        same = [other for other in table.columns if other.strip().lower() == name.strip().lower()]
        hint = f" Did you mean {same[0]!r}?" if same else did_you_mean(name, table.columns)
        raise TaskError(f"{table.origin} has no column {name!r}.{hint} It has: {shortened(table.columns)}.")


def as_columns(value: str | Sequence[str], table: Table) -> tuple[str, ...]:
    """Columns that are there, by one name, a list of names, or names between commas as the command line gives them."""
    if isinstance(value, str):
        names = (value,) if value in table.columns else tuple(part.strip() for part in value.split(","))
    else:
        names = tuple(str(part) for part in value) if isinstance(value, Iterable) else (str(value),)
    if not names:
        raise TaskError("A list of columns must not be empty.")
    for name in names:
        check_column(name, table)
    return names


def usual_name(columns: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """The column that has the first of these names, in any case; none where no column has one."""
    lower = {column.lower(): column for column in columns}
    return next(((lower[name],) for name in names if name in lower), ())


def _quoted(names: Iterable[str]) -> str:
    listed = list(names)
    return f"column{'s' if len(listed) > 1 else ''} {', '.join(repr(name) for name in listed)}"


def _find_split(table: Table, split: str | bool | None, split_by_file: bool) -> str | None:
    if isinstance(split, str):
        check_column(split, table)
        return split
    if split is False or split_by_file:
        return None
    return next(iter(usual_name(table.columns, SPLIT_COLUMNS)), None)


def _sample(table: Table, name: str) -> list[Any]:
    column = table.columns[name]
    values = [column[row] for row in range(0, len(column), max(1, len(column) // _LOOK_AT_ROWS))]
    return [value for value in values if not is_missing(value)]


def _guess_inputs(table: Table, taken: set[str | None]) -> tuple[str, tuple[str, ...]]:
    for name, modality in table.modalities.items():
        if name not in taken:
            return modality, (name,)
    samples = {name: values for name in table.columns if name not in taken and (values := _sample(table, name))}
    lower = {name.lower(): name for name in samples}
    for name in sorted(samples, key=lambda name: ("image" not in name.lower(), "img" not in name.lower())):
        if all(_is_image(value) for value in samples[name]):
            return "image", (name,)
    for first, second in PAIR_NAMES:
        if first in lower and second in lower and all(_is_text(samples[lower[name]]) for name in (first, second)):
            return "text-pair", (lower[first], lower[second])
    for name in TOKEN_NAMES:
        if name in lower and all(isinstance(value, (list, tuple)) for value in samples[lower[name]]):
            return "tokens", (lower[name],)
    for name in TEXT_NAMES:
        if name in lower and _is_text(samples[lower[name]]):
            return "text", (lower[name],)
    for name, values in samples.items():
        if all(_is_image_path(value) for value in values):
            return "image", (name,)
        if all(is_sound_path(value) or _is_sound(value) for value in values):
            return "audio", (name,)
    longest = max(samples, key=lambda name: _mean_words(samples[name]), default=None)
    if longest is not None and _mean_words(samples[longest]) >= 3:
        return "text", (longest,)
    words = sum(not all(map(_is_number, values)) for values in samples.values())
    if len(samples) > 1 and (words == 0 or (words == 1 and len(samples) > 2)):  # the one may be the label
        raise TaskError(
            f"{table.origin}: there are numbers only, and no pre-trained model reads a table of numbers. For features "
            "of your own there are hubscout.logme(X, y) and LogMEClassifier in Python. If a column holds texts or "
            "paths of images all the same, say text= or image= its name."
        )
    raise TaskError(
        f"{table.origin}: cannot tell which column holds the inputs. Say text=, image=, audio= or tokens= one of: "
        f"{shortened(table.columns)}."
    )


def _is_image(value: Any) -> bool:
    """Whether a cell holds an encoded image."""
    stored = value.get("bytes") if isinstance(value, Mapping) else value
    if isinstance(stored, bytes):
        return not _is_sound(stored)
    return isinstance(value, Mapping) and stored is None and _is_image_path(value.get("path"))


def _is_image_path(value: Any) -> bool:
    return isinstance(value, (str, Path)) and is_image_name(value)


def _is_sound(value: Any) -> bool:
    """Whether a cell holds a sound, encoded or as numbers."""
    stored = value.get("bytes") if isinstance(value, Mapping) else value
    if isinstance(stored, bytes):
        is_wave = stored[:4] in (b"RIFF", b"RIFX", b"RF64") and stored[8:12] == b"WAVE"
        return is_wave or stored[:4] in (b"fLaC", b"OggS") or stored[:3] == b"ID3"
    return isinstance(value, Mapping) and stored is None and (is_sound_path(value.get("path")) or "array" in value)


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, bytes) and float(value) is not None
    except (TypeError, ValueError):
        return False


def _is_text(values: Sequence[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _mean_words(values: Sequence[Any]) -> float:
    """Words of a text, by the spaces between them; a character of a script without spaces, as Chinese, is a word."""
    if not _is_text(values):
        return 0.0
    return sum(len(value.split()) + len(_WITHOUT_SPACES.findall(value)) for value in values) / len(values)


def guess_targets(table: Table, modality: str, taken: set[str | None]) -> tuple[str, ...]:
    """The column with a usual name for labels, or the only one that is left."""
    free = [name for name in table.columns if name not in taken]
    if usual := usual_name(free, TAG_NAMES if modality == "tokens" else TARGET_NAMES):
        return usual
    left = [
        name
        for name in free
        if name.strip().lower() not in _NAMING_COLUMNS and not all(map(canonical_split, _sample(table, name)))
    ]
    if len(left) == 1:
        return (left[0],)
    if not left:
        listed = shortened(map(repr, table.columns))
        raise TaskError(f"{table.origin} has no column left for the labels; its columns are {listed}.")
    raise TaskError(
        f"{table.origin}: several columns could be the label. Say label= one of: {shortened(left)} (or several, "
        "for many real-valued columns or labels)."
    )
