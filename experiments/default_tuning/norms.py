"""When should batch norms keep the statistics they came with? A rule chosen on some sets and judged on the others.

The rule has one number: runs of fewer steps than that keep them. Runs that differ in nothing else are compared.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

MOVING, FROZEN = "moving norm statistics", "frozen norm statistics"


@dataclass(frozen=True)
class Gain:
    """What kept statistics gave over moving ones, in points: of what training reached, and of the result on test."""

    set_name: str
    model: str
    steps: int
    reached: float
    result: float


def pairs_of(records: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Runs with norms that keep their statistics and with norms that move, which differ in nothing else."""
    pairs: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = defaultdict(dict)
    for record in records:
        variant = record["variant"]
        if "reached" in record and variant in (MOVING, FROZEN):
            key = tuple(record[name] for name in ("model", "set_name", "seed", "steps", "pixels", "rows"))
            pairs[key][variant] = record
    return [(pair[FROZEN], pair[MOVING]) for pair in pairs.values() if len(pair) == 2]


def gains(records: Sequence[dict[str, Any]]) -> list[Gain]:
    """One for each pair of runs."""
    return [
        Gain(
            frozen["set_name"],
            frozen["model"],
            frozen["steps"],
            100 * (frozen["reached"] - moving["reached"]),
            100 * (frozen["result"]["test"] - moving["result"]["test"]),
        )
        for frozen, moving in pairs_of(records)
    ]


def by(found: Sequence[Gain], name: str) -> list[list[str]]:
    """A row for each value of a field: pairs, in how many kept statistics were ahead, mean gains."""
    rows = []
    for value in sorted({getattr(gain, name) for gain in found}):
        here = [gain for gain in found if getattr(gain, name) == value]
        ahead = sum(gain.reached > 0 for gain in here)
        means = [fmean(gain.reached for gain in here), fmean(gain.result for gain in here)]
        rows.append([str(value), str(len(here)), str(ahead), *(f"{mean:+.1f}" for mean in means)])
    return rows


def limits(found: Sequence[Gain]) -> list[float]:
    """Of steps, half-way between those that were run."""
    steps = sorted({gain.steps for gain in found})
    return [0, *((low + high) / 2 for low, high in pairwise(steps)), math.inf]


def worth(found: Sequence[Gain], limit: float, what: str = "reached") -> float:
    """Mean gain of a rule over norms that always move."""
    return fmean(getattr(gain, what) if gain.steps < limit else 0.0 for gain in found)


def left_out(found: Sequence[Gain], field: str) -> list[list[str]]:
    """The limit that the other sets (or models) choose by what training reached, and what it gives on that left out."""
    rows, judged = [], []
    for name in sorted({getattr(gain, field) for gain in found}):
        others = [gain for gain in found if getattr(gain, field) != name]
        here = [gain for gain in found if getattr(gain, field) == name]
        limit = max(limits(found), key=lambda limit: worth(others, limit))
        judged.append((worth(here, limit), worth(here, limit, "result")))
        rows.append([name, _told(limit), *(f"{value:+.1f}" for value in judged[-1])])
    means = [fmean(values) for values in zip(*judged, strict=True)]
    return [*rows, ["mean", "", *(f"{mean:+.1f}" for mean in means)]]


def rules(found: Sequence[Gain]) -> list[list[str]]:
    """Every rule on all sets."""
    return [[_told(n), f"{worth(found, n):+.1f}", f"{worth(found, n, 'result'):+.1f}"] for n in limits(found)]


def _told(limit: float) -> str:
    if not limit:
        return "never"
    return "always" if math.isinf(limit) else f"below {limit:g} steps"
