"""The paper of a chart: its size, its axes and its legend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hubscout.report.charts.label_placement import Box, text_width
from hubscout.report.charts.scale import Scale
from hubscout.report.markup import Markup, details, tag
from hubscout.report.names import significant

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
    area = frame.area
    parts: list[Markup] = []
    for tick in y.ticks:
        place = y(tick)
        parts.append(tag("line", x1=area.left, x2=area.right, y1=place, y2=place, class_="grid"))
        parts.append(tag("text", y_format(tick), x=area.left - 8, y=place, class_="tick end"))
    last_right = -1e9
    for tick in x.ticks:
        place = x(tick)
        label = x_format(tick)
        half = len(label) * frame.font * 0.32
        parts.append(tag("line", x1=place, x2=place, y1=area.top, y2=area.bottom, class_="grid"))
        if place - half > last_right + 6:
            parts.append(tag("text", label, x=place, y=area.bottom + 16, class_="tick middle"))
            last_right = place + half
    parts.append(tag("line", x1=area.left, x2=area.right, y1=area.bottom, y2=area.bottom, class_="axis"))
    parts.append(tag("text", x_title, x=(area.left + area.right) / 2, y=frame.height - 8, class_="axis-title middle"))
    middle = (area.top + area.bottom) / 2
    turned = f"rotate(-90 13 {middle:.0f})"
    parts.append(tag("text", y_title, x=13, y=middle, class_="axis-title middle", transform=turned))
    return tag("g", *parts, aria_hidden="true")


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


def figure(draw: Draw, *, caption: object = "", numbers: Markup | None = None, wide: Frame = WIDE) -> Markup:
    """A chart on a page: drawn for a desk and for a phone, of which the style sheet shows the one that fits.

    Scaling one drawing down would leave letters that nobody can read. `numbers` is the same as a table.
    """
    narrow = replace(NARROW, height=max(NARROW.height, min(wide.height, 520)))
    return tag(
        "figure",
        draw(wide),
        draw(narrow),
        tag("figcaption", caption) if caption else "",
        details("The numbers of this chart", numbers) if numbers else "",
        class_="chart",
    )
