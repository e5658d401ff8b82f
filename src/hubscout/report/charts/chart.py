"""A chart: its paper, scales, axes and legend; drawn once, as SVG, for a page, a notebook or a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hubscout.metric_texts import is_accuracy
from hubscout.report.charts.chart_files import standalone, write_drawing
from hubscout.report.charts.label_placement import Box, text_width
from hubscout.report.markup import Markup, details, fill, tag

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


def metric_ticks(metric: str) -> Format:
    """How the numbers along an axis of a metric are written.

    >>> metric_ticks("accuracy")(0.85), metric_ticks("macro_f1")(0.85)
    ('85%', '0.85')
    """
    return (lambda value: f"{significant(100 * value)}%") if is_accuracy(metric) else significant


def significant(value: float | None) -> str:
    """A number with three figures, never in powers of ten between a thousandth and a million.

    >>> significant(0.123456), significant(1234.5), significant(2.5e9), significant(0.0), significant(None)
    ('0.123', '1230', '2.5e+09', '0', '–')
    """
    if value is None:
        return "–"
    if value == 0:
        return "0"
    rounded = float(f"{value:.3g}")
    if 1e-3 <= abs(rounded) < 1e6:
        return f"{rounded:.10f}".rstrip("0").rstrip(".")
    return f"{value:.3g}"


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


Format = Callable[[float], str]
Draw = Callable[["Frame"], Markup]
Keys = Sequence[tuple[str, str]]
"""What the marks of a chart mean: pairs of a class of the style sheet and words."""
LINES = frozenset({"front", "diagonal"})
"""Classes that are drawn as lines, in a legend too."""


@dataclass(frozen=True)
class Frame:
    """Width and height of a chart and the margins around its plotting area, in pixels at full size."""

    width: float
    height: float
    left: float = 64
    right: float = 24
    top: float = 16
    bottom: float = 52
    font: float = 12

    @property
    def area(self) -> Box:
        """The plotting area."""
        return Box(self.left, self.top, self.width - self.right, self.height - self.bottom)

    @property
    def narrow(self) -> bool:
        """Whether this is the drawing for a phone."""
        return self.width < 500


WIDE = Frame(width=880, height=440)
NARROW = Frame(width=360, height=360, left=50, right=12, top=12, bottom=46, font=11)


def axes(
    frame: Frame,
    x: Scale,
    y: Scale,
    *,
    x_title: str,
    y_title: str,
    x_format: Format = significant,
    y_format: Format = significant,
) -> Markup:
    """Grid, ticks and titles. They are decoration to a screen reader: the table beside the chart has the numbers."""
    x_ticks: list[tuple[float, str | None]] = []
    last_right = -1e9
    for tick in x.ticks:
        place, label = x(tick), x_format(tick)
        half = len(label) * frame.font * 0.32
        room = place - half > last_right + 6
        x_ticks.append((place, label if room else None))
        last_right = place + half if room else last_right
    titles = {"x_title": x_title, "y_title": y_title, "y_format": y_format}
    return fill("axes.svg", frame=frame, area=frame.area, x_ticks=x_ticks, y=y, **titles)


def with_room(frame: Frame, y: Scale, y_format: Format = significant) -> Frame:
    """The frame with a left margin that holds the ticks of the vertical axis and its title."""
    widest = max((text_width(y_format(tick), frame.font) for tick in y.ticks), default=0.0)
    return replace(frame, left=max(frame.left, widest + 32))


def legend(frame: Frame, keys: Keys) -> tuple[Frame, Markup]:
    """The legend of a chart, above its plotting area, and the frame that has room for it."""
    line, x, y = frame.font * 1.6, 8.0, frame.font
    parts: list[Markup] = []
    for look, words in keys:
        mark = 24 if look in LINES else 14
        width = mark + text_width(words, frame.font) + 18
        if parts and x + width > frame.width:
            x, y = 8.0, y + line
        line_or_dot = (
            tag("line", x1=x, x2=x + 20, y1=y, y2=y, class_=look)
            if look in LINES
            else tag("circle", cx=x + 5, cy=y, r=4.5, class_=f"mark {look}")
        )
        parts += [tag("g", line_or_dot, class_=f"sample {look}"), tag("text", words, x=x + mark, y=y, class_="key")]
        x += width
    used = y + line / 2 + 6 if parts else 0.0
    return replace(frame, top=frame.top + used, height=frame.height + used), tag("g", *parts, class_="legend")


def drawing(frame: Frame, *parts: object, label: str) -> Markup:
    """The SVG element. It keeps its shape while it takes the width it is given."""
    return tag(
        "svg",
        *parts,
        viewBox=f"0 0 {frame.width:g} {frame.height:g}",
        role="group",
        aria_label=label,
        class_="narrow" if frame.narrow else "wide",
        style=f"font-size:{frame.font:g}px",
    )


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One chart. `draw` makes the SVG for a frame, `numbers` is the same as a table.

    Example:
        >>> from hubscout import Ranking
        >>> chart = Ranking.load("run/").plot("cost")  # doctest: +SKIP
        >>> chart.save("cost.pdf")  # doctest: +SKIP
    """

    draw: Draw
    caption: object = ""
    numbers: Markup | None = field(default=None, repr=False)
    wide: Frame = WIDE

    def html(self) -> Markup:
        """The chart for a page, with its caption and its numbers.

        It is drawn for a desk and for a phone, of which the style sheet shows the one that fits: scaling one drawing
        down would leave letters that nobody can read.
        """
        narrow = replace(NARROW, height=max(NARROW.height, min(self.wide.height, 520)))
        return tag(
            "figure",
            self.draw(self.wide),
            self.draw(narrow),
            tag("figcaption", self.caption) if self.caption else "",
            details("The numbers of this chart", self.numbers) if self.numbers else "",
            class_="chart",
        )

    def svg(self) -> str:
        """The chart as an SVG file that needs no style sheet."""
        return standalone(self.draw(self.wide))

    _repr_svg_ = svg

    def save(self, path: str | Path, *, dots_per_inch: int = 200) -> Path:
        """Write the chart to a file: `.svg` as it is, `.png`, `.pdf` and what else matplotlib writes through it.

        Args:
            path: The file. Its ending says the format.
            dots_per_inch: Of pictures made of pixels.

        Returns:
            The path.

        Raises:
            MissingDependencyError: Another format than SVG, and matplotlib is not installed.
            InputError: A format that matplotlib does not write.
        """
        return write_drawing(self.svg(), Path(path), dots_per_inch)
