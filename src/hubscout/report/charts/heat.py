"""A table of numbers as colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hubscout.report.charts.chart import Frame, drawing
from hubscout.report.charts.label_placement import text_width
from hubscout.report.markup import Markup, fill
from hubscout.runs.texts import shorten

WIDTH, HEIGHT, LONGEST = 50.0, 22.0, 30
LOW, HIGH, MINUS = (243, 246, 249), (15, 74, 143), (180, 73, 11)
"""The ends of the colours in the light theme, as in the style sheet."""


def heat(
    frame: Frame,
    rows: Sequence[str],
    columns: Sequence[str],
    values: np.ndarray,
    *,
    label: str,
    low: float,
    high: float,
    unit: str,
) -> Markup:
    """A cell for each row and column, from pale at `low` to dark at `high`; below zero in another colour.

    The colours of a range that crosses zero begin there, so that equal strength is equal size.
    """
    left = max(text_width(shorten(name, LONGEST), frame.font) for name in rows) + 16
    top = max(text_width(shorten(name, LONGEST), frame.font) for name in columns) + 16
    body = top + HEIGHT * len(rows)
    frame = replace(frame, width=max(left + WIDTH * len(columns) + 8, left + 170), height=body + 44)
    places = {"left": left, "top": top, "body": body, "width": WIDTH, "height": HEIGHT, "longest": LONGEST}
    scale = {"low": low, "high": high, "unit": unit, "colour_of": colour_of, "shorten": shorten}
    parts = fill("heat.svg", rows=rows, columns=columns, values=values.tolist(), **places, **scale)
    return drawing(frame, parts, label=label)


def colour_of(value: float, low: float, high: float) -> tuple[str, float]:
    """The colour of a value and how strong it is, from 0 to 1.

    >>> colour_of(1.0, 0.0, 1.0)
    ('#0f4a8f', 1.0)
    """
    crosses = low < 0 < high
    start = 0.0 if crosses else low
    reach = max(abs(low), abs(high)) if crosses else high - low
    share = min(1.0, abs(value - start) / reach) if reach else 0.0
    end = MINUS if crosses and value < 0 else HIGH
    mixed = (round(a + share * (b - a)) for a, b in zip(LOW, end, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed), share
