"""Curves: only what is on their axes, panels with one scale."""

import re

from hubscout.report.charts.chart import WIDE
from hubscout.report.charts.lines import Curve, lines


def test_a_curve_leaves_out_what_is_not_on_its_axis() -> None:
    curve = Curve(name="c", x=(1.0, 10.0, 100.0), y=(1.0, 0.0, 100.0), colour=0)
    made = lines(WIDE, [curve], label="f", x_title="t", y_title="f(t)", logarithmic_axes=True, diagonal=True)
    path = re.search(r'd="([^"]+)" class="curve', made)
    assert path is not None
    assert path.group(1).count("M") == 2  # the pen is lifted over the zero, which has no logarithm


def test_panels_with_one_scale() -> None:
    low = Curve(name="low", x=(1.0, 2.0), y=(1.0, 2.0))
    high = Curve(name="high", x=(1.0, 2.0), y=(1.0, 100.0))
    ticks = [
        re.findall(
            r'class="tick end">([^<]+)', lines(WIDE, [curve], label="", x_title="", y_title="", shared_y=(1, 100))
        )
        for curve in (low, high)
    ]
    assert ticks[0] == ticks[1]
