"""The store of past races on this machine: what each model did beside its evidence, for later races of its recipe.

A race that is over adds a line per model. Outcomes of different data have no common scale, so places are compared: with
Φ⁻¹ the quantile of the normal distribution and K models in a race, a model's residual in it is

    r = Φ⁻¹(1 - (place at the end - ½)/K) - Φ⁻¹(1 - (place by evidence - ½)/K)

and what is expected of it next time is Σr/(n + SHRINKAGE) over its n races: near zero after one race, near its mean
residual after many.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hubscout.errors import RunError
from hubscout.grouping import grouped
from hubscout.runs.files import append_line, read_lines
from hubscout.runs.record_types import record_of

SHRINKAGE = 2.0
FEWEST_MODELS = 3
"""Races of fewer models say too little of any."""


@dataclass(frozen=True, kw_only=True)
class PastResult:
    """One model in one race. `recipe` is that of the arguments, the kind of task and the kind of inputs."""

    task: str
    recipe: str
    race: str
    """Of the same race are the lines with the same value."""
    model: str
    models: int
    evidence: float
    evidence_rank: int
    rank: int
    metric: float | None
    learning_rate: float | None
    steps: int
    time: float = 0.0

    @property
    def residual(self) -> float:
        """By how much the race put the model above its evidence, in deviations between models."""
        return normal_score(self.rank, self.models) - normal_score(self.evidence_rank, self.models)


@dataclass(frozen=True)
class Expectation:
    """What past races add to a model's evidence, in deviations between models, and how many they are."""

    shift: float
    races: int


def store_path() -> Path:
    """The file of the store: $HUBSCOUT_RACES, or a standard place."""
    import platformdirs

    told = os.environ.get("HUBSCOUT_RACES")
    return Path(told) if told else Path(platformdirs.user_data_dir("hubscout", appauthor=False)) / "races.jsonl"


def recipe_of(arguments: Mapping[str, Any], *, kind: str, modality: str) -> str:
    """What two races must have in common for one to tell something of the other: all but the data and the seed.

    >>> recipe_of({"epochs": 5, "seed": 0}, kind="classification", modality="image") == recipe_of(
    ...     {"epochs": 5, "seed": 1}, kind="classification", modality="image")
    True
    """
    decisive = {name: value for name, value in arguments.items() if name != "seed"}
    told = json.dumps({**decisive, "kind": kind, "modality": modality}, sort_keys=True, default=str)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def normal_score(rank: int, models: int) -> float:
    """Where a place lies between models, in deviations: the first is above 0, the last below.

    >>> round(normal_score(1, 10), 2), normal_score(2, 3)
    (1.64, 0.0)
    """
    from scipy.special import ndtri

    return float(ndtri(1 - (rank - 0.5) / models))


def add_race(results: Iterable[PastResult], path: Path | None = None) -> None:
    """Write the models of a finished race down; an `OSError` where that cannot be."""
    for result in results:
        append_line(path or store_path(), {**asdict(result), "time": round(time.time())})


def read_past(path: Path | None = None) -> list[PastResult]:
    """All results, oldest first; lines that are none are passed over."""
    found = []
    for line in read_lines(path or store_path(), tolerant=True):
        try:
            result: PastResult = record_of(PastResult, line, "a past race")
        except RunError:
            continue
        if 1 <= result.rank <= result.models and 1 <= result.evidence_rank <= result.models:
            found.append(result)
    return found


def expectations(past: Iterable[PastResult], *, recipe: str, task: str) -> dict[str, Expectation]:
    """Model → what races of the same recipe on other data say of it beside its evidence.

    The latest race on the same data counts, and none on the data of the race that asks.
    """
    latest = {(result.task, result.model): result for result in past if result.recipe == recipe}
    others = [one for one in latest.values() if one.task != task and one.models >= FEWEST_MODELS]
    residuals = grouped((one.model, one.residual) for one in others)
    return {model: Expectation(sum(found) / (len(found) + SHRINKAGE), len(found)) for model, found in residuals.items()}
