"""Inputs to predict for: read as a task is read, but nothing is split and labels may be missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from hubscout.errors import TaskError
from hubscout.tasks.audio import Sounds, is_sound_path
from hubscout.tasks.columns import TAG_NAMES, TARGET_NAMES, Roles, as_columns, find_inputs, guess_targets, usual_name
from hubscout.tasks.conll import is_conll_name, read_sentences
from hubscout.tasks.image_folders import missing_path, walk
from hubscout.tasks.images import Images, is_image_name
from hubscout.tasks.kinds import Targets, TaskKind
from hubscout.tasks.labels import as_number, is_missing
from hubscout.tasks.reading import Table, read_table, read_text, table_format
from hubscout.tasks.sequences import Rows, join, take, unreadable_rows
from hubscout.tasks.splitting import canonical_split
from hubscout.tasks.table_rows import gather, inputs_of

_TEXT_LIKE = frozenset({"text", "text-pair", "tokens"})
_OF_FILES = {"image": (Images, is_image_name), "audio": (Sounds, is_sound_path)}
"""What reads inputs that are a file each, and which files these are."""


@dataclass(frozen=True)
class Inputs:
    """Inputs with a name each for people, and a label each as it stands in the data; None where there is none."""

    names: Sequence[str]
    values: Sequence[Any]
    labels: Sequence[Any]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Sequence[int]) -> Inputs:
        """Some of them."""
        return Inputs(take(self.names, rows), Rows(self.values, rows), take(self.labels, rows), self.notes)

    def unreadable(self) -> dict[int, str]:
        """The rows that cannot be decoded, with the reason of each."""
        return unreadable_rows(self.values)


def check_paths(paths: Iterable[Path]) -> None:
    """Refuse what is not there; a text in the place of a file is told how it is given."""
    for path, _ in map(_with_options, paths):
        if not path.exists():
            text = f" A text itself is given by --text {str(path)!r}." if " " in path.name else ""
            raise TaskError(missing_path(path.absolute()) + text)


def _with_options(path: Path) -> tuple[Path, dict[str, str]]:
    """A file, and how its text is read where that follows, as in `reviews.csv?encoding=cp1252`."""
    whole = Path(os.path.expanduser(path))
    plain, _, query = str(whole).partition("?")
    options = dict(parse_qsl(query))
    known = options and set(options) <= {"encoding", "delimiter"} and not whole.exists()
    return (Path(plain), options) if known else (whole, {})


@dataclass(frozen=True)
class Reader:
    """Reads what a model with these targets takes.

    `modalities` are those of the model. `columns` are the columns of the inputs in tables by role (`image`, `text`,
    `tokens`), `label` that of the labels; what is not given is guessed as for a task.
    """

    modalities: Sequence[str]
    kind: TaskKind
    target_names: Sequence[str]
    columns: Mapping[str, str | Sequence[str] | None]
    label: str | Sequence[str] | None = None
    image_root: Path | None = None
    """Where paths of images in a table start from; None for the folder of the table."""

    @property
    def file_modality(self) -> str | None:
        """`image` or `audio`, whose inputs are a file each; None for a model that reads text."""
        return next((modality for modality in _OF_FILES if modality in self.modalities), None)

    def read(self, paths: Sequence[Path]) -> Inputs:
        """Files and folders, one after another."""
        check_paths(paths)
        notes: list[str] = []
        parts = [self._read(*_with_options(path), notes) for path in paths]
        parts = [part for part in parts if len(part)]
        return Inputs(
            [name for part in parts for name in part.names],
            join([part.values for part in parts]) if parts else [],
            [label for part in parts for label in part.labels],
            tuple(dict.fromkeys(notes)),
        )

    def _read(self, path: Path, options: Mapping[str, str], notes: list[str]) -> Inputs:
        if path.is_file() and table_format(path) is not None:
            table = read_table(path, **options)
            return self._read_table(replace(table, root=self.image_root or table.root), notes)
        if self.file_modality is not None:
            return self._read_files(path, *_OF_FILES[self.file_modality])
        if path.is_dir():
            raise TaskError(f"{str(path)!r} is a folder, and this model reads text: name the files in it.")
        if self.kind.rows_are_words and is_conll_name(path) and path.suffix != ".txt":
            sentences = read_sentences(path)
            words = [words for words, _ in sentences]
            return Inputs([" ".join(one) for one in words], words, [tags for _, tags in sentences])
        return self.texts(
            [line for line in read_text(path, options.get("encoding", "utf-8")).splitlines() if line.strip()]
        )

    def texts(self, lines: Sequence[str]) -> Inputs:
        """Texts; one with a tab in it is a pair of texts, for tagging a text is split into words at its blanks."""
        if self.kind.rows_are_words:
            values: list[Any] = [line.split() for line in lines]
        else:
            values = [tuple(line.split("\t", 1)) if "\t" in line else line for line in lines]
        return Inputs(lines, values, [None] * len(lines))

    def _read_files(self, path: Path, sequence: type[Images], is_one: Callable[[Path], bool]) -> Inputs:
        if path.is_file():
            return Inputs([str(path)], sequence([path]), [None])
        files = [file for file in walk(path) if is_one(file)]
        labels = [_class_folder(file.relative_to(path), self.target_names) for file in files]
        # Folders that are no classes of the model sort the files by something else.
        known = self.kind.classes_of_samples and None not in labels
        return Inputs([str(file) for file in files], sequence(files), labels if known else [None] * len(files))

    def _read_table(self, table: Table, notes: list[str]) -> Inputs:
        targets = self._target_columns(table)
        columns = dict(self.columns)
        free = [name for name in table.columns if name not in targets]
        if len(free) == 1 and not any(columns.values()):
            columns[self.file_modality or self.kind.text_role] = free
        modality, inputs = find_inputs(table, columns, taken={*targets}, notes=notes)
        fits = (modality == "tokens") == self.kind.rows_are_words if modality in _TEXT_LIKE else True
        if modality not in self.modalities or not fits:
            reads = "lists of words" if self.kind.rows_are_words else " or ".join(self.modalities)
            raise TaskError(
                f"{table.origin}: {', '.join(map(repr, inputs))} was taken for the inputs ({modality}), but this model "
                f"reads {reads}. Name the column that holds them."
            )
        roles = Roles(modality, inputs, targets or self._only_other_column(table, modality, inputs), None)
        data = gather([table], roles)
        values = inputs_of(data, roles)
        rows = list(zip(*(data[name] for name in roles.targets), strict=True)) or [(None,)] * table.length
        labels = [None if any(map(self._is_no_label, row)) else row if len(row) > 1 else row[0] for row in rows]
        return Inputs(_names(table, modality, data[inputs[0]], values), values, labels)

    def _target_columns(self, table: Table) -> tuple[str, ...]:
        if self.label is not None:
            return self._in_order(as_columns(self.label, table))
        if all(name in table.columns for name in self.target_names) and self.kind.takes_columns:
            return tuple(self.target_names)
        return usual_name(table.columns, TAG_NAMES if self.kind.rows_are_words else TARGET_NAMES)

    def _in_order(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        """The columns that were named, one per target: by their names where these are the targets', else in turn."""
        wanted = tuple(self.target_names)
        if not self.kind.takes_columns or (self.kind.has_label_sets and len(columns) == 1):
            return columns
        if set(wanted) <= set(columns):
            return wanted
        if len(columns) != len(wanted):
            raise TaskError(
                f"The model predicts {len(wanted)} {'number' if self.kind.is_real_valued else 'label'}"
                f"{'s' if len(wanted) != 1 else ''} ({', '.join(wanted)}), and {len(columns)} "
                f"{'columns were' if len(columns) != 1 else 'column was'} named as labels: {', '.join(columns)}. Name "
                "one for each, in this order."
            )
        return columns

    def _only_other_column(self, table: Table, modality: str, inputs: Sequence[str]) -> tuple[str, ...]:
        """A column that a task would take for the labels, if it holds nothing but classes of the model."""
        if not self.kind.classes_of_samples:
            return ()
        try:
            (name,) = guess_targets(table, modality, taken={*inputs})
            present = [value for value in table.columns[name] if not self._is_no_label(value)]
            self.kind.encode({table.origin: present}, self.target_names)
        except TaskError:
            return ()
        return (name,)

    def _is_no_label(self, value: Any) -> bool:
        # The mark of benchmarks for a label that is not given away.
        marked = self.kind.classes_of_samples and str(value).strip() == "-1" and "-1" not in self.target_names
        return marked or is_missing(value)

    def named(self, label: Any) -> Any:
        """A label as predictions are told: of 0/1 columns, the names of those that have a 1."""
        if not (self.kind.has_label_sets and isinstance(label, tuple)):
            return label
        return [name for name, value in zip(self.target_names, label, strict=True) if as_number(value)]

    def encode(self, inputs: Inputs) -> Targets:
        """The labels of inputs that all have one as targets of the model; an error where they are not its targets."""
        kind, labels, part = self.kind, inputs.labels, "the inputs"
        if kind.takes_columns and all(isinstance(label, tuple) for label in labels):
            return kind.encode_columns({part: labels}, self.target_names)[1][part]
        targets = kind.encode({part: labels}, self.target_names)[1][part]
        kind.check_lengths(inputs.values, targets, part)
        return targets


def _class_folder(path: Path, classes: Sequence[str]) -> str | None:
    """The class of `CLASS/IMAGE`, with or without folders such as `SPLIT` around it."""
    folders = path.parts[:-1]
    if len(folders) > 1 and canonical_split(folders[0]) is not None:
        folders = folders[1:]
    return next((folder for folder in folders if folder in classes), None)


def _names(table: Table, modality: str, column: Sequence[Any], values: Sequence[Any]) -> list[str]:
    if modality in _OF_FILES:
        return [
            str(column[row]) if isinstance(column[row], str) else f"{table.origin}, row {row + 1}"
            for row in range(table.length)
        ]
    join_by = {"tokens": " ", "text-pair": "\t"}.get(modality)
    return [value if join_by is None else join_by.join(value) for value in values]
