"""The list of runs."""

from __future__ import annotations

from collections.abc import Sequence

from hubscout.report.markup import Markup, breakable, scrolling, tag
from hubscout.runs.texts import human_seconds
from hubscout.serve.pages.page_frame import address, page, state_badge
from hubscout.serve.summary import Summary


def listing_page(runs: Sequence[Summary], query: str, folder: str) -> str:
    """All runs, to search, open, and choose some of for a comparison."""
    search = tag(
        "form",
        tag(
            "label",
            tag("span", "Find a run"),
            tag(
                "input",
                type="search",
                name="q",
                value=query,
                id="find",
                placeholder="name, task, model, state",
                autocomplete="off",
            ),
        ),
        tag("button", "Find", type="submit", class_="button unscripted"),
        tag("output", count(len(runs)), id="count", aria_live="polite"),
        class_="controls",
        role="search",
        action="/",
        id="search",
    )
    heads = [
        tag("th", tag("span", "Compare", class_="unseen"), scope="col"),
        tag("th", "Run", scope="col", class_="names"),
        *(tag("th", words, scope="col") for words in ("State", "Task", "Best")),
        *(tag("th", words, scope="col", class_="number") for words in ("Score", "Models", "Time", "When, UTC")),
    ]
    table = tag("table", tag("thead", tag("tr", *heads)), rows(runs), class_="models runs", id="runs")
    choose = tag(
        "form",
        scrolling(table, "Runs"),
        tag(
            "p",
            tag("button", "Compare runs", type="submit", class_="button", id="compare"),
            tag("span", "Tick two runs or more.", class_="note", id="compare-hint"),
            class_="actions",
        ),
        action="/compare",
        id="choose",
    )
    empty = tag(
        "p",
        "No run yet. ",
        tag("a", "Start one", href="/start"),
        " or write one into this folder: ",
        tag("code", f"hubscout rank DATA -m MODELS --out {folder}/NAME"),
        class_="lead",
    )
    content = tag("section", search, choose if runs or query else empty, class_="close")
    return page("Runs", content, at="/", subtitle=folder)


def count(number: int) -> str:
    """How many runs there are, in words."""
    return "1 run" if number == 1 else f"{number} runs"


def rows(runs: Sequence[Summary]) -> Markup:
    """The body of the table; the page asks for it again while something is running."""
    going = any(run.state == "running" for run in runs)
    return tag("tbody", *map(_row, runs), id="rows", data_going="1" if going else None, data_count=count(len(runs)))


def _row(run: Summary) -> Markup:
    models = str(run.models) if not run.failed else f"{run.models} + {run.failed} failed"
    score = [f"{run.score:.4f} ", tag("small", run.metric)] if run.score is not None else ["–"]
    return tag(
        "tr",
        tag("td", tag("input", type="checkbox", name="run", value=run.name, aria_label=f"Compare {run.name}")),
        tag(
            "th",
            tag("a", breakable(run.name), href=address("/run", run.name)),
            tag("small", run.kind),
            tag("small", run.problem, class_="problem") if run.problem else "",
            scope="row",
        ),
        tag("td", state_badge(run)),
        tag("td", breakable(run.task)),
        tag("td", breakable(run.best)),
        tag("td", *score, class_="number"),
        tag("td", models, class_="number"),
        tag("td", human_seconds(run.seconds), class_="number"),
        tag("td", run.day, class_="number"),
        data_search=run.search,
    )
