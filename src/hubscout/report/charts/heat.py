"""A table of numbers as colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hubscout.report.charts.chart import Frame, drawing
from hubscout.report.charts.label_placement import text_width
from hubscout.report.markup import Markup, tag
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
    parts: list[Markup] = []
    for place, name in enumerate(columns):
        x = left + WIDTH * (place + 0.5)
        turned = f"rotate(-90 {x:.1f} {top - 8:.1f})"
        parts.append(tag("text", shorten(name, LONGEST), x=x, y=top - 8, transform=turned))
    for place, name in enumerate(rows):
        y = top + HEIGHT * (place + 0.5)
        parts.append(tag("text", shorten(name, LONGEST), x=left - 8, y=y, class_="end"))
        for column, value in enumerate(values[place].tolist()):
            x = left + WIDTH * column
            shade, share = colour_of(value, low, high)
            words, ink = f"{value:.2f}".replace("-", "−"), "#ffffff" if share > 0.55 else "#1a1d21"
            parts.append(tag("rect", x=x + 1, y=y - HEIGHT / 2 + 1, width=WIDTH - 2, height=HEIGHT - 2, fill=shade))
            parts.append(tag("text", words, x=x + WIDTH / 2, y=y, class_="middle", fill=ink))
    for step in range(24):
        shade, _ = colour_of(low + (high - low) * step / 23, low, high)
        parts.append(tag("rect", x=left + 5 * step, y=body + 12, width=5.5, height=10, fill=shade))
    parts.append(tag("text", f"{low:.2f}".replace("-", "−"), x=left, y=body + 32, class_="tick"))
    parts.append(tag("text", f"{high:.2f} {unit}", x=left + 100, y=body + 32, class_="tick"))
    return drawing(frame, *parts, label=label)


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
