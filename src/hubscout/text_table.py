"""Results as tables of text: in a terminal, and in a notebook."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table


def text_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    right: Container[str] = (),
    title: str = "",
    notes: Sequence[str] = (),
) -> Table:
    """A table for a rich console, whose cells are text, never markup; columns in `right` are aligned there."""
    from rich.table import Table
    from rich.text import Text

    caption = Text(" ".join(notes)) if notes else None
    sides: dict[str, Any] = {"title_justify": "left", "caption_justify": "left"}
    table = Table(title=Text(title) if title else None, caption=caption, header_style="bold", **sides)
    for head in heads:
        table.add_column(Text(head), justify="right" if head in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return table


def html_table(heads: Iterable[str], rows: Iterable[Iterable[str]], *, title: str, notes: Iterable[str] = ()) -> str:
    """A table for a notebook. Everything in it is escaped.

    >>> html_table(["a"], [["<b>"]], title="t")
    '<table><caption>t</caption><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    foot = "".join(f"<p>{escape(note)}</p>" for note in notes)
    caption = f"<caption>{escape(title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{foot}"
