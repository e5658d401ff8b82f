"""The page of one run: its state, what can be done with it, and its progress or result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubscout.report.markup import Markup, breakable, copyable, join, tag
from hubscout.report.page import answer_section
from hubscout.report.saved_run import Run
from hubscout.runs.texts import human_seconds
from hubscout.serve.pages.page_frame import address, alert, page, state_badge
from hubscout.serve.progress import Progress
from hubscout.serve.summary import Summary

KEPT = {
    "ranking": "every finished model",
    "race": "the best model so far",
    "tuning": "the last checkpoint",
}
"""What is there after a run was stopped."""


def run_page(
    summary: Summary,
    progress: Progress,
    *,
    opened: Run | None,
    problem: str,
    log: str,
    request: Mapping[str, Any] | None,
    csrf: str,
    command: str,
) -> str:
    """`problem` says why the run cannot be opened, where it cannot; `log` is the end of what the process printed."""
    parts: list[object] = [_actions(summary, opened, request, csrf), _facts(summary)]
    if problem and summary.state != "running":
        parts.append(alert(problem))
    if summary.state in {"failed", "interrupted"} and log:
        parts.append(tag("section", tag("h2", "Last output"), tag("pre", log, class_="log"), class_="close"))
    told = opened is not None and (opened.view is not None or opened.race is not None or bool(opened.tuning))
    if opened is not None and told and summary.state != "running":
        found = answer_section(opened)
        parts.append(Markup(str(found)) if found is not None else "")
    parts.append(_progress(summary, progress))
    if command:
        parts.append(tag("section", tag("h2", "The same in a terminal"), copyable(command), class_="close"))
    return page(summary.name, *parts, heading=breakable(summary.name), subtitle=summary.task)


def _progress(summary: Summary, progress: Progress) -> Markup:
    going = summary.state == "running"
    if not going and not progress.models and not progress.curves and progress.race is None:
        return join([])
    return tag(
        "section",
        tag("h2", "Progress" if going else "Result", id="live-title"),
        tag("p", progress.status, class_="lead", id="live-status"),
        tag("div", progress.markup(), id="live", data_stream=address("/live", summary.name) if going else None),
        aria_labelledby="live-title",
    )


def _actions(summary: Summary, opened: Run | None, request: Mapping[str, Any] | None, csrf: str) -> Markup:
    buttons: list[Markup] = [state_badge(summary)]
    if opened is not None:
        report = tag("a", "Open the report", href=address("/report", summary.name), class_="button first")
        buttons.append(report)
    if summary.stoppable:
        buttons.append(_button("Stop", "/stop", summary.name, csrf))
        buttons.append(_button("Kill", "/stop", summary.name, csrf, force="1"))
    elif summary.state in {"interrupted", "failed"} and request:
        buttons.append(_button("Resume", "/resume", summary.name, csrf))
    note = ""
    if summary.stoppable:
        note = f"Stop keeps {KEPT[summary.kind]}. Use Kill if the process does not respond."
    elif summary.state == "running":
        note = "This run was started in a terminal. Stop it there."
    return tag("div", *buttons, tag("span", note, class_="note") if note else "", class_="actions", id="actions")


def _button(words: str, prefix: str, name: str, csrf: str, **more: str) -> Markup:
    hidden = [tag("input", type="hidden", name=key, value=value) for key, value in {"csrf": csrf, **more}.items()]
    button = tag("button", words, type="submit", class_=f"button {words.lower().replace(' ', '-')}")
    return tag("form", *hidden, button, method="post", action=address(prefix, name))


def _facts(summary: Summary) -> Markup:
    facts: list[tuple[str, object]] = []
    if summary.started or summary.state != "running":
        facts.append(("Started, UTC" if summary.started else "Last written, UTC", summary.day))
    if summary.kind == "race":
        facts += [("Arms", str(summary.models))] if summary.models else []
        facts += [("Leads" if summary.state != "finished" else "Won", breakable(summary.best))] if summary.best else []
        facts += [(summary.metric, f"{summary.score:.4f}")] if summary.score is not None else []
    elif summary.state == "running":  # what changes is in the panel below
        facts += [("Model and methods", breakable(summary.best))] if summary.kind == "tuning" and summary.best else []
    elif summary.kind == "ranking":
        facts.append(("Models", f"{summary.models}" + (f", {summary.failed} failed" if summary.failed else "")))
        facts.append(("Metric", summary.metric or "–"))
    else:
        facts.append(("Runs", str(summary.models)))
        if summary.best:
            facts.append(("Model and methods", breakable(summary.best)))
        if summary.score is not None:
            facts.append((summary.metric, f"{summary.score:.4f}"))
    if summary.seconds is not None:
        facts.append(("Time", human_seconds(summary.seconds)))
    return (
        tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts), class_="facts small")
        if facts
        else join([])
    )
