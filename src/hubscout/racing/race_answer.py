"""The answer of a race in a few sentences: which model, how good, against the probe and the others, how sure."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hubscout.metric_texts import interval_text, metric_text
from hubscout.runs.row import BUDGET_SPENT
from hubscout.runs.texts import human_probability, listing, names_by_model, short_names

if TYPE_CHECKING:
    from hubscout.racing.outcome import Race
    from hubscout.tuning import Tuned


def race_answer(race: Race) -> str:
    """The sentences, one after the other."""
    names = names_by_model(one.model for one in race.order)
    return " ".join(
        part for part in (_winner(race, names), _beside(race, names), _sure(race, names), _taught(race)) if part
    )


def _winner(race: Race, names: dict[str, str]) -> str:
    """Which model, and how good it is."""
    tuned, name = race.tuned, names[race.order[0].model]
    if tuned is not None and tuned.best_step == 0:
        text = f"{name} won with the linear probe of its frozen features"
    else:
        text = f"{name} won at a learning rate of {race.winner.learning_rate:g}"
    if tuned is None or not tuned.metrics:
        return text + "."
    split = told_split(tuned)
    end = "it has" if tuned.best_step == 0 else "tuned to the end it has"
    text += f": {end} {race.metric} {interval_text(race.metric, *tuned.metric(split))} on {_samples(tuned, split)}."
    if tuned.best_step:
        return text
    if not race.looks and not tuned.steps:
        return text + " There was no time for training."
    failed = race.looks and not _tuned_models(race)
    return text + (" No model could be trained." if failed else " Training did not come up to it in this time.")


def _beside(race: Race, names: dict[str, str]) -> str:
    """The winner and the linear probe of the first by evidence, on the same samples."""
    found, tuned = race.told.beside, race.tuned
    if found is None or tuned is None or tuned.best_step == 0:
        return ""
    whose = "its" if found.model == race.winner.model else f"{names.get(found.model, found.model)}'s"
    text = partial(metric_text, race.metric)
    return (
        f"On {found.samples:,} held-out samples its {race.metric} is {text(found.winner)}, that of the linear probe of "
        f"{whose} frozen features {text(found.probe)}."
    )


def _sure(race: Race, names: dict[str, str]) -> str:
    """How sure that is, and who comes next."""
    first, *others = race.order
    tried, known = _tuned_models(race), len(race.ranking)
    if not others and not _missed(race):
        return ""
    if tried < 2 or first.p_best is None:
        alone = tried == 1 and any(look.arm.model == first.model and not look.failure for look in race.looks)
        told = f"{_by_evidence(race)}."
        if not tried:
            return told[0].upper() + told[1:]
        text = "It is the only one that there was time to tune" if alone else "Nothing that was tuned came up to it"
        return f"{text}; {told}"
    of = f"the {tried} models that were tuned, out of {known}," if tried < known else f"the {known} models"
    text = f"Of {of} it is the best with a probability of {_words(first.p_best)}"
    tied = [f"{names[one.model]} ({_words(one.p_best)})" for one in others if one.is_tied]
    if tied:
        are = "is" if len(tied) == 1 else "are"
        return f"{text}; {listing(tied)} {are} statistically tied with it."
    following = next((one for one in others if one.p_best is not None), None)
    return text + ("." if following is None else f"; {names[following.model]} comes next.")


def _by_evidence(race: Race) -> str:
    """Where the winner stands by evidence, and how sure that is."""
    row = race.ranking[race.winner.model]
    known, missed = len(race.ranking), _missed(race)
    of = f"{known} of {known + missed} models that could be ranked in this time" if missed else f"{known} models"
    if known == 1:
        return f"it is the only one of {known + missed} models that could be ranked in this time"
    if row.rank != 1:
        return f"by evidence it is number {row.rank} of {of}"
    sure = "" if row.p_best is None else f", the best with a probability of {_words(row.p_best)}"
    return f"by evidence it is the first of {of}{sure}"


def _missed(race: Race) -> int:
    """Models that there was no time to rank."""
    return sum(one.error == BUDGET_SPENT for one in race.ranking.failures)


def _taught(race: Race) -> str:
    """What became of the model to deploy."""
    made = race.deployed
    if made is None or made is race.tuned or not made.metrics:
        return ""
    target, *teachers = short_names([made.model, *made.teachers])
    split = told_split(made)
    told = f"{race.metric} {interval_text(race.metric, *made.metric(split))} on {_samples(made, split)}"
    taught = f"taught by {listing(teachers)}" if teachers else "tuned without teachers"
    if made.best_step == 0:
        return f"{target}, {taught}, did not come up to its linear probe, which has {told}."
    return f"{target}, {taught}, has {told}."


def _tuned_models(race: Race) -> int:
    return len({look.arm.model for look in race.looks if not look.failure})


def told_split(tuned: Tuned) -> str:
    """The split whose metric is told: test where there is one."""
    return "test" if "test" in tuned.metrics else next(iter(tuned.metrics))


def _samples(tuned: Tuned, split: str) -> str:
    count = tuned.sizes.get(split)
    words = "held-out" if split == "validation" else split
    return f"{count:,} {words} samples" if count else split


def _words(probability: float | None) -> str:
    """As the table has it, in a sentence."""
    return human_probability(probability).replace(">", "over ").replace("<", "under ")
