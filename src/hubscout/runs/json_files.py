"""The one place where records of a run are read from files: whatever a file is, what comes out is JSON or one error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hubscout.errors import RunError

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
