"""Records in files: with a format and a version, and holding what their dataclass says."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable, Mapping
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
    try:
        found = built(kind, {name: value for name, value in told.items() if name in hints(kind)})
    except TypeError as error:
        raise RunError(
            f"{origin} cannot be read: {error}. It is damaged, or was written by another version of hubscout."
        ) from error
    check_types(found, origin)
    return found


def built(kind: Any, value: Any) -> Any:
    """JSON as a type wants it: objects become dataclasses and lists tuples. What does not fit stays, for `check_types`.

    >>> from hubscout.runs.row import Failure
    >>> built(tuple[Failure, ...], [{"identifier": "a", "error": "b", "reason": "c"}])
    (Failure(identifier='a', error='b', reason='c'),)
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType) and value is not None:
        return built(inner[0], value)
    if origin is tuple and isinstance(value, list):
        return tuple(built(inner[0], one) for one in value)
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, dict):
        return kind(**{name: built(hints(kind).get(name), one) for name, one in value.items()})
    return value


def check_types(record: Any, place: str, *, kind: type | None = None) -> None:
    """Go through a dataclass and everything in it; the first value of a wrong type is named in a `RunError`.

    With `kind` the record is a mapping with the fields of that dataclass, which it is to become.

    >>> from hubscout.runs.row import Failure
    >>> check_types(Failure(identifier="a", error="b", reason=3), "failure")
    Traceback (most recent call last):
    hubscout.errors.RunError: failure.reason must be str, not 3.
    """
    for name, wanted in hints(kind or type(record)).items():
        _check(record[name] if kind is not None else getattr(record, name), wanted, f"{place}.{name}")


@cache
def hints(kind: type) -> dict[str, Any]:
    """The fields of a dataclass, and the type of each."""
    return get_type_hints(kind)


def _check_depth(value: Any, place: str, deeper: int) -> None:
    if deeper == 0:
        raise RunError(f"{place} is nested too deeply.")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        _check_depth(inner, place, deeper - 1)


def _check(value: Any, wanted: Any, place: str) -> None:
    if wanted is Any:
        _check_depth(value, place, DEEPEST)
        return
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        if not any(_fits(value, choice, place) for choice in inner):
            raise _wrong(place, wanted, value)
    elif origin is tuple:
        if not isinstance(value, tuple):
            raise _wrong(place, wanted, value)
        for number, item in enumerate(value):
            _check(item, inner[0], f"{place}[{number}]")
    elif origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise _wrong(place, wanted, value)
        for key, item in value.items():
            _check(key, inner[0], f"{place}, a key")
            _check(item, inner[1], f"{place}[{key!r}]")
    elif isinstance(wanted, type) and is_dataclass(wanted):
        if not isinstance(value, wanted):
            raise _wrong(place, wanted, value)
        check_types(value, place)
    elif isinstance(wanted, type) and not _is_plain(value, wanted):
        raise _wrong(place, wanted, value)


def _fits(value: Any, wanted: Any, place: str) -> bool:
    try:
        _check(value, wanted, place)
    except RunError:
        return False
    return True


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


def _wrong(place: str, wanted: Any, value: Any) -> RunError:
    name = wanted.__name__ if isinstance(wanted, type) else str(wanted)
    return RunError(f"{place} must be {name}, not {value!r:.60}.")
