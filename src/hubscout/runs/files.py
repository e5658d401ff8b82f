"""Files that are there as a whole or not at all, why one could not be written, and JSON in them.

Whatever a JSON file is, what comes out of reading it is JSON or one error. A kill while a line is appended costs that
line alone.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hubscout.credentials import strip_credentials
from hubscout.errors import RunError, one_line

TEMPORARY = ".tmp"
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def write_atomically(path: Path, content: str | bytes | Callable[[Path], object]) -> None:
    """Give `path` new content: readers see the old file or the new one, never a part.

    Args:
        path: the file; its folder is made if need be.
        content: a text, bytes, or a function that fills the temporary file whose path it gets.

    Raises:
        OSError: as the system raised it. The old file is as it was, and no temporary file is left.

    """
    with temporary_file(path) as temporary:
        if isinstance(content, str):
            temporary.write_text(content, encoding="utf-8")
        elif isinstance(content, bytes):
            temporary.write_bytes(content)
        else:
            content(temporary)
        os.replace(temporary, path)


@contextmanager
def temporary_file(path: Path) -> Iterator[Path]:
    """The path of a hidden file beside `path`, to be filled and renamed; it is removed where that does not happen."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}{TEMPORARY}")
    try:
        yield temporary
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def why_not_written(error: BaseException) -> str:
    """The reason of a failed write in a few words; a full disk is called that, whichever library met it.

    >>> why_not_written(OSError(errno.ENOSPC, "No space left on device"))
    'no room on the disk (No space left on device)'
    >>> why_not_written(PermissionError(errno.EACCES, "Permission denied"))
    'Permission denied'
    """
    if is_full(error):
        return f"no room on the disk ({os.strerror(_number(error))})"
    told = error.strerror if isinstance(error, OSError) else None
    return told or one_line(error)


def is_full(error: BaseException) -> bool:
    """Whether a write failed because the disk, a quota or the largest file size is exhausted."""
    return _number(error) in _NO_ROOM


def _number(error: BaseException | None) -> int:
    """The system's number of an error; torch hides it in the context, safetensors in the text."""
    while error is not None:
        told = getattr(error, "errno", None) or next(iter(re.findall(r"os error (\d+)", str(error))), None)
        if told is not None:
            return int(told)
        error = error.__context__
    return 0


MOST_BYTES = 1 << 28
"""No record of ours is larger; a file that is was not written by us, and might fill the memory."""


def read_json(path: Path) -> Any:
    """What a JSON file holds; a `RunError` where it is none, cannot be read, or is absurdly large."""
    return parse_json(read_whole(path), origin=str(path))


def parse_json(data: bytes, *, origin: str) -> Any:
    """JSON that was read already."""
    try:
        return json.loads(data.decode("utf-8"))
    except RecursionError:
        raise RunError(f"{origin} is not JSON of ours: it is nested too deeply.") from None
    except ValueError as error:  # also bytes that are no UTF-8
        raise RunError(f"{origin} is not JSON: {error}.") from error


def read_whole(path: Path) -> bytes:
    """The bytes of a regular file."""
    try:
        if not path.is_file():
            raise RunError(f"{path} is no regular file, or a link that leads nowhere.")
        if path.stat().st_size > MOST_BYTES:
            raise RunError(f"{path} has {path.stat().st_size:,} bytes; at most {MOST_BYTES:,} are read.")
        return path.read_bytes()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}.") from error


def read_lines(path: Path, *, tolerant: bool = False) -> list[dict[str, Any]]:
    """The records of a file; none where there is no file.

    A last line that was cut short is left out. One that only lacks its newline is whole, and counts.

    Args:
        path: the file.
        tolerant: leave out every line that is no JSON object, for those who only look.

    Raises:
        RunError: another line than the last is no JSON object, or the file cannot be read.

    """
    return parse_lines(read_whole(path), origin=str(path), tolerant=tolerant) if path.is_file() else []


def parse_lines(data: bytes, *, origin: str = "", tolerant: bool = True) -> list[dict[str, Any]]:
    r"""The same of what was read already.

    >>> parse_lines(b'{"a": 1}\n[2]\n{"a":')
    [{'a': 1}]
    """
    *whole, last = data.split(b"\n")
    records = []
    for number, line in enumerate(whole, start=1):
        record = _parsed(line)
        if record is not None:
            records.append(record)
        elif line.strip() and not tolerant:
            raise RunError(f"{origin}, line {number}, is no JSON object: {line[:60].decode(errors='replace')!r}.")
    final = _parsed(last)
    return records if final is None else [*records, final]


def finite(value: Any) -> Any:
    """Plain values without the numbers that JSON does not have: they become null.

    >>> finite({"a": [1.0, float("nan")]})
    {'a': [1.0, None]}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    return [finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Add a record, after mending the end that a kill may have left: what was cut goes, a missing newline comes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        _mend(file)
        file.write(_line(record).encode())


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Replace a file by these records."""
    write_atomically(path, "".join(map(_line, records)))


def _line(record: Mapping[str, Any]) -> str:
    return strip_credentials(json.dumps(record)) + "\n"


def _mend(file: Any) -> None:
    size = file.seek(0, 2)
    if not size:
        return
    file.seek(-1, 2)
    if file.read(1) == b"\n":
        return
    file.seek(0)
    last = file.read().rpartition(b"\n")[2]
    if _parsed(last) is None:
        file.truncate(size - len(last))
    else:
        file.write(b"\n")


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The object of a line; None where it is none. No part of an object is an object, so a cut line is never taken."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
