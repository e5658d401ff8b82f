"""Files of one JSON object per line, to which finished work is appended: a kill while writing costs that line alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubscout.credentials import strip_credentials
from hubscout.errors import RunError


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a file; none where there is no file.

    A last line that was cut short is left out. One that only lacks its newline is whole, and counts.

    Raises:
        RunError: another line is no JSON object.

    """
    if not path.is_file():
        return []
    *whole, last = path.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(whole, start=1):
        if not line.strip():
            continue
        record = _parsed(line)
        if record is None:
            raise RunError(f"{path}, line {number}, is no JSON object: {line[:60].decode(errors='replace')!r}.")
        records.append(record)
    final = _parsed(last)
    return records if final is None else [*records, final]


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Add a record, after mending the end that a kill may have left: what was cut goes, a missing newline comes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        _mend(file)
        file.write(strip_credentials(json.dumps(record)).encode() + b"\n")


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
