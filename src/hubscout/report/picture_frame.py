"""What the static pictures share: an empty figure, axes of round numbers, names that do not cover each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hubscout.optional import require
from hubscout.report.charts.labels import Box, Wish, place
from hubscout.report.charts.scale import logarithmic
from hubscout.report.names import shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, GREY, ORANGE = "#1c5fb8", "#6b737d", "#c2530d"
SERIES = ("#1769c2", "#d1480c", "#00806b", "#a3327c", "#836800", "#2f93d1", "#4a4f57")
NAME_POINTS = 7.0


def new_figure(width: float = 6.4, height: float = 4.2) -> tuple[Figure, Any]:
    """A figure with one pair of axes. The class itself, not pyplot: no global state, no window, no backend changed."""
    figures = require("matplotlib.figure", extra="report", purpose="Drawing pictures")
    figure = figures.Figure(figsize=(width, height), layout="constrained")
    axis = figure.subplots()
    axis.spines[["top", "right"]].set_visible(False)
    return figure, axis


def plain(text: str) -> str:
    """A name that matplotlib must not read as mathematics.

    >>> plain("a$b")
    'a\\\\$b'
    """
    return text.replace("$", r"\$")


def reach(values: Sequence[float], errors: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis: all values, and error bars as far as they do not dwarf the values."""
    most = (max(values) - min(values)) or float("inf")
    low = min(value - min(error, most) for value, error in zip(values, errors, strict=True))
    high = max(value + min(error, most) for value, error in zip(values, errors, strict=True))
    margin = 0.06 * (high - low) or 0.5
    return low - margin, high + margin


def logarithmic_axis(axis: Any, values: Sequence[float], words: Callable[[float], str]) -> None:
    """A logarithmic horizontal axis with round numbers that are written out."""
    scale = logarithmic(values, 0, 1, padding=0.1, wanted=6)
    axis.set_xscale("log")
    axis.set_xlim(scale.low, scale.high)
    axis.set_xticks(scale.ticks, [words(tick) for tick in scale.ticks])
    axis.minorticks_off()


def write_names(
    figure: Figure, axis: Any, points: Sequence[tuple[float, float, str]], avoid: Sequence[Any] = ()
) -> None:
    """Write names beside points, the first ones first; a name that finds no place is left out.

    `avoid` are lines as pairs of points, in the data's coordinates, that names had better not cross.
    """
    figure.draw_without_rendering()  # places are known only once the layout is made
    frame = axis.get_window_extent()
    size = NAME_POINTS * figure.dpi / 72

    def on_paper(x: float, y: float) -> tuple[float, float]:
        across, up = axis.transData.transform((x, y))
        return float(across - frame.x0), float(frame.y1 - up)

    spots = [on_paper(x, y) for x, y, _ in points]
    dots = [Box(x - 4, y - 4, x + 4, y + 4) for x, y in spots]
    lines = []
    for start, end in avoid:
        (a, b), (c, d) = on_paper(*start), on_paper(*end)
        lines.append(Box(min(a, c) - 1, min(b, d) - 1, max(a, c) + 1, max(b, d) + 1))
    wishes = [
        Wish(shorten(name, 26), x, y, index, must=True)
        for index, ((x, y), (_, _, name)) in enumerate(zip(spots, points, strict=True))
    ]
    area = Box(0, 0, frame.width, frame.height)
    for label, (x, y, _) in zip(place(wishes, area, size=size, obstacles=dots, avoid=lines), points, strict=True):
        if label is None:
            continue
        here = on_paper(x, y)
        offset = ((label.x - here[0]) * 72 / figure.dpi, -(label.y - here[1]) * 72 / figure.dpi)
        axis.annotate(
            plain(label.text),
            (x, y),
            xytext=offset,
            textcoords="offset points",
            fontsize=NAME_POINTS,
            va="center",
            ha={"start": "left", "end": "right", "middle": "center"}[label.anchor],
            arrowprops={"arrowstyle": "-", "lw": 0.5, "color": GREY} if label.leader else None,
        )
