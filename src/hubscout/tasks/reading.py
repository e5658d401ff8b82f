"""Files of tables, read into columns without changing a value: text stays the text it was.

CSV cells are all text here. What is a number is decided later, by the role of a column, so that the text "NA" is not
a missing value and the class "007" is not the class 7. What a file may unpack to is limited: a small one must not fill
the memory of the machine that reads it.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hubscout.errors import TaskError
from hubscout.tasks.image_folders import missing_path
from hubscout.tasks.sequences import join

FORMATS = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json"}
FORMATS |= {".parquet": "parquet", ".pq": "parquet"}
MOST_COLUMNS = 100_000
MOST_CELLS = 200_000_000
_SMALLEST_LIMIT_BYTES = 256 << 20
# Text and labels pack to a tenth or a twentieth; a file that packs to a hundredth holds next to nothing.
_LARGEST_RATIO = 100
_VARIABLE = "HUBSCOUT_MAX_UNPACKED_BYTES"
_DEEPEST = 8
_STORED = {"bytes", "path", "array"}
"""What an object that is one image or one sound has, as `datasets` stores them."""


@dataclass(frozen=True)
class Table:
    """Equally long columns, and where paths in them start from.

    `modalities` are those of the columns that the file itself says are images or sounds.
    """

    columns: dict[str, Sequence[Any]]
    length: int
    root: Path | None
    origin: str
    modalities: dict[str, str] = field(default_factory=dict)


def table_format(path: Path) -> str | None:
    """The format by the ending, `.gz` aside; None for no table.

    >>> table_format(Path("a.csv.gz")), table_format(Path("a.PARQUET")), table_format(Path("a.txt"))
    ('csv', 'parquet', None)
    """
    name = path.name.lower().removesuffix(".gz")
    return next((form for ending, form in FORMATS.items() if name.endswith(ending)), None)


def read_table(path: Path, *, encoding: str = "utf-8", delimiter: str | None = None) -> Table:
    """Read one file by its ending."""
    form = table_format(path)
    if form is None:
        raise TaskError(f"{str(path)!r} is not a table: expected one of {', '.join(FORMATS)}, also with .gz after it.")
    if not path.is_file():
        raise TaskError(missing_path(path))
    if form == "parquet":
        from hubscout.tasks.parquet import read_parquet

        columns, length = read_parquet(path)
    else:
        text = read_text(path, encoding)
        columns, length = (
            _read_csv(path, text, form, delimiter) if form in {"csv", "tsv"} else _read_json(path, text, form)
        )
    if not length:
        raise TaskError(f"{str(path)!r} has no rows.")
    return Table(columns, length, path.parent, path.name)


def read_text(path: Path, encoding: str) -> str:
    """The text of a file, unpacked if it is a `.gz`; a byte-order mark is dropped."""
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = unpack(path, data)
        # Excel's "Unicode text" is UTF-16, and says so by its first bytes.
        utf_16 = encoding == "utf-8" and data[:2] in (b"\xff\xfe", b"\xfe\xff")
        text = data.decode("utf-16" if utf_16 else encoding)
    except UnicodeDecodeError as error:
        raise TaskError(
            f"{str(path)!r} is not {encoding} text (byte {error.object[error.start]:#04x} at {error.start:,}). "
            f"Say which it is: '{path.name}?encoding=cp1252' (Western Europe, such as Excel writes), latin-1, gb18030, "
            "shift_jis; or save the file as UTF-8."
        ) from error
    except LookupError as error:
        raise TaskError(
            f"encoding={encoding!r} is not an encoding that Python knows, such as 'utf-8' or 'latin-1'."
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise TaskError(f"{str(path)!r} cannot be read: {error}.") from error
    return text.removeprefix("\ufeff")


def _read_csv(path: Path, text: str, form: str, delimiter: str | None) -> tuple[dict[str, Sequence[Any]], int]:
    header = text.partition("\n")[0]
    mark = delimiter or ("\t" if form == "tsv" else max(",;\t|", key=header.count))
    try:
        lines = _split_lines(text, mark, csv.QUOTE_MINIMAL)
    except csv.Error as error:
        # Tab-separated files are often written without any quoting, so that a quotation mark is only a character.
        if mark != "\t":
            raise TaskError(
                f"{str(path)!r} cannot be read as cells between {mark!r}: {error}. Check the quotation marks around "
                "there, or say delimiter=."
            ) from error
        lines = _split_lines(text, mark, csv.QUOTE_NONE)
    except TypeError as error:
        raise TaskError(f"delimiter must be one character; it was {delimiter!r}.") from error
    if not lines:
        raise TaskError(f"{str(path)!r} is empty: a first line with the names of the columns was expected.")
    names = [name.strip() for name in lines[0][1]]
    check_shape(path, len(names), len(lines) - 1)
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise TaskError(f"{str(path)!r} has two columns called {twice!r}. The first line must name every column.")
    for number, cells in lines[1:]:
        while len(cells) > len(names) and not cells[-1]:
            cells.pop()
        if len(cells) != len(names):
            raise TaskError(
                f"{str(path)!r}, line {number}: {len(cells)} cells, but the first line names {len(names)} columns. "
                f"Put text that contains {mark!r} or a line break into quotation marks, or say delimiter=."
            )
    columns = zip(*(cells for _, cells in lines[1:]), strict=True)
    return {name: list(column) for name, column in zip(names, columns, strict=False)}, len(lines) - 1


def _split_lines(text: str, mark: str, quoting: Literal[0, 3]) -> list[tuple[int, list[str]]]:
    """Line numbers and cells of the lines that are not blank."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, quoting=quoting, strict=True)
    # The module's limit on the size of a cell is for all of the process: put it back.
    limit = csv.field_size_limit(len(text) + 1)
    try:
        return [(reader.line_num, cells) for cells in reader if cells]
    finally:
        csv.field_size_limit(limit)


def _read_json(path: Path, text: str, form: str) -> tuple[dict[str, Sequence[Any]], int]:
    """One object a line, or one list of objects; in a `.json` file also one object of columns, as pandas writes it."""
    whole = form == "json" and text.lstrip().startswith("[")
    if form == "json" and not whole and (rows_of := _rows_of_object(text)) is not None:
        text, whole = json.dumps(rows_of), True
    rows: list[Any] = []
    for number, line in enumerate([text] if whole else text.split("\n"), start=1):
        try:
            rows += (json.loads(line) if whole else [json.loads(line)]) if line.strip() else []
        except (ValueError, RecursionError) as error:
            where = "" if whole else f" in line {number}"
            raise TaskError(f"{str(path)!r} is not valid JSON{where}: {error}.") from error
    names: dict[str, None] = {}
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise TaskError(f"{str(path)!r}, row {number}: expected an object with named values, found {row!r:.60}.")
        rows[number] = row = _flat(row)
        names.update(dict.fromkeys(row))
    # Rows of ever new names would be a table of their number squared.
    check_shape(path, len(names), len(rows))
    return {name: [row.get(name) for row in rows] for name in names}, len(rows)


def _rows_of_object(text: str) -> list[Any] | None:
    """The rows of a file that is one object: of columns, or of one list of rows; None for any other.

    >>> _rows_of_object('{"text": ["a", "b"], "label": [0, 1]}')
    [{'text': 'a', 'label': 0}, {'text': 'b', 'label': 1}]
    >>> _rows_of_object('{"data": [{"text": "a"}]}'), _rows_of_object('{"text": "a"}')
    ([{'text': 'a'}], None)
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None  # one object a line, or the error that comes with the line
    if not isinstance(found, dict) or not found:
        return None
    columns = {name: list(one.values()) if isinstance(one, dict) else one for name, one in found.items()}
    lists = [one for one in columns.values() if isinstance(one, list)]
    tables = [one for one in lists if one and all(isinstance(row, dict) for row in one)]
    if len(tables) == 1:
        return tables[0]
    if len(lists) == len(columns) > 1 and len({len(one) for one in lists}) == 1:
        return [dict(zip(columns, cells, strict=True)) for cells in zip(*lists, strict=True)]
    return None


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """An object with objects in it as one: names are joined by points. A sound or an image stays one value.

    >>> _flat({"id": 3, "data": {"text": "a cat", "of": {"user": 7}}, "image": {"path": "a.png"}})
    {'id': 3, 'data.text': 'a cat', 'data.of.user': 7, 'image': {'path': 'a.png'}}
    """
    found = dict(row)
    for _ in range(_DEEPEST):
        nested = {name for name, value in found.items() if isinstance(value, dict) and not _STORED & value.keys()}
        if not nested:
            break
        flat: dict[str, Any] = {}
        for name, value in found.items():
            flat |= {f"{name}.{inner}": one for inner, one in value.items()} if name in nested else {name: value}
        found = flat
    return found


def frame_table(frame: Any, origin: str) -> Table:
    """A data frame of pandas or polars as a table; missing values of every sort become None."""
    if not len(frame):
        raise TaskError(f"{origin}: the data frame has no rows.")
    check_shape(origin, len(frame.columns), len(frame))
    if not hasattr(frame, "iloc"):
        return Table({str(name): frame.get_column(name).to_list() for name in frame.columns}, len(frame), None, origin)
    missing = frame.isna()
    columns: dict[str, Sequence[Any]] = {}
    for place, name in enumerate(frame.columns):
        gone = missing.iloc[:, place].tolist()
        values = frame.iloc[:, place].tolist()
        columns[str(name)] = [None if empty else value for empty, value in zip(gone, values, strict=True)]
    return Table(columns, len(frame), None, origin)


def stack(tables: Sequence[Table], names: Sequence[str], origin: str) -> dict[str, Sequence[Any]]:
    """The named columns of several tables, below one another; `origin` is the table whose columns these are."""
    for table in tables:
        for name in names:
            if name not in table.columns:
                having = next((other.origin for other in tables if name in other.columns), origin)
                raise TaskError(f"{table.origin} has no column {name!r}, which {having} has.")
    return {name: join([table.columns[name] for table in tables]) for name in names}


def unpacked_limit_bytes(packed_bytes: int) -> int:
    """How large a packed file may become: 100 times its size, at least 256 MB, or what the environment says."""
    given = os.environ.get(_VARIABLE)
    if given is None:
        return max(_SMALLEST_LIMIT_BYTES, _LARGEST_RATIO * packed_bytes)
    if not given.isdigit():
        raise TaskError(f"{_VARIABLE} must be a number of bytes; it is {given!r}.")
    return int(given)


def too_large(path: Path, packed_bytes: int, limit_bytes: int) -> TaskError:
    """The error for a file that unpacks to more than its limit."""
    return TaskError(
        f"{str(path)!r} has {packed_bytes:,} bytes and unpacks to more than {limit_bytes:,}, which is its limit. If "
        f"that is meant to be so, set {_VARIABLE} to a larger number of bytes."
    )


def unpack(path: Path, data: bytes) -> bytes:
    """The content of a gzip file, up to its limit."""
    limit = unpacked_limit_bytes(len(data))
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise too_large(path, len(data), limit)
    return content


def check_shape(origin: Path | str, columns: int, rows: int) -> None:
    """A table has no more columns, and no more cells, than a table can be expected to have."""
    if columns > MOST_COLUMNS:
        raise TaskError(
            f"{str(origin)!r} has {columns:,} columns, and the most that is read are {MOST_COLUMNS:,}. Keep the "
            "columns of inputs and labels; for features in columns use from_arrays. In a CSV file, check delimiter=."
        )
    if columns * rows > MOST_CELLS:
        raise TaskError(
            f"{str(origin)!r} has {rows:,} rows of {columns:,} columns, {columns * rows:,} cells; the most that is "
            f"read are {MOST_CELLS:,}. Keep the columns of inputs and labels."
        )
