"""A ranking as a person reads it: in the terminal and in a notebook."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hubscout.credentials import strip_credentials
from hubscout.ranking.footnotes import footnotes, title
from hubscout.runs.profiler import profile_renderables
from hubscout.runs.row import Row
from hubscout.runs.texts import (
    human_count,
    human_probability,
    human_seconds,
    latency_text,
    listing,
    short_names,
    shorten,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hubscout.runs.ranking import Ranking

EXPENDABLE = ("time", "samples/s", "FLOPs", "params", "judged on", "latency", "gain")
"""The columns that a narrow terminal does without, the first of these first; then further metrics from the last.

The latency is the cost on this machine; the gain says whether a score is good at all.
"""
SHORTEST_NAME = 16
"""A name is cut to no less: columns go before that."""


def _score(row: Row) -> str:
    return f"{row.score:.4f}" + (f" ± {row.standard_error:.4f}" if row.standard_error is not None else "")


def _best_layer(row: Row) -> str:
    """Its name, and its score unless that is the score of the row."""
    best = row.best_layer
    if best is None:
        return "–"
    name = best.name or "final"
    return name if best.name == row.layer else f"{name} {best.score:.4f}"


def _expected_heads(ranking: Ranking) -> list[str]:
    """The metric of the task that samples left out have, where it is known."""
    return [row.expected[0].title for row in ranking.rows if row.expected][:1]


def columns(ranking: Ranking) -> list[str]:
    """The headings that this ranking has something to say under."""
    rows = ranking.rows
    first, *others = ranking.metrics
    heads = ["#", "model", first]
    heads += _expected_heads(ranking)
    if any(row.gain is not None for row in rows):
        heads.append("gain")
    if any(row.p_best is not None for row in rows) and ranking.explains_labels is not False:
        heads.append("P(best)")
    heads += others
    if any(row.layers for row in rows):
        heads.append("best layer")
    heads += ["params", "FLOPs", "samples/s"]
    if any(row.latency_seconds is not None for row in rows):
        heads.append("latency")
    heads.append("time")
    if len({row.n for row in rows}) > 1:
        heads.append("judged on")
    return heads


def cells(row: Row, ranking: Ranking) -> dict[str, str]:
    """The texts of one row by the headings of `columns`; the model by its whole identifier."""
    texts = {
        "#": str(row.rank),
        "model": row.identifier,
        ranking.metrics[0]: _score(row),
        "gain": "–" if row.gain is None else f"{row.gain:+.3f}",
        "P(best)": human_probability(row.p_best),
        "best layer": _best_layer(row),
        "params": human_count(row.params),
        "FLOPs": human_count(row.flops),
        "samples/s": "–" if row.samples_per_second is None else f"{row.samples_per_second:.3g}",
        "latency": latency_text(row),
        "time": "cached" if row.from_cache else human_seconds(row.seconds),
        "judged on": f"{row.n:,}",
    }
    for head in _expected_heads(ranking):
        texts[head] = str(row.expected[0]) if row.expected else "–"
    for name in ranking.metrics[1:]:
        texts[name] = f"{row.scores[name]:.4f}" if name in row.scores else "–"
    return texts


@dataclass(frozen=True)
class Layout:
    """What of a ranking is shown at a width: headings, what the models are called, and the headings left out."""

    heads: tuple[str, ...]
    names: Mapping[str, str]
    left_out: tuple[str, ...] = ()

    def footnotes(self, ranking: Ranking) -> list[str]:
        """What the table had to leave out, and the best model's identifier where its name alone will not open it."""
        lines = []
        best = ranking.rows[0].identifier
        if self.names[best] != best and ranking.explains_labels is not False:
            lines.append(f"Best: {best}")
        if self.left_out:
            lines.append(f"Left out at this width: {listing(self.left_out)} (--json has them).")
        return lines


def lay_out(ranking: Ranking, width: int) -> Layout:
    """Fit a ranking into `width` without folding: shorter names first, then fewer columns, then cut names."""
    identifiers = ranking.identifiers
    whole = [strip_credentials(identifier) for identifier in identifiers]
    texts = [cells(row, ranking) for row in ranking.rows]
    heads = columns(ranking)
    widths = {head: max(cell_len(text) for text in (head, *(row[head] for row in texts))) for head in heads}

    def room(shown: Sequence[str]) -> int:
        """What the names may take: a column has a border and a space at either side, the table one border more."""
        return width - 1 - sum(widths[head] + 3 for head in shown if head != "model") - 3

    def longest(names: Sequence[str]) -> int:
        return max(cell_len(name) for name in ("model", *names))

    if longest(whole) <= room(heads):
        return Layout(tuple(heads), dict(zip(identifiers, whole, strict=True)))
    names = short_names(whole)
    expendable = [
        head
        for head in (
            *EXPENDABLE,
            *reversed(ranking.metrics[1:]),
            "best layer",
            "P(best)",
            *_expected_heads(ranking),
        )
        if head in heads
    ]
    shown = list(heads)
    while longest(names) > room(shown) and expendable:
        if longest(names) > 2 * SHORTEST_NAME and room(shown) >= 2 * SHORTEST_NAME:
            break
        shown.remove(expendable.pop(0))
    cut = [shorten(name, max(room(shown), SHORTEST_NAME)) for name in names]
    if len(set(cut)) == len(cut):
        names = cut
    left_out = tuple(head for head in heads if head not in shown)
    return Layout(tuple(shown), dict(zip(identifiers, names, strict=True)), left_out)


def renderables(ranking: Ranking, width: int) -> Iterator[RenderableType]:
    """The table and the footnotes for a rich console of this width. Names are text, never markup."""
    if not ranking.rows:
        yield Text(f"{title(ranking)}: no model could be ranked.")
        yield from (Text(footnote) for footnote in footnotes(ranking))
        return
    layout = lay_out(ranking, width)
    table = Table(title=Text(title(ranking)), title_justify="left", header_style="bold")
    for head in layout.heads:
        left = head in {"model", "best layer"}
        table.add_column(Text(head), justify="left" if left else "right", no_wrap=head != "model", overflow="fold")
    tied = [row for row in ranking.rows if row.tied_with_best and ranking.explains_labels is not False]
    last_tied = tied[-1] if tied else None
    for index, row in enumerate(ranking.rows):
        following = ranking.rows[index + 1] if index + 1 < len(ranking.rows) else None
        line = row is last_tied or (following is not None and bool(following.dropped) and not row.dropped)
        style = "bold" if row in tied else ("dim" if row.dropped else "")
        texts = cells(row, ranking) | {"model": layout.names[row.identifier]}
        table.add_row(*(Text(texts[head]) for head in layout.heads), style=style, end_section=line)
    yield table
    for footnote in (*layout.footnotes(ranking), *footnotes(ranking, layout.names, without=layout.left_out)):
        yield Text(footnote)
    yield from profile_renderables(ranking)


def as_text(ranking: Ranking, width: int = 160) -> str:
    """The table as plain text."""
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    for part in renderables(ranking, width):
        console.print(part)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]


def as_html(ranking: Ranking) -> str:
    """The table for a notebook: short names, the identifier where one points at them. Every name is escaped."""
    names = dict(zip(ranking.identifiers, short_names(ranking.identifiers), strict=True))
    heads = columns(ranking)
    body = []
    tied = [row for row in ranking.rows if row.tied_with_best]
    for row in ranking.rows:
        style = ' style="border-bottom: 2px solid currentColor"' if tied and row is tied[-1] else ""
        texts = cells(row, ranking) | {"model": names[row.identifier]}
        tips = {"model": f' title="{escape(row.identifier)}"'}
        body.append(
            f"<tr{style}>" + "".join(f"<td{tips.get(head, '')}>{escape(texts[head])}</td>" for head in heads) + "</tr>"
        )
    foot = "".join(f"<p>{escape(footnote)}</p>" for footnote in footnotes(ranking, names))
    return (
        f"<table><caption>{escape(title(ranking))}</caption><thead><tr>"
        f"{''.join(f'<th>{escape(text)}</th>' for text in heads)}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table>{foot}"
    )
