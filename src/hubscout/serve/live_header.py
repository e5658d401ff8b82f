"""The header of a run that is going on: elapsed, time left, samples done, best so far."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from hubscout.report.markup import Markup, breakable, tag
from hubscout.runs.record_types import is_number
from hubscout.runs.texts import human_seconds

Facts = list[tuple[str, object]]


def header(facts: Facts) -> Markup:
    """The facts side by side; those that are not known yet are dashes, so that nothing moves when they come."""
    shown = [(name, "–" if value in (None, "") else value) for name, value in facts]
    return tag(
        "dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in shown), class_="facts small live"
    )


def whole_seconds(seconds: float | None) -> str:
    """A time without parts of a second, which would only flicker.

    >>> whole_seconds(8.26), whole_seconds(91.4), whole_seconds(None)
    ('8 s', '1 min 31 s', '–')
    """
    return f"{seconds:.0f} s" if seconds is not None and seconds < 59.5 else human_seconds(seconds)


def time_left(elapsed: float | None, done: float, left: float) -> str:
    """How long the rest takes at the pace so far.

    >>> time_left(60.0, 2, 6), time_left(60.0, 0, 6), time_left(None, 1, 1)
    ('about 3 min 0 s', '', '')
    """
    if elapsed is None or done <= 0:
        return ""
    return f"about {whole_seconds(elapsed * left / done)}" if left > 0 else "nearly done"


def ranking_facts(
    began: float | None, taken_over: int, done: float, models: int, samples: int, best: tuple[str, float] | None
) -> Facts:
    """Of a ranking since `began`: `done` models are finished, `taken_over` of them before; one that runs is a part."""
    elapsed = None if began is None else max(0.0, time.time() - began)
    return [
        ("Elapsed", whole_seconds(elapsed)),
        ("Time left", time_left(elapsed, done - taken_over, models - done)),
        ("Samples done", f"{samples:,}" if samples else ""),
        ("Best so far", breakable(f"{best[0]}, {best[1]:.4f}") if best else ""),
    ]


def tuning_facts(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Facts:
    """Of tunings by the lines of their curves; a `started` line says when a run began and how far it goes."""
    began: list[float] = []
    done = before = steps = samples = 0
    best: tuple[float, str] | None = None
    for lines in runs.values():
        started = next((line for line in reversed(lines) if line.get("event") == "started"), None)
        last = max((int(line["step"]) for line in lines if is_number(line.get("step"))), default=0)
        done += last
        if started is not None and all(is_number(started.get(key)) for key in ("time", "step", "steps", "batch_size")):
            began.append(float(started["time"]))
            before += int(started["step"])
            steps += int(started["steps"])
            samples += last * int(started["batch_size"])
        for line in lines:
            metrics = line.get("metrics") if line.get("event") == "validation" else None
            name, value = next(iter(metrics.items()), ("", None)) if isinstance(metrics, Mapping) else ("", None)
            if value is not None and is_number(value) and (best is None or value > best[0]):
                best = (float(value), str(name))
    elapsed = max(0.0, time.time() - min(began)) if began else None
    return [
        ("Elapsed", whole_seconds(elapsed)),
        ("Time left, at most", time_left(elapsed, done - before, steps - done) if steps else ""),
        ("Steps", f"{done:,} of {steps:,}" if steps else f"{done:,}"),
        ("Samples done", f"{samples:,}" if samples else ""),
        ("Best so far", f"{best[1]} {best[0]:.4f}" if best else ""),
    ]
