"""Points with names and error bars: scattered, with a front where asked for, or in a column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hubscout.report.charts.chart import (
    Format,
    Frame,
    Keys,
    Scale,
    axes,
    drawing,
    legend,
    linear,
    logarithmic,
    reach,
    significant,
    with_room,
)
from hubscout.report.charts.label_placement import Box, Wish, place, text_width
from hubscout.report.markup import Markup, fill, tag
from hubscout.runs.texts import shorten

RADIUS = 5.0
STEP = 22.0
"""From a line of a column to the next."""
LABELS_WIDE, LABELS_NARROW = 30, 22


@dataclass(frozen=True, kw_only=True)
class Point:
    """One model at (x, y). `group` is a class of the style sheet: best, tied, rest or dropped.

    `tip` is what hovering, focusing and a screen reader say. Names of a lower `priority` are placed first; one that
    is `important` is also written further away from its point.
    """

    model: int
    name: str
    x: float
    y: float
    tip: str
    group: str = "rest"
    error: float = 0.0
    """Half the length of the vertical error bar."""
    priority: int = 9
    important: bool = False
    short: str = ""
    """What is written where there is no room for the name."""


def scatter(
    frame: Frame,
    points: Sequence[Point],
    *,
    label: str,
    x_title: str,
    y_title: str,
    x_format: Format = significant,
    x_logarithmic: bool = False,
    front: Sequence[tuple[float, float]] = (),
    keys: Keys = (),
) -> Markup:
    """A scatter plot; `front` is a staircase through (x, y) from the left to the right."""
    frame, explained = legend(frame, keys)
    reached = reach([point.y for point in points], [point.error for point in points])
    y = linear(reached, frame.area.bottom, frame.area.top, padding=0.08, wanted=5)
    frame = with_room(frame, y)
    area = frame.area
    make_x = logarithmic if x_logarithmic else linear
    x = make_x([point.x for point in points], area.left, area.right, padding=0.08, wanted=4 if frame.narrow else 7)
    return drawing(
        frame,
        explained,
        axes(frame, x, y, x_title=x_title, y_title=y_title, x_format=x_format),
        _staircase(front, x, y, area) if len(front) > 0 else "",
        tag("g", *_names(frame, points, x, y, front), class_="names", aria_hidden="true"),
        fill("points.svg", points=points, x=x, y=y, bar=_bar, radius=RADIUS),
        label=label,
    )


def _staircase(front: Sequence[tuple[float, float]], x: Scale, y: Scale, area: Box) -> Markup:
    path = f"M{x(front[0][0]):.1f} {area.bottom:.1f}"
    for place_x, place_y in front:
        path += f"H{x(place_x):.1f}V{y(place_y):.1f}"
    return tag("path", d=f"{path}H{area.right:.1f}", class_="front", aria_hidden="true")


def _bar(point: Point, y: Scale) -> tuple[float, float]:
    """Where the error bar of a point begins and ends, as far as it is on the paper."""
    return y(min(point.y + point.error, y.high)), y(max(point.y - point.error, y.low))


def _lines(points: Sequence[Point], front: Sequence[tuple[float, float]], x: Scale, y: Scale, area: Box) -> list[Box]:
    """What names had better not cross: error bars and the steps of the front."""
    boxes = []
    for point in points:
        top, bottom = _bar(point, y)
        boxes += [Box(x(point.x) - 1, top, x(point.x) + 1, bottom)] if point.error else []
    corners = [(x(a), y(b)) for a, b in front]
    before = area.bottom
    for (across, up), (end, _) in zip(corners, [*corners[1:], (area.right, 0.0)], strict=True) if corners else ():
        boxes += [Box(across, up - 2, end, up + 2), Box(across - 2, up, across + 2, before)]
        before = up
    return boxes


def _names(
    frame: Frame, points: Sequence[Point], x: Scale, y: Scale, front: Sequence[tuple[float, float]]
) -> list[Markup]:
    longest = LABELS_NARROW if frame.narrow else LABELS_WIDE
    places = [(x(point.x), y(point.y)) for point in points]
    obstacles = [Box(a - RADIUS, b - RADIUS, a + RADIUS, b + RADIUS) for a, b in places]
    wishes = [
        Wish(shorten(point.name, longest), *at, point.priority, must=point.important, short=point.short)
        for point, at in zip(points, places, strict=True)
    ]
    lines = _lines(points, front, x, y, frame.area)
    parts = []
    labels = place(wishes, frame.area, size=frame.font, obstacles=obstacles, avoid=lines)
    for point, label in zip(points, labels, strict=True):
        if label is None:
            continue
        if label.leader is not None:
            (x1, y1), (x2, y2) = label.leader, label.end
            parts.append(tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_="leader"))
        look = f"name {label.anchor}"
        parts.append(tag("text", label.text, x=label.x, y=label.y, class_=look, data_model=point.model))
    return parts


def intervals(
    frame: Frame,
    entries: Sequence[tuple[str, float, float, str]],
    *,
    label: str,
    x_title: str,
    keys: Keys = (),
) -> Markup:
    """Names with values and error bars, from the top. Entries are name, value, half the error bar and group."""
    names = [shorten(name, 20 if frame.narrow else 40) for name, *_ in entries]
    widest = max(text_width(name, frame.font) for name in names)
    frame = replace(frame, left=widest + 16, height=frame.top + frame.bottom + STEP * len(entries))
    frame, explained = legend(frame, keys)
    area = frame.area
    x = linear(reach([value for _, value, *_ in entries], [error for *_, error, _ in entries]), area.left, area.right)
    y = Scale(0.0, 1.0, area.top, area.bottom, ())
    parts: list[Markup] = []
    for line, (name, (_, value, error, group)) in enumerate(zip(names, entries, strict=True)):
        up = area.top + STEP * (line + 0.5)
        low, high = x(max(value - error, x.low)), x(min(value + error, x.high))
        bar = tag("path", d=f"M{low:.1f} {up:.1f}H{high:.1f}", class_="error") if error else ""
        mark = tag("circle", cx=x(value), cy=up, r=RADIUS, class_=f"mark {group}")
        text = tag("text", name, x=area.left - 8, y=up, class_="end")
        parts.append(tag("g", bar, mark, text, class_=f"point {group}"))
    return drawing(frame, explained, axes(frame, x, y, x_title=x_title, y_title=""), *parts, label=label)
