"""HTML and SVG as text in which nothing from a run can become markup, and the parts that pages are made of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

_VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})


class Markup(str):
    """Text that is HTML already. Everything else is escaped when it enters a tag or a template."""

    __slots__ = ()

    def __html__(self) -> Markup:
        return self


TAU = Markup("τ<sub>w</sub>")
"""The weighted rank correlation, as it is set."""


def text(value: object) -> Markup:
    """`value` as HTML: escaped, unless it is `Markup`, or knows how it is written as such.

    >>> text("<script>")
    '&lt;script&gt;'
    """
    if isinstance(value, Markup):
        return value
    return Markup(value.__html__() if hasattr(value, "__html__") else escape(_utf8(str(value))))


_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def _utf8(plain: str) -> str:
    """Text that HTML and XML can hold: a path may have control characters, or bytes that are no UTF-8."""
    return _UNWRITABLE.sub("?", plain)


def breakable(name: str) -> Markup:
    """A long name that may be broken after its separators.

    >>> breakable("vit_small.in1k")
    'vit_<wbr>small.<wbr>in1k'
    """
    parts = re.split(r"(?<=[_./:?&-])(?=\w)", name)
    return Markup("<wbr>".join(text(part) for part in parts))


def join(parts: Iterable[object], separator: str = "") -> Markup:
    """The parts one after another."""
    return Markup(separator.join(text(part) for part in parts))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """One element. An attribute that is None or False is left out, one that is True stands alone.

    Underscores in attribute names become hyphens and a last one falls away, so that Python's words can be used.

    >>> tag("a", "x < y", href="#more", class_="quiet", data_tip='"')
    '<a href="#more" class="quiet" data-tip="&quot;">x &lt; y</a>'
    """
    opening = name
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        opening += f" {key}" if value is True else f' {key}="{escape(_plain(value))}"'
    if name in _VOID:
        return Markup(f"<{opening}>")
    return Markup(f"<{opening}>{join(children)}</{name}>")


def _plain(value: object) -> str:
    return number(value) if isinstance(value, float) else _utf8(str(value))


def number(value: float) -> str:
    """A coordinate: a tenth of a pixel is enough.

    >>> number(12.34), number(12.0), number(-0.01)
    ('12.3', '12', '0')
    """
    short = f"{value:.1f}".removesuffix(".0")
    return "0" if short == "-0" else short


def json_script(identifier: str, data: Any) -> Markup:
    """A data block for the page's script. No string in it can end the block, whatever it holds.

    >>> json_script("data", "</script>")
    '<script type="application/json" id="data">"\\\\u003c/script\\\\u003e"</script>'
    """
    content = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    for character in "<>&":
        content = content.replace(character, f"\\u{ord(character):04x}")
    return Markup(f'<script type="application/json" id="{escape(identifier)}">{content}</script>')


def table(
    heads: Iterable[object],
    rows: Iterable[Iterable[object]],
    *,
    text_columns: Iterable[int] = (0,),
    class_: str | None = None,
) -> Markup:
    """A plain table: numbers to the right, except in `text_columns`; the first cell of a row is its heading."""
    return fill("table.html", left=frozenset(text_columns), heads=heads, rows=rows, look=class_)


def asset(name: str, package: str = "hubscout.report") -> str:
    """The text of one of the files that a package's pages are made of."""
    return files(package).joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _templates(package: str) -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    def load(name: str) -> str:
        # Line breaks are for those who read the template: between inline elements a page would show them as spaces.
        joined = re.sub(r"(?<=[>}])\s*\n\s*|\s*\n\s*(?=[<{])", "", asset(name, package))
        return re.sub(r"\s*\n\s*", " ", joined)

    made = Environment(loader=FunctionLoader(load), autoescape=True, finalize=text, undefined=StrictUndefined)
    helpers = (breakable, copyable, definitions, details, json_script, number, scrolling, table)
    made.globals |= {helper.__name__: helper for helper in helpers}
    return made


def fill(template: str, package: str = "hubscout.report", /, **values: Any) -> Markup:
    """A Jinja template of a package's `assets` with these values, escaped as everywhere."""
    return Markup(_templates(package).get_template(template).render(values))


def style_sheet() -> str:
    """The style of every page: colours and charts, then the rest."""
    return asset("charts.css") + asset("report.css")


def details(summary: object, content: Markup) -> Markup:
    """A part of the page that opens when it is asked for."""
    return tag("details", tag("summary", summary), tag("div", content, class_="scroll"))


def scrolling(content: Markup, label: str) -> Markup:
    """A box that scrolls by itself, so that a wide table never makes the page scroll; reachable by keyboard."""
    return tag("div", content, class_="scroll", role="region", aria_label=label, tabindex=0)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page with its heading; `anchor` is its address, `short` its name in the menu."""

    anchor: str
    title: str
    body: Markup
    short: str = ""
    lead: object = ""

    def __html__(self) -> Markup:
        return fill("section.html", part=self)

    __str__ = __html__


def switch(
    name: str, label: str, choices: list[tuple[str, str]], panels: list[Markup], *, listed: bool = False
) -> Markup:
    """Radio buttons of which each shows one of the panels. `choices` are (value, words); the first is shown.

    Without the page's script all panels are shown one after another.
    """
    return fill("panels.html", name=name, label=label, choices=choices, panels=panels, listed=listed)


def copyable(command: str, label: str = "") -> Markup:
    """A command with a button that copies it, below its label where it has one."""
    return fill("command.html", command=command, label=label)


def definitions(facts: Iterable[tuple[object, ...]], class_: str = "facts") -> Markup:
    """Names and values side by side; a third part of a fact is a note beside its value."""
    entries = [
        tag("div", tag("dt", name), tag("dd", value, *(tag("small", n) for n in note))) for name, value, *note in facts
    ]
    return tag("dl", *entries, class_=class_)
