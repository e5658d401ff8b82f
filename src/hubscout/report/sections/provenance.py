"""What was run, on what, and how to run it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from hubscout.report.answer import command_words, shell_command
from hubscout.report.markup import Markup, Section, copyable, definitions, details, join, scrolling, table, tag
from hubscout.report.saved_run import Run
from hubscout.report.sections.tuning_sections import evaluated
from hubscout.runs.profiler import profile_cells, profile_notes
from hubscout.runs.ranking import Ranking
from hubscout.runs.texts import counted, human_seconds
from hubscout.runs.tuning_record import TuningRun
from hubscout.tasks.kinds import kind_of

Facts = list[tuple[str, object]]


def provenance_section(run: Run) -> Section | None:
    """Versions, hardware, seeds, the data's fingerprint, times, and the command that repeats the run.

    Of a folder of several tunings the best is told of; the table of results has what differs.
    """
    if run.ranking is not None:
        parts = _ranking_parts(run.ranking)
    elif run.tuning:
        parts = _tuning_parts(evaluated(run.tuning) or run.tuning[0])
    else:
        parts = []
    return Section(anchor="run", title="What was run", short="Run", body=join(parts)) if parts else None


def _ranking_parts(ranking: Ranking) -> list[Markup]:
    command = repeat_command(ranking.environment) or repeat_code(ranking)
    parts = [copyable(command, "Run it again"), _definitions(_ranking_facts(ranking))]
    if ranking.task.notes:
        notes_of_data = (tag("li", note) for note in ranking.task.notes)
        parts += [tag("h3", "Assumptions made when loading the data"), tag("ul", *notes_of_data)]
    if ranking.stages:
        rows = [
            (f"{stage.n:,}", str(len(stage.models)), str(len(stage.dropped)), human_seconds(stage.seconds))
            for stage in ranking.stages
        ]
        stages = table(("Samples", "Models", "Dropped afterwards", "Time"), rows, text_columns=())
        parts += [tag("h3", "Stages"), scrolling(stages, "Stages of the ranking")]
    heads, spent = profile_cells(ranking)
    if spent:
        said = (tag("p", text) for text in profile_notes(ranking))
        seconds = scrolling(table(heads, spent), "Seconds of each step of each model")
        parts += [tag("h3", "Where the time went"), seconds, *said]
    commits = [(row.identifier, str(row.card["commit"])) for row in ranking.rows if row.card.get("commit")]
    if commits:
        versions = table(("Model", "Commit"), commits, text_columns=(0, 1))
        parts.append(details("Model versions on the Hugging Face Hub", versions))
    parts += _package_details(ranking.environment)
    return [*parts, _settings_details(ranking.settings)] if ranking.settings else parts


def _tuning_parts(one: TuningRun) -> list[Markup]:
    if not one.arguments and not one.environment:
        return []
    command = repeat_command(one.environment)
    facts: Facts = [
        ("Data", one.task),
        ("Samples", ", ".join(f"{name} {count:,}" for name, count in one.sizes.items())),
        ("Data fingerprint", tag("code", one.task_fingerprint) if one.task_fingerprint else ""),
        ("Model", tag("code", one.model) if one.model else ""),
        ("Teachers", join([tag("code", name) for name in one.teachers], ", ")),
        ("Method", one.method),
        ("Steps", f"{one.steps:,}" + (f", best at {one.best_step:,}" if one.best_step is not None else "")),
        ("Seed", "" if one.seed is None else str(one.seed)),
        ("Duration", human_seconds(one.seconds) if one.seconds else ""),
        *_machine_facts(one.environment),
    ]
    parts = [copyable(command, "Run it again")] if command else []
    return [*parts, _definitions(facts), _settings_details(one.arguments), *_package_details(one.environment)]


def repeat_command(environment: Mapping[str, Any]) -> str:
    """The command line of the run, as one types it; empty where it was not run by a command."""
    command = command_words(environment)
    if len(command) < 2 or PurePath(command[0]).name not in {"hubscout", "__main__.py"}:
        return ""
    # Another package's __main__ has other commands.
    known = {"rank", "race", "tune", "soup", "demo"}
    return shell_command(["hubscout", *command[1:]]) if command[1] in known else ""


def repeat_code(ranking: Ranking) -> str:
    """The same in Python, for a run that was not made by a command."""
    source = ranking.task.source
    opened = f"Task.reopen({dict(source)!r})" if source is not None else "...  # data that was in memory"
    lines = ["from hubscout import Task, rank", "", f"task = {opened}", "models = ["]
    lines += [f"    {name!r}," for name in sorted([*ranking.identifiers, *(f.identifier for f in ranking.failures)])]
    lines.append("]")
    options: dict[str, Any] = {"metrics": ranking.metrics, "seed": ranking.seed}
    options |= {name: ranking.settings[name] for name in ("limit", "layers", "layer") if ranking.settings.get(name)}
    if ranking.settings.get("budget_seconds"):
        options["budget"] = ranking.settings["budget_seconds"]
    lines.append(f"rank(task, models, {', '.join(f'{name}={value!r}' for name, value in options.items())})")
    return "\n".join(lines)


def _ranking_facts(ranking: Ranking) -> Facts:
    task = ranking.task
    targets = f"{len(task.target_names)} {kind_of(task.kind).plural}"
    return [
        ("Data", f"{task.name}: {task.kind}, {task.modality}, {targets}"),
        ("Samples", ", ".join(f"{name} {count:,}" for name, count in task.rows.items())),
        ("Data fingerprint", tag("code", task.fingerprint)),
        ("Metrics", ", ".join(ranking.metrics)),
        ("Seed", str(ranking.seed)),
        ("Duration", human_seconds(ranking.seconds) if ranking.seconds else ""),
        *_machine_facts(ranking.environment),
        ("Networks run by", ", ".join(sorted({row.backend for row in ranking.rows if row.backend}))),
        ("Complete", "yes" if ranking.complete else "no, it was stopped or is still running"),
    ]


def _machine_facts(environment: Mapping[str, Any]) -> Facts:
    """When and on what a run was made."""
    hardware = [str(environment["processor"])] if environment.get("processor") else []
    for noun in ("core", "thread"):
        if count := environment.get(f"{noun}s"):
            hardware.append(counted(count, noun))
    accelerators = environment.get("accelerators")
    hardware += [str(name) for name in accelerators] if isinstance(accelerators, list | tuple) else []
    told = {key: str(environment.get(key) or "") for key in ("started", "device", "system", "python")}
    told["hardware"] = ", ".join(hardware)
    return [(key.capitalize(), told[key]) for key in ("started", "device", "hardware", "system", "python")]


def _package_details(environment: Mapping[str, Any]) -> list[Markup]:
    """The versions of packages, folded away."""
    packages = environment.get("packages")
    if not isinstance(packages, Mapping) or not packages:
        return []
    return [details("Package versions", table(("Package", "Version"), sorted(packages.items())))]


def _settings_details(settings: Mapping[str, Any]) -> Markup:
    """All settings, folded away."""
    shown = [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
        for name, value in settings.items()
    ]
    return details("Settings", table(("Setting", "Value"), shown, text_columns=(0, 1)))


def _definitions(facts: Facts) -> Markup:
    """Those that have a value."""
    return definitions([fact for fact in facts if fact[1]], "run-facts")
