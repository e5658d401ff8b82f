"""The paper of a chart: its size, axes and the figure around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hubscout.report.charts.labels import Box
from hubscout.report.charts.scale import Scale
from hubscout.report.markup import Markup, join, tag
from hubscout.report.names import significant

Format = Callable[[float], str]


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

Draw = Callable[[Frame], Markup]


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
    parts.append(
        tag(
            "text",
            y_title,
            x=13,
            y=middle,
            class_="axis-title middle",
            transform=f"rotate(-90 13 {middle:.0f})",
        )
    )
    return tag("g", *parts, aria_hidden="true")


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
    """A chart drawn twice, for a desk and for a phone, of which the style sheet shows the one that fits.

    Scaling one drawing down would leave letters that nobody can read. `numbers` is the same as a table.
    """
    narrow = Frame(
        width=NARROW.width,
        height=max(NARROW.height, min(wide.height, 520)),
        left=NARROW.left,
        right=NARROW.right,
        top=NARROW.top,
        bottom=NARROW.bottom,
        font=NARROW.font,
    )
    return tag(
        "figure",
        draw(wide),
        draw(narrow),
        tag("figcaption", caption) if caption else "",
        details("The numbers of this chart", numbers) if numbers else "",
        class_="chart",
    )


def details(summary: str, content: Markup, *, open_: bool = False) -> Markup:
    """A part of the page that opens when it is asked for."""
    return tag("details", tag("summary", summary), tag("div", content, class_="scroll"), open=open_)


def legend(entries: list[tuple[str, str]]) -> Markup:
    """What the marks mean: pairs of a class of the style sheet and words."""
    return tag(
        "ul", join(tag("li", tag("i", class_=f"key {name}"), " ", words) for name, words in entries), class_="legend"
    )
