"""What earlier races on this machine say of the models of this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hubscout.racing.elimination import standardised
from hubscout.ranking import Ranking
from hubscout.runs.past_races import PastResult, add_race, expectations, read_past, recipe_of

if TYPE_CHECKING:
    from hubscout.racing.outcome import Race
    from hubscout.tasks import Task
    from hubscout.tuning import TuningArguments


def with_prior(
    ranking: Ranking, task: Task, arguments: TuningArguments, *, use: bool
) -> tuple[dict[str, float], list[str]]:
    """The evidence of each model, the best first, and what the prior has changed, in words; without one as it is."""
    evidence = {row.identifier: row.score for row in ranking}
    if not use:
        return evidence, []
    recipe = recipe_of(arguments.decisive(), kind=task.kind, modality=task.modality)
    found = expectations(read_past(), recipe=recipe, task=task.fingerprint)
    known = {model: found[model] for model in evidence if model in found}
    if not known:
        return evidence, ["prior: no earlier race of the same recipe had one of these models"]
    places = standardised(np.array(list(evidence.values())))
    shifted = {
        model: float(place) + (known[model].shift if model in known else 0.0)
        for model, place in zip(evidence, places, strict=True)
    }
    said = ", ".join(f"{model} {one.shift:+.2f} ({one.races})" for model, one in known.items())
    note = f"prior: added to the evidence, in deviations between models (after so many races): {said}"
    return dict(sorted(shifted.items(), key=lambda item: -item[1])), [note]


def add_to_store(race: Race, task: Task, arguments: TuningArguments, name: str) -> None:
    """Add a finished race to the store; where that cannot be written, the race is none the worse."""
    recipe = recipe_of(arguments.decisive(), kind=task.kind, modality=task.modality)
    scores = {row.identifier: row.score for row in race.ranking}
    raced = [one for one in race.order if one.steps and not one.failure and one.evidence_rank is not None]
    by_evidence = sorted(raced, key=lambda one: one.evidence_rank or 0)
    results = [
        PastResult(
            task=task.fingerprint,
            recipe=recipe,
            race=name,
            model=one.model,
            models=len(raced),
            evidence=scores[one.model],
            evidence_rank=by_evidence.index(one) + 1,
            rank=place,
            metric=one.metric,
            learning_rate=one.learning_rate,
            steps=one.steps,
        )
        for place, one in enumerate(raced, start=1)
    ]
    try:
        add_race(results)
    except OSError:
        return
