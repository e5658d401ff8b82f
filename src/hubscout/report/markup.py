"""HTML and SVG as text in which nothing from a run can become markup."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from typing import Any

_VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})


class Markup(str):
    """Text that is HTML already. Everything else is escaped when it enters a tag."""

    __slots__ = ()


def text(value: object) -> Markup:
    """`value` as HTML: escaped, unless it is `Markup`.

    >>> text("<script>")
    '&lt;script&gt;'
    """
    return value if isinstance(value, Markup) else Markup(escape(_utf8(str(value))))


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
    caption: str = "",
    text_columns: Iterable[int] = (0,),
    class_: str | None = None,
) -> Markup:
    """A plain table: numbers to the right, except in `text_columns`; the first cell of a row is its heading."""
    left = frozenset(text_columns)

    def cell(name: str, index: int, value: object, **attributes: object) -> Markup:
        return tag(name, value, class_=None if index in left else "number", **attributes)

    head = tag("tr", *(cell("th", index, value, scope="col") for index, value in enumerate(heads)))
    body = [
        tag(
            "tr",
            *(
                cell("th", index, value, scope="row") if index == 0 else cell("td", index, value)
                for index, value in enumerate(row)
            ),
        )
        for row in rows
    ]
    return tag(
        "table", tag("caption", caption) if caption else "", tag("thead", head), tag("tbody", *body), class_=class_
    )


def asset(name: str) -> str:
    """The text of one of the page's own files."""
    return files("hubscout.report").joinpath("assets", name).read_text(encoding="utf-8")


def report_script() -> str:
    """The script of the report's page: what all pages share, then its own."""
    return asset("page.js") + asset("report.js")


def style_sheet() -> str:
    """The style of every page: colours and charts, then the rest."""
    return asset("charts.css") + asset("report.css")


def details(summary: object, content: Markup, *, open_: bool = False) -> Markup:
    """A part of the page that opens when it is asked for."""
    return tag("details", tag("summary", summary), tag("div", content, class_="scroll"), open=open_)


def scrolling(content: Markup, label: str) -> Markup:
    """A box that scrolls by itself, so that a wide table never makes the page scroll; reachable by keyboard."""
    return tag("div", content, class_="scroll", role="region", aria_label=label, tabindex=0)
