"""What every page has: head, menu, theme; and the words for states."""

from __future__ import annotations

from importlib.resources import files
from urllib.parse import quote

from hubscout import __version__
from hubscout.report.markup import Markup, asset, style_sheet, tag
from hubscout.serve.summary import Summary

STATES = {
    "running": "running",
    "finished": "finished",
    "interrupted": "interrupted",
    "failed": "failed",
}


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
    return tag("span", STATES[summary.state], class_=f"state {summary.state}")


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
