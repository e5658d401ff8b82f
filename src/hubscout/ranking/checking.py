"""Whether a record read from a file holds what its dataclass says, before anything relies on it."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from hubscout.errors import RunError


def check_types(record: Any, place: str) -> None:
    """Go through a dataclass and everything in it; the first value of a wrong type is named in a `RunError`.

    >>> from hubscout.ranking.row import Failure
    >>> check_types(Failure(identifier="a", error="b", reason=3), "failure")
    Traceback (most recent call last):
    hubscout.errors.RunError: failure.reason must be str, not 3.
    """
    hints = get_type_hints(type(record))
    for field in fields(record):
        _check(getattr(record, field.name), hints[field.name], f"{place}.{field.name}")


def _check(value: Any, wanted: Any, place: str) -> None:
    if wanted is Any:
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
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, wanted)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _wrong(place: str, wanted: Any, value: Any) -> RunError:
    name = wanted.__name__ if isinstance(wanted, type) else str(wanted)
    return RunError(f"{place} must be {name}, not {value!r:.60}.")
