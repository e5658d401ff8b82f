"""How good a tuned model is, in a sentence or two: the words of the terminal and of the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hubscout.runs.tuning_record import Interval, TuningRun


@dataclass(frozen=True)
class Rival:
    """What a tuned model is compared with: `name` says what it is, `value` what it achieves in the same metric."""

    name: str
    value: float


@dataclass(frozen=True)
class Achieved:
    """The primary metric of a tuned model on a split, and what it is compared with."""

    split: str
    metric: str
    interval: Interval
    rivals: tuple[Rival, ...]
    guess: float | None

    @property
    def value(self) -> float:
        """The metric."""
        return self.interval[0]


def achieved(run: TuningRun, named: Callable[[str], str] = str) -> Achieved | None:
    """On test where it was measured, else on validation; None where neither was. `named` says how a model is called."""
    split = next((name for name in ("test", "validation") if run.metrics.get(name)), None)
    if split is None:
        return None
    metric, interval = next(iter(run.metrics[split].items()))
    names = {
        "model": "the linear probe of the frozen features",
        "teacher": f"that of the best teacher, {named(run.probes['teacher'].model)}" if "teacher" in run.probes else "",
    }
    values = {of: run.probes[of].metric(split) for of in names if of in run.probes}
    rivals = tuple(Rival(names[of], value) for of, value in values.items() if value is not None)
    return Achieved(split, metric, interval, rivals, run.guess.get(split))


def conclusion(run: TuningRun, named: Callable[[str], str] = str) -> str:
    """How good the tuned model is, against the probes that were measured and against guessing.

    Args:
        run: the tuning, with its probes.
        named: how a model is called, where not by its whole identifier.

    Returns:
        One or two sentences; empty where nothing was measured.

    """
    found = achieved(run, named)
    if found is None:
        return ""
    value, low, high = found.interval
    words = f"{found.split.capitalize()} {found.metric} {value:.4f} [{low:.4f}, {high:.4f}]"
    for rival in found.rivals:
        words += f", {value - rival.value:+.4f} against {rival.name} ({rival.value:.4f})"
    return words + "." + (f" Guessing gives {found.guess:.4f}." if found.guess is not None else "")
