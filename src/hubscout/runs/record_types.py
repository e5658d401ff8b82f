"""Records in files: with a format and a version, and holding what their dataclass says."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from hubscout.credentials import strip_credentials
from hubscout.errors import RunError
from hubscout.runs.files import write_atomically

MOST = 1e150
"""Larger numbers are nonsense that arithmetic overflows on."""
DEEPEST = 50

MIGRATIONS: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""From the format and the version of a record to the function that makes it a record of the next version."""


def write_record(path: Path, form: str, version: int, content: Mapping[str, Any], *, indent: int | None = None) -> None:
    """Write a record that `in_version` takes again."""
    text = json.dumps({"format": form, "version": version, **content}, indent=indent, ensure_ascii=False)
    write_atomically(path, strip_credentials(text) + "\n")


def in_version(record: Any, form: str, version: int, *, origin: str) -> dict[str, Any]:
    """The record as `version` has it; a `RunError` where it is of another format or too old."""
    if not isinstance(record, dict) or record.get("format") != form:
        raise RunError(f"{origin} is not a saved {form.removeprefix('hubscout-')}.")
    found = record.get("version")
    while isinstance(found, int) and found < version and (form, found) in MIGRATIONS:
        record = {**MIGRATIONS[form, found](dict(record)), "version": found + 1}
        found += 1
    if found != version or isinstance(found, bool):
        raise RunError(
            f"{origin} has version {found!r} of the format; this hubscout reads version {version}. Make it again, or "
            "install the hubscout that wrote it."
        )
    return record


def record_of(kind: Any, told: Mapping[str, Any], origin: str) -> Any:
    """A dataclass out of a record; what is no field of it is left out, and a `RunError` names what is wrong."""
    return converted(kind, {name: value for name, value in told.items() if name in hints(kind)}, origin)


def converted(kind: Any, value: Any, place: str) -> Any:
    """JSON as a type wants it: objects become dataclasses and lists tuples. A `RunError` names the first that does not.

    A dataclass that is made already is looked through.

    >>> from hubscout.runs.row import Failure
    >>> converted(tuple[Failure, ...], [{"identifier": "a", "error": "b", "reason": "c"}], "failures")
    (Failure(identifier='a', error='b', reason='c'),)
    >>> converted(Failure, {"identifier": "a", "error": "b", "reason": 3}, "failure")
    Traceback (most recent call last):
    hubscout.errors.RunError: failure.reason must be str, not 3.
    """
    origin, inner, has_fields = get_origin(kind), get_args(kind), is_dataclass(kind)
    if kind is Any:
        _check_depth(value, place, DEEPEST)
        return value
    if origin in (Union, types.UnionType):
        for choice in inner:
            with suppress(RunError):
                return converted(choice, value, place)
    elif origin is tuple:
        if isinstance(value, list | tuple):
            return tuple(converted(inner[0], one, f"{place}[{number}]") for number, one in enumerate(value))
    elif origin is not None and issubclass(origin, Mapping):
        if isinstance(value, Mapping):
            keys = {key: converted(inner[0], key, f"{place}, a key") for key in value}
            return {keys[key]: converted(inner[1], one, f"{place}[{key!r}]") for key, one in value.items()}
    elif has_fields:
        if isinstance(value, kind):
            for name, wanted in hints(kind).items():
                converted(wanted, getattr(value, name), f"{place}.{name}")
            return value
        if isinstance(value, dict):
            found = {name: converted(hints(kind).get(name, Any), one, f"{place}.{name}") for name, one in value.items()}
            try:
                return kind(**found)
            except TypeError as error:
                raise RunError(
                    f"{place} cannot be read: {error}. It is damaged, or was written by another version of hubscout."
                ) from error
    elif _is_plain(value, kind):
        return value
    name = kind.__name__ if isinstance(kind, type) else str(kind)
    raise RunError(f"{place} must be {name}, not {value!r:.60}.")


@cache
def hints(kind: Any) -> dict[str, Any]:
    """The fields of a dataclass, and the type of each."""
    return get_type_hints(kind)


def _check_depth(value: Any, place: str, deeper: int) -> None:
    if deeper == 0:
        raise RunError(f"{place} is nested too deeply.")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        _check_depth(inner, place, deeper - 1)


def _is_plain(value: Any, wanted: type) -> bool:
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63
    return isinstance(value, wanted)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value) and abs(value) <= MOST
    except OverflowError:
        return False


def is_number(value: object) -> bool:
    """Whether a value can be computed with: no truth value, not NaN, not beyond all measure.

    >>> is_number(3), is_number("3"), is_number(float("nan"))
    (True, False, False)
    """
    return _is_plain(value, float)
