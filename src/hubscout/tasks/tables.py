"""Tasks out of tables: files of CSV, TSV, JSONL or Parquet, and data frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hubscout.errors import TaskError
from hubscout.tasks.assembly import opened_by
from hubscout.tasks.image_folders import check_folder, existing_path, name_of
from hubscout.tasks.reading import Table, frame_table, read_table, table_format
from hubscout.tasks.splitting import check_split, split_in_name
from hubscout.tasks.table_rows import TABLE_OPTIONS, task_from_tables
from hubscout.tasks.task import Task


def from_table(
    source: Any,
    *,
    image: str | None = None,
    text: str | Sequence[str] | None = None,
    audio: str | None = None,
    tokens: str | None = None,
    label: str | Sequence[str] | None = None,
    kind: str | None = None,
    split: str | bool | None = None,
    group: str | None = None,
    separator: str | None = None,
    encoding: str = "utf-8",
    delimiter: str | None = None,
    image_root: str | Path | None = None,
    name: str | None = None,
    validation_size: float = 0.1,
    test_size: float = 0.2,
    seed: int = 0,
) -> Task:
    """A task out of a table, or of one table per split.

    Rows without a label, or without a value in the `split` column that was named, are left out and counted in the
    notes. What is not given is guessed, and said in the notes.

    Args:
        source: a file (CSV, TSV, JSONL, JSON, Parquet; text formats also as `.gz`), a folder with one file per split
            (`train.csv`, `pets-test.parquet`, `train-00000-of-00002.parquet`), a mapping from splits to files or lists
            of files, a data frame of pandas or polars, or a mapping from splits to those.
        image: the column of images, paths or bytes. One of `image`, `text`, `audio` and `tokens` holds the inputs.
        text: the column of texts, or two columns for pairs of texts.
        audio: the column of sounds.
        tokens: the column of lists of words.
        label: the column of labels; several are real-valued columns, or 0/1 columns of a multi-label task.
        kind: classification, multilabel, regression or tagging.
        split: the column that says which row is in which split; False ignores such a column.
        group: the column that says which rows come from one source, such as a patient: rows of one value are not
            divided where rows are split off.
        separator: between the labels of a multi-label column; `;`, `|` or `,` by default.
        encoding: of text files.
        delimiter: between the cells of a CSV file.
        image_root: the folder that paths of images start from; that of the file by default.
        name: what to call the task; the name of the file by default.
        validation_size: the fraction of the rows that is split off, where there is no validation split.
        test_size: the same for test.
        seed: of these splits.

    Returns:
        The task.

    Raises:
        TaskError: a file that cannot be read, a column that is not there, or labels of a wrong kind.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"text": [f"film {i}" for i in range(10)], "label": ["good", "bad"] * 5})
        >>> from_table(frame, text="text", label="label").target_names
        ('bad', 'good')

    """
    arguments = dict(locals())
    files = table_files(source)
    root = None if image_root is None else check_folder(image_root)
    tables = {
        part: [_read(one, root, encoding=encoding, delimiter=delimiter) for one in ones] for part, ones in files.items()
    }
    origin = None
    if all(isinstance(one, Path) for ones in files.values() for one in ones):
        paths: Any = {part: [str(one) for one in ones] for part, ones in files.items() if part is not None}
        found = {"source": paths or str(files[None][0]), "image_root": None if root is None else str(root)}
        origin = opened_by("from_table", arguments, **found)
    options = {option: arguments[option] for option in TABLE_OPTIONS}
    return task_from_tables(tables, name=name or _name(source, files), source=origin, **options)


_RUN_RECORDS = ("ranking.json", "tuning.json", "race.json")
"""Tables by their endings, but what a ranking, a tuning and a race leave in their folders."""


def table_files(source: Any) -> dict[str | None, list[Any]]:
    """The files or frames of each split; under None where the files do not say."""
    return files_by_split(source, tables_in, "tables (CSV, TSV, JSONL, Parquet)")


def files_by_split(source: Any, found_in: Callable[[Path], list[Path]], what: str) -> dict[str | None, list[Any]]:
    """The files of a path, of a folder or of a mapping from splits; `found_in` finds those of `what` in a folder."""
    if is_frame(source):
        return {None: [source]}
    if isinstance(source, Mapping):
        files: dict[str | None, list[Any]] = {}
        for part, ones in source.items():
            listed = [ones] if isinstance(ones, (str, Path)) or is_frame(ones) else list(ones)
            found = [one if is_frame(one) else existing_path(one) for one in listed]
            files.setdefault(check_split(part), []).extend(found)
        if not any(files.values()):
            raise TaskError("The mapping from splits to files is empty.")
        return files
    if not isinstance(source, (str, Path)):
        raise TaskError(f"Give a path, a mapping from splits to paths, or a data frame; it was {source!r:.60}.")
    path = existing_path(source)
    there = [path] if not path.is_dir() else sorted(found_in(path))
    if path.is_dir() and (by_split := split_files(there)):
        return dict(by_split)
    if len(there) == 1:
        return {None: there}
    if not there:
        raise TaskError(f"The folder {str(path)!r} has no {what}.")
    if record := next((file.name for file in there if file.name in _RUN_RECORDS), None):
        raise TaskError(f"{str(path)!r} is the folder of a run (it has {record}): give the data first.")
    raise TaskError(
        f"The folder {str(path)!r} has {len(there)} {what}, and their names do not say which split they are: "
        f"{', '.join(file.name for file in there[:8])}. Name one of them, or give a mapping from splits to files."
    )


def tables_in(folder: Path) -> list[Path]:
    """The tables of a folder, or else of the folder `data` in it, where repositories of the hub keep them."""
    tables = sorted(entry for entry in folder.iterdir() if entry.is_file() and table_format(entry) is not None)
    return tables_in(folder / "data") if not tables and (folder / "data").is_dir() else tables


def split_files(paths: Iterable[Path]) -> dict[str | None, list[Path]]:
    """Files by the split that their names speak of, if one speaks of train; otherwise nothing.

    >>> split_files([Path("a-train.csv"), Path("a-dev.csv"), Path("notes.csv")])["validation"][0].name
    'a-dev.csv'
    """
    found: dict[str | None, list[Path]] = {}
    endings: Counter[str] = Counter()
    for path in sorted(paths):
        if (split := split_in_name(path.name.partition(".")[0])) is not None:
            found.setdefault(split, []).append(path)
            endings[path.suffix] += 1
    if "train" not in found:
        return {}
    # The same data lies there twice, in two formats: one is enough.
    if len(endings) > 1:
        best = max(endings, key=lambda ending: (endings[ending], ending))
        found = {split: kept for split, ones in found.items() if (kept := [one for one in ones if one.suffix == best])}
    return found if "train" in found else {}


def is_frame(value: Any) -> bool:
    """Whether a value is a data frame of pandas or polars."""
    return (hasattr(value, "iloc") or hasattr(value, "get_column")) and hasattr(value, "columns")


def _read(one: Any, root: Path | None, *, encoding: str, delimiter: str | None) -> Table:
    frame = is_frame(one)
    table = frame_table(one, "data frame") if frame else read_table(one, encoding=encoding, delimiter=delimiter)
    return table if root is None else replace(table, root=root)


def _name(source: Any, files: Mapping[str | None, Sequence[Any]]) -> str:
    first = next((one for ones in files.values() for one in ones), None)
    if isinstance(source, (str, Path)):
        return name_of(source) or "table"
    return first.parent.name if isinstance(first, Path) else "table"
