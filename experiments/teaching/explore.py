"""Which way of teaching becomes the default: chosen by validation on cases and seeds that nothing is judged on.

The rule was written down before the runs: of what costs a step of fine-tuning and one pass of the teachers, the one
with the highest mean over the cases of (validation less fine-tuning's), among those that are on no case more than a
point below fine-tuning.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import fmean
from typing import Any

SEEDS = (11, 12, 13)
MORE_PASSES = ("b-tuning, 3C, views", "b-tuning, 3C, 16 views")
"""Several passes of the teachers: told, not chosen."""
FALLBACK = "b-tuning, C"


def gains(records: Iterable[dict[str, Any]], part: str = "validation") -> dict[str, dict[str, float]]:
    """Points over fine-tuning by method and case; means over the seeds that have both."""
    values: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for record in records:
        if record["seed"] in SEEDS and "failed" not in record:
            value = record[part] if record.get("test") is not None else 0.0  # it diverged
            values[record["case"], record["seed"]][record["method"]] = value
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (case, _), by_method in values.items():
        for method, value in by_method.items() if "fine-tune" in by_method else ():
            found[method][case].append(100 * (value - by_method["fine-tune"]))
    return {method: {case: fmean(points) for case, points in cases.items()} for method, cases in found.items()}


def choose(records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The name of the default, and the points of all."""
    points = {m: {c: round(v, 2) for c, v in cases.items()} for m, cases in gains(records).items()}
    cases = set().union(*points.values()) if points else set()
    allowed = {
        method: fmean(found.values())
        for method, found in points.items()
        if set(found) == cases and min(found.values()) > -1.0 and method not in (*MORE_PASSES, "fine-tune")
    }
    return {"default": max(allowed, key=allowed.__getitem__) if allowed else FALLBACK, "validation": points}
