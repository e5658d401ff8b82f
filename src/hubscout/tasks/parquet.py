"""Parquet files, read into columns: values as Python objects, encoded files in Arrow's memory or by row group."""

from __future__ import annotations

import contextlib
import json
import operator
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from hubscout.errors import TaskError
from hubscout.optional import require
from hubscout.tasks.labels import named_classes
from hubscout.tasks.reading import check_shape, too_large, unpacked_limit_bytes
from hubscout.tasks.sequences import LazyRows, Mapped

# Columns of bytes up to this size are held in memory (as one block, not as objects); larger ones are read by row group.
_LARGEST_IN_MEMORY_BYTES = 1 << 30
_ROW_GROUPS_KEPT = 8
# A list of Python objects has a pointer for each, whatever the file needs for it.
_POINTER_BYTES = 8


def read_parquet(path: Path) -> tuple[dict[str, Sequence[Any]], int]:
    """The columns of a file, and how many rows it has."""
    pyarrow = require("pyarrow", extra="tables", purpose="Reading Parquet files")
    parquet = require("pyarrow.parquet", extra="tables", purpose="Reading Parquet files")
    try:
        file = parquet.ParquetFile(path)
        schema, length = file.schema_arrow, file.metadata.num_rows
        limit = _Limit(path)
        check_shape(path, len(schema.names), length)
        limit.check(sum(part.num_values * _POINTER_BYTES for part in _chunks(file)))
        sizes: Counter[str] = Counter()
        for part in _chunks(file):
            sizes[_column(part)] += part.total_uncompressed_size
        limit.check(sizes.total())
        encoded = {name for name in schema.names if holds_bytes(pyarrow, schema.field(name).type)}
        large = {name for name in encoded if sizes[name] > _LARGEST_IN_MEMORY_BYTES}
        file = parquet.ParquetFile(path, read_dictionary=_repeating(file))
        read = _read_row_groups(pyarrow, file, [name for name in schema.names if name not in large], limit)
        columns: dict[str, Sequence[Any]] = {}
        for name in schema.names:
            if name in large:
                columns[name] = RowGroups(path, name)
            elif name in encoded:
                columns[name] = Mapped(read[name], operator.methodcaller("as_py"))
            else:
                columns[name] = _to_list(pyarrow, read[name], schema.field(name).type)
        for name, classes in _class_names(schema).items():
            columns[name] = named_classes(columns[name], classes)
    except (pyarrow.ArrowException, OSError, ValueError, KeyError) as error:
        if isinstance(error, TaskError):
            raise
        raise TaskError(f"{str(path)!r} cannot be read as Parquet: {error}.") from error
    return columns, length


class _Limit:
    """What all columns of a file together may unpack to."""

    def __init__(self, path: Path) -> None:
        self.path, self.packed, self.used = path, path.stat().st_size, 0
        self.bytes = unpacked_limit_bytes(self.packed)

    def check(self, count: int) -> None:
        if self.used + count > self.bytes:
            raise too_large(self.path, self.packed, self.bytes)

    def use(self, count: int) -> None:
        self.check(count)
        self.used += count


def holds_bytes(pyarrow: Any, kind: Any) -> bool:
    """Whether an Arrow type holds encoded files: bytes, or Hugging Face's pair of `bytes` and `path`."""
    types = pyarrow.types
    if types.is_dictionary(kind):
        return holds_bytes(pyarrow, kind.value_type)
    if types.is_struct(kind):
        return any(field.name == "bytes" and holds_bytes(pyarrow, field.type) for field in kind)
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _chunks(file: Any) -> Iterator[Any]:
    """What the file says of each column of each row group."""
    for group in range(file.metadata.num_row_groups):
        meta = file.metadata.row_group(group)
        for column in range(meta.num_columns):
            yield meta.column(column)


def _column(part: Any) -> str:
    return part.path_in_schema.partition(".")[0]


def _repeating(file: Any) -> list[str]:
    """Columns of text or bytes that name each value once and then refer to it.

    They are read as they are stored. Their values written out may take any number of times what the file says, so that
    is counted before it is done. (Arrow takes no dictionary beyond 2 GB; such a one is no small file that pretends.)
    """
    parts = [part for part in _chunks(file) if part.physical_type == "BYTE_ARRAY" and part.has_dictionary_page]
    large = {part.path_in_schema for part in parts if part.total_uncompressed_size > _LARGEST_IN_MEMORY_BYTES}
    return list(dict.fromkeys(part.path_in_schema for part in parts if part.path_in_schema not in large))


def _read_row_groups(pyarrow: Any, file: Any, names: Sequence[str], limit: _Limit) -> dict[str, Any]:
    """The columns, read row group by row group: for references inside lists, Arrow knows no other way."""
    slowly = _repeating_beginnings(file)
    quickly = [name for name in names if name not in slowly]
    chunks: dict[str, list[Any]] = {name: [] for name in names}
    for group in range(file.metadata.num_row_groups):
        for name, column in zip(quickly, file.read_row_group(group, columns=quickly).columns, strict=True):
            chunks[name] += column.chunks
            limit.use(sum(_written_out_bytes(pyarrow, chunk) for chunk in column.chunks))
    for name in (name for name in names if name in slowly):
        # A value may be as large as all that is stored: so many at once as may be.
        for batch in file.iter_batches(max(1, min(65_536, limit.bytes // slowly[name])), columns=[name]):
            chunks[name].append(batch.column(0))
            limit.use(_written_out_bytes(pyarrow, batch.column(0)))
    kinds = file.schema_arrow
    return {name: pyarrow.chunked_array(found, type=kinds.field(name).type) for name, found in chunks.items()}


def _repeating_beginnings(file: Any) -> dict[str, int]:
    """Columns whose values repeat the beginning of the one before, with the most bytes that a row group stores."""
    parts = [part for part in _chunks(file) if "DELTA_BYTE_ARRAY" in part.encodings]
    return {_column(part): max(1, *(one.total_uncompressed_size for one in parts)) for part in parts}


def _written_out_bytes(pyarrow: Any, array: Any) -> int:
    """The size of an array once references are replaced by the values that they refer to."""
    import pyarrow.compute as compute

    kind = array.type
    if pyarrow.types.is_struct(kind):
        return sum(_written_out_bytes(pyarrow, part) for part in array.flatten())
    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
        return int(array.offsets.nbytes) + _written_out_bytes(pyarrow, array.flatten())
    if not pyarrow.types.is_dictionary(kind):
        return int(array.nbytes)
    if kind.value_type not in (pyarrow.string(), pyarrow.large_string(), pyarrow.binary(), pyarrow.large_binary()):
        return int(array.indices.nbytes)
    lengths = compute.binary_length(array.dictionary).cast(pyarrow.int64())
    return int(array.indices.nbytes) + int(compute.sum(lengths.take(array.indices)).as_py() or 0)


def _to_list(pyarrow: Any, column: Any, kind: Any) -> list[Any]:
    """Python objects, equal ones of text once; `kind` is the column's own type, without references."""
    if not pyarrow.types.is_dictionary(column.type):
        with contextlib.suppress(pyarrow.ArrowNotImplementedError):  # for speed alone
            column = column.cast(kind)
        return column.to_pylist()
    found: list[Any] = []
    for chunk in column.chunks:
        values = chunk.dictionary.to_pylist()
        found += [None if place is None else values[place] for place in chunk.indices.to_pylist()]
    return found


def _class_names(schema: Any) -> dict[str, list[str]]:
    """The names of classes by column, where Hugging Face's datasets wrote them beside the ids."""
    found = {}
    with contextlib.suppress(ValueError, TypeError, LookupError, AttributeError):  # somebody else's description
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        for name in set(features) & set(schema.names):
            feature = features[name]
            feature = feature[0] if isinstance(feature, list) else feature.get("feature", feature)
            if feature.get("_type") == "ClassLabel" and all(isinstance(one, str) for one in feature["names"]):
                found[name] = feature["names"]
    return found


class RowGroups(LazyRows):
    """A column too large for memory: row groups are read as they are needed, and the last few are kept."""

    def __init__(self, path: Path, name: str) -> None:
        self._path, self._name = path, name
        self._open()

    def _open(self) -> None:
        parquet = require("pyarrow.parquet", extra="tables", purpose="Reading Parquet files")
        self._file = parquet.ParquetFile(self._path)
        counts = [self._file.metadata.row_group(i).num_rows for i in range(self._file.metadata.num_row_groups)]
        self._ends = np.cumsum(counts)
        self._group = lru_cache(_ROW_GROUPS_KEPT)(partial(self._file.read_row_group, columns=[self._name]))
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {"_path": self._path, "_name": self._name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def read(self, row: int) -> Any:
        group = int(np.searchsorted(self._ends, row, side="right"))
        # The file handle is shared: one reader at a time.
        with self._lock:
            column = self._group(group).column(self._name)
        return column[row - (int(self._ends[group - 1]) if group else 0)].as_py()
