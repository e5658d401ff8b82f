"""From numbers to places on the paper, and to the words beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SAME = 1e-9
"""Values closer together than this, relative to their size, are drawn as one: their ticks would all read alike."""
TINY = 1e-150
"""Smaller values are off the paper: the ratio of the ends of an axis must be a number."""


@dataclass(frozen=True)
class Scale:
    """A straight or logarithmic axis from the numbers `low`..`high` to the places `start`..`end`."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def holds(self, value: float) -> bool:
        """Whether `value` is on the paper."""
        return self.low <= value <= self.high

    def within(self, value: float) -> float:
        """`value`, or the end of the axis that it is beyond."""
        return min(max(value, self.low), self.high)


def linear(
    values: Iterable[float], start: float, end: float, *, padding: float = 0.06, wanted: int = 5, whole: bool = False
) -> Scale:
    """A straight axis around the finite ones among `values`, with about `wanted` round ticks, `whole` ones if asked.

    >>> linear([0.0, 1.0], 0, 100, padding=0).ticks
    (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    """
    low, high = _extent(values)
    size = max(abs(low), abs(high))
    if high - low <= SAME * size or size < TINY:
        reach = 0.5 * size if size >= TINY else 0.5
        low, high = low - reach, high + reach
    margin = (high - low) * padding
    low, high = low - margin, high + margin
    ticks = _round_ticks(low, high, wanted)
    return Scale(low, high, start, end, tuple(tick for tick in ticks if tick == int(tick)) if whole else ticks)


def logarithmic(values: Iterable[float], start: float, end: float, *, padding: float = 0.06, wanted: int = 6) -> Scale:
    """A logarithmic axis around the positive ones among `values`.

    >>> logarithmic([1.0, 1000.0], 0, 300, padding=0).ticks
    (1.0, 10.0, 100.0, 1000.0)
    """
    low, high = _extent(value for value in values if value > TINY)
    if low <= 0:
        low, high = 1.0, 10.0
    if high / low < 1.5:
        low, high = low / 1.5, high * 1.5
    margin = (high / low) ** padding
    low, high = low / margin, high * margin
    return Scale(low, high, start, end, _decade_ticks(low, high, wanted), logarithmic=True)


def reach(values: Sequence[float], errors: Sequence[float]) -> list[float]:
    """What an axis must hold to show values with error bars, as far as the bars do not dwarf the values.

    >>> reach([1.0, 2.0], [0.5, 100.0])
    [0.5, 1.5, 1.0, 3.0]
    """
    most = (max(values) - min(values)) or float("inf")
    shown = [min(error, most) for error in errors]
    return [value + sign * error for value, error in zip(values, shown, strict=True) for sign in (-1, 1)]


def significant(value: float | None, figures: int = 3) -> str:
    """A number with so many figures, never in powers of ten between a thousandth and a million.

    >>> significant(0.123456), significant(1234.5), significant(2.5e9), significant(0.0), significant(None)
    ('0.123', '1230', '2.5e+09', '0', '–')
    """
    if value is None:
        return "–"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{figures}g}")
    if 1e-3 <= abs(rounded) < 1e6:
        return f"{rounded:.10f}".rstrip("0").rstrip(".")
    return f"{value:.{figures}g}"


def _extent(values: Iterable[float]) -> tuple[float, float]:
    finite = [value for value in values if math.isfinite(value)]
    return (min(finite), max(finite)) if finite else (0.0, 0.0)


def _round_ticks(low: float, high: float, wanted: int) -> tuple[float, ...]:
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    digits = max(0, 2 - math.floor(math.log10(step)))
    return tuple(round(index * step, digits) for index in range(first, last + 1))


def _decade_ticks(low: float, high: float, wanted: int) -> tuple[float, ...]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, math.ceil((last - first) / wanted))
    ticks: list[float] = []
    for factors in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        exponents = range(first, last + 1, every if factors == (1,) else 1)
        finer = [factor * 10.0**exponent for exponent in exponents for factor in factors]
        finer = [tick for tick in finer if low <= tick <= high]
        if len(ticks) > 3 or (ticks and len(finer) > wanted + 1):
            break
        ticks = finer
    return tuple(ticks)
