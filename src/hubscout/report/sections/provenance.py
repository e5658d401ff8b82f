"""What was run, and how to run it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from hubscout.report.answer import command_words
from hubscout.report.markup import Markup, details, join, scrolling, table, tag
from hubscout.report.saved_run import Run
from hubscout.report.sections.section import Section, copyable
from hubscout.report.shell import shell_command
from hubscout.runs.profiler import profile_cells, profile_notes
from hubscout.runs.ranking import Ranking
from hubscout.runs.texts import human_seconds
from hubscout.tasks.kinds import kind_of


def provenance_section(run: Run) -> Section | None:
    """Versions, hardware, seeds, the data's fingerprint, times, and the command that repeats the run."""
    ranking = run.ranking
    if ranking is None:
        return None
    environment = ranking.environment
    parts: list[Markup] = []
    command = repeat_command(environment)
    parts += [tag("p", "Run it again", class_="label"), copyable(command or repeat_code(ranking), "run it again")]
    parts.append(definitions(_facts(ranking)))
    if ranking.task.notes:
        parts += [
            tag("h3", "Assumptions made when loading the data"),
            tag("ul", *(tag("li", n) for n in ranking.task.notes)),
        ]
    if ranking.stages:
        rows = [
            (f"{stage.n:,}", str(len(stage.models)), str(len(stage.dropped)), human_seconds(stage.seconds))
            for stage in ranking.stages
        ]
        stages = table(("Samples", "Models", "Dropped afterwards", "Time"), rows, text_columns=())
        parts += [tag("h3", "Stages"), scrolling(stages, "Stages of the ranking")]
    heads, spent = profile_cells(ranking)
    if spent:
        seconds = table(tuple(heads), [tuple(line) for line in spent])
        said = (tag("p", text) for text in profile_notes(ranking))
        parts += [tag("h3", "Where the time went"), scrolling(seconds, "Seconds of each step of each model"), *said]
    commits = [(row.identifier, str(row.card["commit"])) for row in ranking.rows if row.card.get("commit")]
    if commits:
        versions = table(("Model", "Commit"), commits, text_columns=(0, 1))
        parts.append(details("Model versions on the Hugging Face Hub", versions))
    parts += package_details(environment)
    if ranking.settings:
        parts.append(settings_details(ranking.settings))
    return Section(anchor="run", title="What was run", short="Run", body=join(parts))


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


def _facts(ranking: Ranking) -> list[tuple[str, object]]:
    task, environment = ranking.task, ranking.environment
    return known(
        [
            (
                "Data",
                f"{task.name}: {task.kind}, {task.modality}, {len(task.target_names)} {kind_of(task.kind).plural}",
            ),
            ("Samples", ", ".join(f"{name} {count:,}" for name, count in task.rows.items())),
            ("Data fingerprint", tag("code", task.fingerprint)),
            ("Metrics", ", ".join(ranking.metrics)),
            ("Seed", str(ranking.seed)),
            ("Duration", human_seconds(ranking.seconds) if ranking.seconds else ""),
            *machine_facts(environment),
            ("Networks run by", ", ".join(sorted({row.backend for row in ranking.rows if row.backend}))),
            ("Complete", "yes" if ranking.complete else "no, it was stopped or is still running"),
        ]
    )


def known(facts: list[tuple[str, object]]) -> list[tuple[str, object]]:
    """Those that have a value."""
    return [(name, value) for name, value in facts if value]


def machine_facts(environment: Mapping[str, Any]) -> list[tuple[str, object]]:
    """When and on what a run was made."""
    cores, threads = environment.get("cores"), environment.get("threads")
    hardware = [str(environment[key]) for key in ("processor",) if environment.get(key)]
    if cores:
        hardware.append(f"{cores} {'core' if cores == 1 else 'cores'}")
    if threads:
        hardware.append(f"{threads} {'thread' if threads == 1 else 'threads'}")
    accelerators = environment.get("accelerators")
    hardware += [str(name) for name in accelerators] if isinstance(accelerators, list | tuple) else []
    return [
        ("Started", str(environment.get("started") or "")),
        ("Device", str(environment.get("device") or "")),
        ("Hardware", ", ".join(hardware)),
        ("System", str(environment.get("system") or "")),
        ("Python", str(environment.get("python") or "")),
    ]


def package_details(environment: Mapping[str, Any]) -> list[Markup]:
    """The versions of packages, folded away."""
    packages = environment.get("packages")
    if not isinstance(packages, Mapping) or not packages:
        return []
    return [details("Package versions", table(("Package", "Version"), sorted(packages.items())))]


def settings_details(settings: Mapping[str, Any]) -> Markup:
    """All settings, folded away."""
    shown = [(name, _words(value)) for name, value in settings.items()]
    return details("Settings", table(("Setting", "Value"), shown, text_columns=(0, 1)))


def definitions(facts: list[tuple[str, object]]) -> Markup:
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts), class_="run-facts")


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
