"""A column of names, each with its value and its error bar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hubscout.report.charts.axes import Frame, Keys, axes, drawing, legend
from hubscout.report.charts.label_placement import text_width
from hubscout.report.charts.scale import Scale, linear, reach
from hubscout.report.charts.scatter import RADIUS
from hubscout.report.markup import Markup, tag
from hubscout.report.names import shorten

STEP = 22.0


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
    for place, (name, (_, value, error, group)) in enumerate(zip(names, entries, strict=True)):
        up = area.top + STEP * (place + 0.5)
        low, high = x(max(value - error, x.low)), x(min(value + error, x.high))
        bar = tag("path", d=f"M{low:.1f} {up:.1f}H{high:.1f}", class_="error") if error else ""
        mark = tag("circle", cx=x(value), cy=up, r=RADIUS, class_=f"mark {group}")
        text = tag("text", name, x=area.left - 8, y=up, class_="end")
        parts.append(tag("g", bar, mark, text, class_=f"point {group}"))
    return drawing(frame, explained, axes(frame, x, y, x_title=x_title, y_title=""), *parts, label=label)
