"""How a tuning was made: command, hardware, settings."""

from __future__ import annotations

from hubscout.report.markup import Markup, join, tag
from hubscout.report.saved_run import Run
from hubscout.report.sections.provenance import (
    definitions,
    known,
    machine_facts,
    package_details,
    repeat_command,
    settings_details,
)
from hubscout.report.sections.section import Section, copyable
from hubscout.report.tuning_runs import evaluated
from hubscout.runs.texts import human_seconds


def tuning_provenance_section(run: Run) -> Section | None:
    """Of a folder that holds tunings alone; of several the best is told of, and the table above has what differs."""
    if run.ranking is not None or not run.tuning:
        return None
    one = evaluated(run.tuning) or run.tuning[0]
    if not one.arguments and not one.environment:
        return None
    parts: list[Markup] = []
    command = repeat_command(one.environment)
    if command:
        parts += [tag("p", "Run it again", class_="label"), copyable(command, "run it again")]
    facts = known(
        [
            ("Data", one.task),
            ("Samples", ", ".join(f"{name} {count:,}" for name, count in one.sizes.items())),
            ("Data fingerprint", tag("code", one.task_fingerprint) if one.task_fingerprint else ""),
            ("Model", tag("code", one.model) if one.model else ""),
            ("Teachers", join([tag("code", name) for name in one.teachers], ", ")),
            ("Method", one.method),
            ("Steps", f"{one.steps:,}" + (f", best at {one.best_step:,}" if one.best_step is not None else "")),
            ("Seed", "" if one.seed is None else str(one.seed)),
            ("Duration", human_seconds(one.seconds) if one.seconds else ""),
            *machine_facts(one.environment),
        ]
    )
    parts += [definitions(facts), settings_details(one.arguments), *package_details(one.environment)]
    return Section(anchor="run", title="What was run", short="Run", body=join(parts))
