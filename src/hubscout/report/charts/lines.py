"""Curves with their names at their ends, and bands around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

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
    significant,
    with_room,
)
from hubscout.report.charts.label_placement import spread, text_width
from hubscout.report.markup import Markup, fill, tag
from hubscout.runs.texts import shorten

COLOURS = 7
"""How many colours the style sheet has for curves (`series-0` ...); further curves are grey."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One curve. `low` and `high` bound its band, where it has one; `tips` are said at its points."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    tips: Sequence[str] = ()
    colour: int | None = None
    model: int | None = None
    named: bool = True


def lines(
    frame: Frame,
    curves: Sequence[Curve],
    *,
    label: str,
    x_title: str,
    y_title: str,
    x_format: Format = significant,
    y_format: Format = significant,
    logarithmic_axes: bool = False,
    diagonal: bool = False,
    whole_x: bool = False,
    keys: Keys = (),
    shared_y: Sequence[float] = (),
) -> Markup:
    """Curves over a common axis; `diagonal` draws y = x, which fixed points lie on.

    `shared_y` are the heights of all panels of a row of charts, so that they have one scale.
    """
    rest = [("series-rest", "the others")] if any(c.colour is None and not c.named for c in curves) else []
    frame, explained = legend(frame, [*keys, *rest])
    named = [curve for curve in curves if curve.named]
    longest, widest = _longest(named, frame)
    frame = replace(frame, right=widest + 22 if named else frame.right)
    across = [value for curve in curves for value in curve.x]
    heights = [*shared_y, *curve_heights(curves)]
    make_x = logarithmic if logarithmic_axes else partial(linear, whole=whole_x)
    make_y = logarithmic if logarithmic_axes else linear
    y = make_y(heights, frame.area.bottom, frame.area.top, padding=0.05, wanted=5)
    frame = with_room(frame, y, y_format)
    x = make_x(across, frame.area.left, frame.area.right, padding=0.02, wanted=4 if frame.narrow else 6)
    parts: list[Markup] = []
    if diagonal:
        low, high = max(x.low, y.low), min(x.high, y.high)
        if low < high:
            parts.append(tag("path", d=_path([low, high], [low, high], x, y), class_="diagonal"))
    parts += [_band(curve, x, y) for curve in curves if len(curve.low)]
    parts += [
        tag("path", d=_path(curve.x, curve.y, x, y), class_=f"curve {_look(curve)}", data_model=curve.model)
        for curve in curves
    ]
    dots = [
        (curve, _look(curve), x(across), y(up), tip)
        for curve in curves
        for across, up, tip in zip(curve.x, curve.y, curve.tips, strict=False)
        if y.holds(up)
    ]
    return drawing(
        frame,
        explained,
        axes(frame, x, y, x_title=x_title, y_title=y_title, x_format=x_format, y_format=y_format),
        tag("g", *parts, aria_hidden="true"),
        fill("dots.svg", dots=dots),
        tag("g", *_ends(frame, named, x, y, longest), class_="names", aria_hidden="true"),
        label=label,
    )


def _longest(curves: Sequence[Curve], frame: Frame) -> tuple[int, float]:
    """How many letters of the names are written at the ends of curves, and how wide the widest is then."""
    for longest in range(16 if frame.narrow else 26, 5, -1):
        widest = max((text_width(shorten(curve.name, longest), frame.font) for curve in curves), default=0.0)
        if widest + 22 <= frame.width * 0.36:
            break
    return longest, widest


def curve_heights(curves: Sequence[Curve]) -> list[float]:
    """Everything that a vertical axis must hold to show these curves and their bands."""
    return [value for curve in curves for value in (*curve.y, *curve.low, *curve.high)]


def _look(curve: Curve) -> str:
    return "series-rest" if curve.colour is None else f"series-{curve.colour}"


def _path(xs: Sequence[float], ys: Sequence[float], x: Scale, y: Scale) -> str:
    """A path through the points that are on the paper; it lifts the pen where they are not."""
    path, down = "", False
    for across, up in zip(xs, ys, strict=True):
        if not y.holds(up):
            down = False
            continue
        path += f"{'L' if down else 'M'}{x(across):.1f} {y(up):.1f}"
        down = True
    return path


def _band(curve: Curve, x: Scale, y: Scale) -> Markup:
    forth = [f"{x(a):.1f} {y(b):.1f}" for a, b in zip(curve.x, curve.high, strict=True)]
    back = [f"{x(a):.1f} {y(b):.1f}" for a, b in zip(curve.x, curve.low, strict=True)]
    return tag("path", d=f"M{'L'.join(forth + back[::-1])}Z", class_=f"band {_look(curve)}", data_model=curve.model)


def _ends(frame: Frame, curves: Sequence[Curve], x: Scale, y: Scale, longest: int) -> list[Markup]:
    """The names of the curves beside their last points on the paper."""
    area = frame.area
    ends = []
    for curve in curves:
        inside = [(x(across), y(up)) for across, up in zip(curve.x, curve.y, strict=True) if y.holds(up)]
        ends += [(curve, *inside[-1])] if inside else []
    heights = spread([up for _, _, up in ends], frame.font * 1.25, area.top + 4, area.bottom - 4)
    parts = []
    for (curve, across, up), height in zip(ends, heights, strict=True):
        leader = f"M{across + 3:.1f} {up:.1f}L{area.right + 6:.1f} {height:.1f}"
        place = {"x": area.right + 9, "y": height, "class_": f"name start {_look(curve)}"}
        parts.append(tag("path", d=leader, class_="leader"))
        parts.append(tag("text", shorten(curve.name, longest), **place, data_model=curve.model))
    return parts
