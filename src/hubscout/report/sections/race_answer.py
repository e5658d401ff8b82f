"""A race: who won, what was spent, what to do with it."""

from __future__ import annotations

from pathlib import Path

from hubscout.report.markup import Markup, join, table, tag
from hubscout.report.saved_run import Run
from hubscout.report.sections.section import Section, copyable
from hubscout.report.shell import shell_command
from hubscout.runs.race_record import RaceRecord, race_status
from hubscout.runs.run_folder import RACE_DEPLOYED, RACE_WINNER
from hubscout.runs.texts import human_probability, human_seconds

STAGES = {
    "evidence": "Evidence of all models",
    "rungs": "Rungs: a little tuning of each arm",
    "winner": "The winner, to its end",
    "refit": "The winner again, on train and validation",
    "deploy": "The model to deploy, taught by the winners",
}


def race_answer(run: Run, race: RaceRecord) -> Section:
    """The answer in a sentence; while the race goes on, where it stands."""
    parts: list[object] = [tag("p", race.answer or race_status(race), class_="answer"), _facts(race)]
    if race.seconds:
        parts.append(_spent(race))
    if race.notes:
        parts += [tag("p", "Notes", class_="label"), tag("ul", *(tag("li", note) for note in race.notes))]
    if run.folder is not None and race.complete:
        command = shell_command(["hubscout", "predict", f"{_model(run.folder, race)}/", "INPUTS"])
        parts += [tag("p", "Run next", class_="label"), copyable(command, "run next")]
    return Section(anchor="answer", title="The answer", short="Answer", body=join(parts))


def _model(folder: Path, race: RaceRecord) -> Path:
    return folder / (RACE_DEPLOYED if race.deploy else RACE_WINNER)


def _facts(race: RaceRecord) -> Markup:
    facts: list[tuple[str, str, str]] = []
    first = race.order[0] if race.order else None
    if first is not None and first.metric is not None:
        facts.append((f"Held-out {race.metric}", f"{first.metric:.4f}", f"after {first.steps} of {race.steps} steps"))
    if first is not None and first.p_best is not None:
        raced = len({look.arm.model for look in race.looks})
        facts.append(("P(best once tuned)", human_probability(first.p_best), f"{raced} models raced"))
    facts.append(("Arms", str(len(race.arms)), f"{len(race.looks)} looks"))
    if race.seconds:
        facts.append(("Time", human_seconds(sum(race.seconds.values())), "in all"))
    return tag(
        "dl",
        *(tag("div", tag("dt", name), tag("dd", value, tag("small", note))) for name, value, note in facts),
        class_="facts",
    )


def _spent(race: RaceRecord) -> Markup:
    total = sum(race.seconds.values()) or 1.0
    rows = [
        (STAGES.get(name, name), human_seconds(seconds), f"{seconds / total:.0%}")
        for name, seconds in race.seconds.items()
    ]
    return tag("div", table(("What was spent", "Time", "Share"), rows), style="margin-top:22px")
