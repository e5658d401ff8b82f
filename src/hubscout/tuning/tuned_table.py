"""A tuned model as a person reads it: in the terminal and in a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from hubscout.tuning.tuned import Tuned


def title(tuned: Tuned) -> str:
    """What was tuned on what, and how."""
    words = f"{tuned.model} tuned on {tuned.task_name} by {tuned.method}"
    return f"{words} with {', '.join(tuned.teachers)}" if tuned.teachers else words


def cells(tuned: Tuned) -> list[tuple[str, str, str, str]]:
    """Split, metric, value and interval; for a mixture also those of the merged network that is saved."""
    parts = [("", tuned.metrics), (", merged", tuned.merged_metrics or {})]
    return [
        (f"{split}{suffix}", name, f"{found.value:.4f}", f"{found.low:.4f} … {found.high:.4f}")
        for suffix, metrics in parts
        for split, values in metrics.items()
        for name, found in values.items()
    ]


HEADS = ("split", "metric", "value", "interval")


def as_table(tuned: Tuned) -> Table:
    """For a rich console. Names are text, never markup."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title(tuned)), title_justify="left", header_style="bold")
    for head in HEADS:
        table.add_column(head, justify="right" if head in {"value", "interval"} else "left")
    for line in cells(tuned):
        table.add_row(*(Text(cell) for cell in line))
    return table


def as_html(tuned: Tuned) -> str:
    """For a notebook. Every name is escaped."""
    head = "".join(f"<th>{head}</th>" for head in HEADS)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in cells(tuned))
    notes = "".join(f"<p>{escape(note)}</p>" for note in tuned.notes)
    caption = f"<caption>{escape(title(tuned))}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"
