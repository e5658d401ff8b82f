"""Where to write names so that none covers another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot

import numpy as np

# In units of the font's size, for the widest of the usual system fonts.
_WIDTHS = {
    **dict.fromkeys("ijl.,:;|!'I ", 0.33),
    **dict.fromkeys("tfr()[]-/", 0.42),
    "_": 0.51,
    **dict.fromkeys("mwMW@%…", 0.98),
}
_LETTER, _CAPITAL, _IDEOGRAPH = 0.62, 0.72, 1.0
BESIDE = 10.0
"""A label this near to a point is taken for its name."""


def text_width(text: str, size: float) -> float:
    """About how wide a system font sets `text`; a little too wide rather than too narrow."""
    return size * sum(
        _WIDTHS.get(c, _IDEOGRAPH if ord(c) > 0x2E80 else _CAPITAL if c.isupper() else _LETTER) for c in text
    )


@dataclass(frozen=True)
class Box:
    """A rectangle on the paper."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Whether the two share any area."""
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def within(self, other: Box) -> bool:
        """Whether it lies wholly inside `other`."""
        across = other.left <= self.left <= self.right <= other.right
        return across and other.top <= self.top <= self.bottom <= other.bottom

    def distance(self, x: float, y: float) -> float:
        """How far a point is from it; 0 inside."""
        return hypot(max(self.left - x, 0.0, x - self.right), max(self.top - y, 0.0, y - self.bottom))


@dataclass(frozen=True)
class Wish:
    """A name that wants to stand near a point; those with a lower `priority` choose first.

    One that `must` be written may stand further away, on a line that leads to its point. `short` is written where
    there is no room for the text.
    """

    text: str
    x: float
    y: float
    priority: int = 0
    must: bool = False
    short: str = ""


@dataclass(frozen=True)
class Label:
    """A name and where its text begins, ends or is centred (`anchor`); `box` is what it covers."""

    text: str
    x: float
    y: float
    anchor: str
    box: Box
    leader: tuple[float, float] | None = None
    """The point, where the label is so far from it that a line should lead there."""

    @property
    def end(self) -> tuple[float, float]:
        """Where the line from the point ends: at the middle of the nearest side."""
        x, y = self.leader or (self.x, self.y)
        if self.box.left <= x <= self.box.right:
            return x, self.box.bottom if y > self.box.bottom else self.box.top
        return (self.box.left if x < self.box.left else self.box.right), (self.box.top + self.box.bottom) / 2

    def along(self) -> list[tuple[float, float]]:
        """Points along its line, a few pixels apart; none where it has no line."""
        if self.leader is None:
            return []
        (a, b), (c, d) = self.leader, self.end
        steps = max(2, int(hypot(c - a, d - b) / 4))
        return [(a + (c - a) * i / steps, b + (d - b) * i / steps) for i in range(1, steps)]


def place(
    wishes: Sequence[Wish], area: Box, *, size: float, obstacles: Sequence[Box] = (), avoid: Sequence[Box] = ()
) -> list[Label | None]:
    """Places for the wishes, in their order; None for a name that finds no free place.

    No label covers an obstacle or another label, and none stands nearer to another point than to its own, unless a
    line leads to its own. Those that must be written may cover what others `avoid`.

    >>> area = Box(0, 0, 200, 100)
    >>> [label is not None for label in place([Wish("one", 50, 50), Wish("two", 52, 51)], area, size=10)]
    [True, True]
    """
    taken = list(obstacles)
    labels: list[Label | None] = [None] * len(wishes)
    for index in sorted(range(len(wishes)), key=lambda index: wishes[index].priority):
        wish = wishes[index]
        others = [(other.x, other.y) for other in wishes if (other.x, other.y) != (wish.x, wish.y)]
        written = [label for label in labels if label is not None]
        for text in filter(None, (wish.text, wish.short)):
            inside = [label for label in _candidates(wish, text, size) if label.box.within(area)]
            bare = [label for label in inside if not any(label.box.meets(box) for box in taken)]
            free = [label for label in bare if not _strikes(label, written)]
            own = [label for label in free if _belongs(label, wish, others)]
            clear = [label for label in own if not any(label.box.meets(box) for box in avoid)]
            led = [label for label in free if label.leader is not None]
            if found := clear or ((own or led) if wish.must else []):
                labels[index] = found[0]
                taken.append(found[0].box)
                break
    return labels


def _belongs(label: Label, wish: Wish, others: Sequence[tuple[float, float]]) -> bool:
    """Whether nobody would take the label for the name of another point."""
    near = BESIDE if label.leader is not None else label.box.distance(wish.x, wish.y)
    return all(label.box.distance(x, y) > near for x, y in others)


def _strikes(label: Label, written: Sequence[Label]) -> bool:
    """Whether its line goes through a name, or it lies on another's line."""
    lines = [(label, other.box) for other in written] + [(other, label.box) for other in written]
    return any(box.distance(x, y) == 0 for line, box in lines for x, y in line.along())


def _candidates(wish: Wish, text: str, size: float) -> list[Label]:
    width, height = text_width(text, size), size * 1.15
    rings = (8.0, 20.0, 34.0, 50.0, 70.0, 95.0, 125.0, 160.0) if wish.must else (8.0, 14.0)
    labels = []
    for distance in rings:
        leader = (wish.x, wish.y) if distance > 15 else None
        slant = distance * 0.75
        for x, y, anchor in (
            (wish.x + distance, wish.y, "start"),
            (wish.x - distance, wish.y, "end"),
            (wish.x, wish.y - distance - height / 2, "middle"),
            (wish.x, wish.y + distance + height / 2, "middle"),
            (wish.x + slant, wish.y - slant - 2, "start"),
            (wish.x + slant, wish.y + slant + 2, "start"),
            (wish.x - slant, wish.y - slant - 2, "end"),
            (wish.x - slant, wish.y + slant + 2, "end"),
        ):
            left = x - {"start": 0.0, "end": width, "middle": width / 2}[anchor]
            labels.append(Label(text, x, y, anchor, Box(left, y - height / 2, left + width, y + height / 2), leader))
    return labels


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move labels in a column apart until each has its `gap`, as little as possible, within `low`..`high`.

    >>> spread([10.0, 11.0, 50.0], 10, 0, 60)
    [5.5, 15.5, 50.0]
    """
    from scipy.optimize import isotonic_regression

    if not places:
        return []
    order = np.argsort(places, kind="stable")
    offsets = min(gap, (high - low) / max(1, len(places) - 1)) * np.arange(len(places))
    # Less its offset in the column, each place is at least the one before it.
    wanted = isotonic_regression(np.asarray(places)[order] - offsets).x
    result = np.empty(len(places))
    result[order] = np.clip(wanted, low, high - offsets[-1]) + offsets
    return result.tolist()
