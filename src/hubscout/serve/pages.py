"""The pages of the server: their frame, the list of runs, and the page of one run."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from urllib.parse import quote

from hubscout import __version__
from hubscout.report.markup import Markup, asset, breakable, copyable, definitions, join, scrolling, style_sheet, tag
from hubscout.report.page import answer_section
from hubscout.report.saved_run import Run
from hubscout.runs.texts import human_seconds
from hubscout.serve.progress import Progress
from hubscout.serve.summary import Summary

KEPT = {
    "ranking": "every finished model",
    "race": "the best model so far",
    "tuning": "the last checkpoint",
}
"""What is there after a run was stopped."""


def assets() -> dict[str, tuple[str, str]]:
    """The files that pages load: name → (kind, content). The report's style comes first, so that both look alike."""
    here = files("hubscout.serve").joinpath("assets")
    return {
        "report.css": ("text/css", style_sheet()),
        "serve.css": ("text/css", here.joinpath("serve.css").read_text(encoding="utf-8")),
        "page.js": ("text/javascript", asset("page.js")),
        "serve.js": ("text/javascript", here.joinpath("serve.js").read_text(encoding="utf-8")),
    }


def page(title: str, *content: object, at: str = "", heading: object = None, subtitle: object = "") -> str:
    """A whole page; `at` is the address of the entry in the menu that is open."""
    links = [("/", "Runs"), ("/start", "Start a run")]
    menu = [tag("a", words, href=link, aria_current="page" if link == at else None) for link, words in links]
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · hubscout"),
        tag("link", rel="icon", href="data:,"),
        tag("link", rel="stylesheet", href="/assets/report.css"),
        tag("link", rel="stylesheet", href="/assets/serve.css"),
        tag("script", src="/assets/page.js"),
        tag("script", src="/assets/serve.js"),
    ]
    top = tag(
        "div",
        tag("p", tag("a", "hubscout", href="/"), class_="brand"),
        tag("nav", *menu, aria_label="Pages", class_="menu"),
        tag("button", "Theme", type="button", id="theme", class_="script-only"),
        class_="top",
    )
    body = [
        tag("a", "Skip to the content", href="#content", class_="skip"),
        tag(
            "header",
            top,
            tag("h1", title if heading is None else heading),
            tag("p", subtitle, class_="subtitle") if subtitle else "",
        ),
        tag("main", *content, id="content", tabindex=-1),
        tag("p", role="status", aria_live="polite", class_="unseen", id="said"),
        tag("div", id="tip", role="tooltip", hidden=True),
        tag("footer", f"hubscout {__version__} · everything is read from the run folders; nothing else is stored."),
    ]
    return f"<!doctype html>\n{tag('html', tag('head', *head), tag('body', *body), lang='en')}\n"


def address(prefix: str, name: str) -> str:
    """The address of a run's page.

    >>> address("/run", "team/a b?c")
    '/run/team/a%20b%3Fc'
    """
    return f"{prefix}/{quote(name)}"


def state_badge(summary: Summary) -> Markup:
    """The state of a run as a coloured word."""
    return tag("span", summary.state, class_=f"state {summary.state}")


def alert(message: object) -> Markup:
    """What went wrong."""
    return tag("p", message, class_="caveat", role="alert")


def message_page(title: str, message: str) -> str:
    """A page that only says something."""
    return page(title, tag("section", tag("p", message, class_="lead"), tag("p", tag("a", "All runs", href="/"))))


def login_page(wrong: bool = False) -> str:
    """Asks for the token."""
    form = tag(
        "form",
        tag(
            "label",
            tag("span", "Token"),
            tag("input", type="password", name="token", required=True, autocomplete="current-password", autofocus=True),
        ),
        tag("button", "Open", type="submit", class_="button first"),
        method="post",
        action="/login",
        class_="controls",
    )
    return page(
        "Token",
        alert("Wrong token.") if wrong else "",
        tag("section", tag("p", "The token was printed when the server started.", class_="lead"), form),
    )


def listing_page(runs: Sequence[Summary], query: str, folder: str) -> str:
    """All runs, to search, open, and choose some of for a comparison."""
    hint = {"placeholder": "name, task, model, state", "autocomplete": "off"}
    search = tag(
        "form",
        tag("label", tag("span", "Find a run"), tag("input", type="search", name="q", value=query, id="find", **hint)),
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
    compare = [
        tag("button", "Compare runs", type="submit", class_="button", id="compare"),
        tag("span", "Tick two runs or more.", class_="note", id="compare-hint"),
    ]
    choose = tag("form", scrolling(table, "Runs"), tag("p", *compare, class_="actions"), action="/compare", id="choose")
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
    name = [
        tag("a", breakable(run.name), href=address("/run", run.name)),
        tag("small", run.kind),
        tag("small", run.problem, class_="problem") if run.problem else "",
    ]
    score = [f"{run.score:.4f} ", tag("small", run.metric)] if run.score is not None else ["–"]
    models = str(run.models) if not run.failed else f"{run.models} + {run.failed} failed"
    return tag(
        "tr",
        tag("td", tag("input", type="checkbox", name="run", value=run.name, aria_label=f"Compare {run.name}")),
        tag("th", *name, scope="row"),
        tag("td", state_badge(run)),
        tag("td", breakable(run.task)),
        tag("td", breakable(run.best)),
        tag("td", *score, class_="number"),
        *(tag("td", words, class_="number") for words in (models, human_seconds(run.seconds), run.day)),
        data_search=run.search,
    )


def run_page(
    summary: Summary, progress: Progress, *, opened: Run | None, problem: str, log: str, csrf: str, command: str
) -> str:
    """`problem` says why the run cannot be opened, where it cannot; `log` is the end of what the process printed.

    `command` repeats a run that was started here; of others it is empty.
    """
    going = summary.state == "running"
    parts: list[object] = [_actions(summary, opened is not None, bool(command), csrf), _facts(summary)]
    if problem and not going:
        parts.append(alert(problem))
    if summary.state in {"failed", "interrupted"} and log:
        parts.append(tag("section", tag("h2", "Last output"), tag("pre", log, class_="log"), class_="close"))
    if opened is not None and not going and (opened.view is not None or opened.race is not None or opened.tuning):
        parts.append(Markup(str(answer_section(opened))))
    if going or progress.models or progress.curves or progress.race is not None:
        stream = address("/live", summary.name) if going else None
        parts.append(
            tag(
                "section",
                tag("h2", "Progress" if going else "Result", id="live-title"),
                tag("p", progress.status, class_="lead", id="live-status"),
                tag("div", progress.markup(), id="live", data_stream=stream),
                aria_labelledby="live-title",
            )
        )
    if command:
        parts.append(tag("section", tag("h2", "The same in a terminal"), copyable(command), class_="close"))
    return page(summary.name, *parts, heading=breakable(summary.name), subtitle=summary.task)


def _actions(summary: Summary, opened: bool, started_here: bool, csrf: str) -> Markup:
    parts: list[Markup] = [state_badge(summary)]
    note = ""
    if opened:
        parts.append(tag("a", "Open the report", href=address("/report", summary.name), class_="button first"))
    if summary.stoppable:
        parts.append(_button("Stop", "/stop", summary.name, csrf))
        parts.append(_button("Kill", "/stop", summary.name, csrf, force="1"))
        note = f"Stop keeps {KEPT[summary.kind]}. Use Kill if the process does not respond."
    elif summary.state == "running":
        note = "This run was started in a terminal. Stop it there."
    elif summary.state in {"interrupted", "failed"} and started_here:
        parts.append(_button("Resume", "/resume", summary.name, csrf))
    return tag("div", *parts, tag("span", note, class_="note") if note else "", class_="actions", id="actions")


def _button(words: str, prefix: str, name: str, csrf: str, **more: str) -> Markup:
    hidden = [tag("input", type="hidden", name=key, value=value) for key, value in {"csrf": csrf, **more}.items()]
    button = tag("button", words, type="submit", class_=f"button {words.lower()}")
    return tag("form", *hidden, button, method="post", action=address(prefix, name))


def _facts(summary: Summary) -> Markup:
    going, tuning = summary.state == "running", summary.kind == "tuning"
    best, score = breakable(summary.best), "" if summary.score is None else f"{summary.score:.4f}"
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
        facts.append(("Models", f"{summary.models}" + (f", {summary.failed} failed" if summary.failed else "")))
        facts.append(("Metric", summary.metric or "–"))
    facts.append(("Time", "" if summary.seconds is None else human_seconds(summary.seconds)))
    known = [fact for fact in facts if fact[1]]
    return definitions(known, "facts small") if known else join([])
