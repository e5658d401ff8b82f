"""The pages of the server, each a template in `assets`: log in, the list of runs, one run, the form that starts one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from urllib.parse import quote

from hubscout import __version__
from hubscout.report.markup import Markup, asset, breakable, copyable, fill, style_sheet
from hubscout.report.page import answer_section
from hubscout.report.saved_run import Run
from hubscout.runs.texts import counted, human_seconds, names_by_model
from hubscout.serve.progress import Progress
from hubscout.serve.starting import METHODS, TEACHERS, Request, Starter, is_pattern
from hubscout.serve.summary import Summary

HERE = "hubscout.serve"
KEPT = {
    "ranking": "every finished model",
    "race": "the best model so far",
    "tuning": "the last checkpoint",
}
"""What is there after a run was stopped."""


def assets() -> dict[str, tuple[str, str]]:
    """The files that pages load: name → (kind, content). The report's style comes first, so that both look alike."""
    return {
        "report.css": ("text/css", style_sheet()),
        "serve.css": ("text/css", asset("serve.css", HERE)),
        "page.js": ("text/javascript", asset("page.js")),
        "serve.js": ("text/javascript", asset("serve.js", HERE)),
    }


def page(template: str, title: str, *, at: str = "", subtitle: str = "", **values: object) -> str:
    """A whole page of a template; `at` is the address of the entry in the menu that is open."""
    frame = {"title": title, "at": at, "subtitle": subtitle, "version": __version__, "address": address}
    return f"{fill(template, HERE, **frame, **values)}\n"


def address(prefix: str, name: str) -> str:
    """The address of a run's page.

    >>> address("/run", "team/a b?c")
    '/run/team/a%20b%3Fc'
    """
    return f"{prefix}/{quote(name)}"


def listing_page(runs: Sequence[Summary], query: str, folder: str) -> str:
    """All runs, to search, open, and choose some of for a comparison."""
    command = copyable(f"hubscout rank flowers/ --out {shlex.quote(folder)}/flowers")
    return page("listing.html", "Runs", at="/", subtitle=folder, query=query, command=command, **_listed(runs))


def rows(runs: Sequence[Summary]) -> Markup:
    """The body of the table; the page asks for it again while something is running."""
    return fill("rows.html", HERE, address=address, **_listed(runs))


def _listed(runs: Sequence[Summary]) -> dict[str, object]:
    return {
        "runs": runs,
        "count": counted(len(runs), "run"),
        "going": any(run.state == "running" for run in runs),
        "human_seconds": human_seconds,
    }


def run_page(
    summary: Summary, progress: Progress, *, opened: Run | None, problem: str, log: str, csrf: str, command: str
) -> str:
    """`problem` says why the run cannot be opened, where it cannot; `log` is the end of what the process printed.

    `command` repeats a run that was started here; of others it is empty.
    """
    going = summary.state == "running"
    told = opened is not None and (opened.view is not None or opened.race is not None or bool(opened.tuning))
    return page(
        "run.html",
        summary.name,
        subtitle=summary.task,
        run=summary,
        going=going,
        opened=opened is not None,
        facts=_facts(summary),
        problem=problem,
        log=log,
        answer=answer_section(opened) if opened is not None and told and not going else None,
        progress=progress,
        command=command,
        csrf=csrf,
        kept=KEPT,
    )


def _facts(summary: Summary) -> list[tuple[str, object]]:
    going, tuning = summary.state == "running", summary.kind == "tuning"
    best, score = breakable(summary.best), summary.score_text
    facts: list[tuple[str, object]] = []
    if summary.started or not going:
        facts.append(("Started, UTC" if summary.started else "Last written, UTC", summary.day))
    if summary.kind == "race":
        facts.append(("Arms", str(summary.models or "")))
        facts += [("Won" if summary.state == "finished" else "Leads", best), (summary.metric, score)]
    elif going:  # what changes is in the panel below
        facts.append(("Model and methods", best if tuning else ""))
    elif tuning:
        facts += [("Runs", str(summary.models)), ("Model and methods", best), (summary.metric, score)]
    else:
        facts.append(("Models", ", ".join(filter(None, (f"{summary.models}", summary.unranked)))))
        facts.append(("Metric", summary.metric or "–"))
    facts.append(("Time", "" if summary.seconds is None else human_seconds(summary.seconds)))
    return [fact for fact in facts if fact[1]]


def start_page(starter: Starter, request: Request | None, *, csrf: str, problem: str = "") -> str:
    """The form that starts a ranking, a race or a tuning.

    `request` is what was filled in before, where something was wrong with it.
    """
    asked, offered, data = request or Request(name="", data="", models=()), starter.offered, starter.data.names()
    patterns = [model for model in offered if is_pattern(model)]
    choices = names_by_model(model for model in offered if model not in patterns)
    choices |= {pattern: f"all models matching {pattern}" for pattern in patterns}
    return page(
        "start.html",
        "Start a run",
        at="/start",
        asked=asked,
        data=data,
        names=[name for name in dict.fromkeys([*data, asked.data]) if name],
        data_folder=str(starter.data.folder.path),
        offered=choices,
        others="\n".join(model for model in asked.models if model not in offered),
        rankings=starter.rankings(),
        teachers=TEACHERS,
        methods=METHODS,
        csrf=csrf,
        problem=problem,
    )
