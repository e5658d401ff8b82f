"""True numbers against predicted ones, beside the line on which they are equal."""

from __future__ import annotations

from collections.abc import Sequence

from hubscout.report.charts.axes import Frame, axes, drawing, legend, with_room
from hubscout.report.charts.scale import linear
from hubscout.report.markup import Markup, tag

RADIUS = 3.0


def true_predicted(frame: Frame, pairs: Sequence[tuple[float, float]], *, label: str, name: str) -> Markup:
    """A dot per (true, predicted); both axes have the same ends."""
    frame, explained = legend(frame, [("rest", "a sample"), ("diagonal", "predicted as it is")])
    values = [value for pair in pairs for value in pair]
    y = linear(values, frame.area.bottom, frame.area.top, padding=0.04, wanted=5)
    frame = with_room(frame, y)
    area = frame.area
    x = linear(values, area.left, area.right, padding=0.04, wanted=4 if frame.narrow else 6)
    diagonal = tag("line", x1=x(x.low), y1=y(x.low), x2=x(x.high), y2=y(x.high), class_="diagonal")
    dots = [tag("circle", cx=x(true), cy=y(said), r=RADIUS, class_="mark rest") for true, said in pairs]
    return drawing(
        frame,
        explained,
        axes(frame, x, y, x_title=f"True {name}", y_title=f"Predicted {name}"),
        tag("g", *dots, class_="point rest cloud"),
        diagonal,
        label=label,
    )
