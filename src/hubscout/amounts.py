"""Amounts as people write them, in Python and on the command line: `2k` samples, `10M` parameters, `20ms`."""

from __future__ import annotations

import math
import re

from hubscout.errors import InputError

_COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}
_TIMES = {
    1e-3: "ms",
    1.0: "s sec second seconds",
    60.0: "m min minute minutes",
    3600.0: "h hour hours",
    86400.0: "d day days",
    604800.0: "w week weeks",
}
_SECONDS = {"": 1.0} | {name: seconds for seconds, names in _TIMES.items() for name in names.split()}
_PART = re.compile(r"([0-9]*\.?[0-9]+)\s*([a-z]*)")


def parse_count(value: float | str, argument: str) -> float:
    """Read a number, or a text with an optional k, M, G (or B) or T.

    Args:
        value: what was given.
        argument: what it was given for; errors name it.

    Raises:
        InputError: it is no such number.

    Example:
        >>> parse_count("10M", "max_params"), parse_count("1.5g", "max_flops"), parse_count(300, "limit")
        (10000000.0, 1500000000.0, 300.0)

    """
    if isinstance(value, str):
        found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:e[0-9]+)?)\s*([kmgbt]?)\s*", value, flags=re.IGNORECASE)
        if found:
            return float(found.group(1)) * _COUNTS[found.group(2).lower()]
    elif not isinstance(value, bool) and not math.isnan(value):
        return float(value)
    raise InputError(f"{argument} must be a number such as 300, 10M or 1.5G, not {value!r}.")


def parse_limit(value: float | str, argument: str = "limit", *, least: int = 2) -> int:
    """Read how many samples (or models) to take at most.

    Args:
        value: a whole number, or a text such as `2k`.
        argument: what it was given for; errors name it.
        least: the smallest number that makes sense.

    Raises:
        InputError: it is no whole number of at least `least`.

    Example:
        >>> parse_limit("2k"), parse_limit(500)
        (2000, 500)

    """
    number = parse_count(value, argument)
    if number < least or number != int(number):
        raise InputError(f"{argument} must be a whole number of at least {least}, such as 500 or 2k, not {value!r}.")
    return int(number)


def parse_seconds(value: float | str, argument: str = "budget") -> float:
    """Read a time: seconds, or a text such as `20ms`, `90s`, `10min`, `1h 30min`, `30d`, `8w`.

    Args:
        value: what was given.
        argument: what it was given for; errors name it.

    Raises:
        InputError: it is no time, no time at all, or endless.

    Example:
        >>> parse_seconds("10min"), parse_seconds("1h30m"), parse_seconds(45), parse_seconds("20ms")
        (600.0, 5400.0, 45.0, 0.02)

    """
    wrong = f"{argument} must be a time such as 600, '20ms', '90s', '10min', '1h 30min' or '30d', not {value!r}."
    if isinstance(value, str):
        parts = _PART.findall(value.lower())
        rest = _PART.sub("", value.lower()).strip()
        if not parts or rest or any(unit not in _SECONDS for _, unit in parts):
            raise InputError(wrong)
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    elif isinstance(value, bool):
        raise InputError(wrong)
    else:
        seconds = float(value)
    if not seconds > 0 or math.isinf(seconds):
        raise InputError(f"{argument} must be more than no time and not endless, not {value!r}.")
    return seconds
