"""What a table may unpack to: a small file must not fill the memory of the machine that reads it."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path

from hubscout.errors import TaskError

MOST_COLUMNS = 100_000
MOST_CELLS = 200_000_000
_SMALLEST_LIMIT_BYTES = 256 << 20
# Text and labels pack to a tenth or a twentieth; a file that packs to a hundredth holds next to nothing.
_LARGEST_RATIO = 100
_VARIABLE = "HUBSCOUT_MAX_UNPACKED_BYTES"


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
