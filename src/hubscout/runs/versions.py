"""Which version of a record was read, and how an older one becomes one of today."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hubscout.errors import RunError

Migrations = Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]
"""From the version of a record to the function that makes it a record of the next version."""


def in_version(record: Any, form: str, version: int, migrations: Migrations, *, origin: str) -> dict[str, Any]:
    """The record as `version` has it.

    >>> older = {"format": "notes", "version": 1, "text": "a"}
    >>> in_version(older, "notes", 2, {1: lambda record: record | {"lines": [record.pop("text")]}}, origin="it")
    {'format': 'notes', 'version': 2, 'lines': ['a']}
    """
    if not isinstance(record, dict) or record.get("format") != form:
        raise RunError(f"{origin} is not a saved {form.removeprefix('hubscout-')}.")
    found = record.get("version")
    while isinstance(found, int) and found < version and found in migrations:
        record = {**migrations[found](dict(record)), "version": found + 1}
        found += 1
    if found != version or isinstance(found, bool):
        raise RunError(
            f"{origin} has version {found!r} of the format; this hubscout reads version {version}. Make it again, or "
            "install the hubscout that wrote it."
        )
    return record
