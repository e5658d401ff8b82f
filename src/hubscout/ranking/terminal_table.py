"""A ranking as a person reads it, in the terminal and in a notebook: the table, and what is said around it."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hubscout.credentials import strip_credentials
from hubscout.features.options import RUNTIMES
from hubscout.grouping import grouped
from hubscout.runs.paired_comparison import by_cause, failed_words, nothing_explained
from hubscout.runs.profiler import profile_renderables
from hubscout.runs.row import Row
from hubscout.runs.texts import (
    human_count,
    human_probability,
    human_seconds,
    latency_text,
    listing,
    names_by_model,
    short_names,
    shorten,
)
from hubscout.tasks.kinds import kind_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hubscout.runs.ranking import Ranking


MOST_NAMES = 8
"""In one footnote; a hub of hundreds would fill the screen with what went as expected."""


def title(ranking: Ranking) -> str:
    """What was ranked on what."""
    task = ranking.task
    n = max((row.n for row in ranking.rows), default=ranking.task.rows.get("train", 0))
    kind = kind_of(task.kind)
    return f"{task.name}: {task.kind}, {kind.count_targets(len(task.target_names))}, {n:,} training {kind.unit}"


def footnotes(ranking: Ranking, names: Mapping[str, str] | None = None, *, without: Collection[str] = ()) -> list[str]:
    """What must be said below the table. `names` are what it calls the models, `without` the columns it lacks."""

    def name(identifier: str) -> str:
        return (names or {}).get(identifier) or strip_credentials(identifier)

    lines = []
    if ranking.explains_labels is False:
        lines.append(nothing_explained(ranking.rows))
    lines += _expected(ranking)
    tied = ranking.tied_with_best
    if len(tied) > 1 and ranking.explains_labels is not False:
        above = ranking.identifiers[: ranking.identifiers.index(tied[-1]) + 1]
        told_apart = [name(identifier) for identifier in above if identifier not in tied]
        # No line is drawn below the last row.
        which = "All models" if len(above) == len(ranking.rows) else "The models above the line"
        but = f", except {listing(told_apart, MOST_NAMES)}" if told_apart else ""
        lines.append(f"{which} are statistically tied with the best{but}: P(better than the best) ≥ 5%.")
    lines += [f"Dropped: {text}" for text in _dropped(ranking, name)]
    if any(row.latency_busy for row in ranking.rows) and "latency" not in without:
        lines.append("Latency with ~ was measured while the machine had other work; it may be shorter.")
    for runtime, title in RUNTIMES.items():
        if accelerated := [name(row.identifier) for row in ranking.rows if row.backend == runtime]:
            lines.append(f"Run by {title}: {listing(accelerated, MOST_NAMES)}.")
    if ranking.failures:
        lines.append(f"{failed_words(ranking)}.")
    lines += [
        f"{what.capitalize()}: {listing(who, None if what == 'failed' else MOST_NAMES)}: {reason}"
        for what, failures in by_cause(ranking.failures).items()
        for reason, who in grouped((failure.reason, name(failure.identifier)) for failure in failures).items()
    ]
    lines += [
        f"Note: {listing(who, MOST_NAMES)}: {note}"
        for note, who in grouped((note, name(row.identifier)) for row in ranking.rows for note in row.notes).items()
    ]
    if not ranking.complete:
        lines.append("Interrupted: this ranking is not complete.")
    return lines


def _expected(ranking: Ranking) -> list[str]:
    """What the metric of the task beside the score is, and what guessing gets."""
    best = next((row for row in ranking.rows if row.expected), None)
    if best is None:
        return []
    main, *others = best.expected
    where = " of the best layer (tuning starts from the last one)" if any(row.layer for row in ranking.rows) else ""
    text = (
        f"{main.title}: of a linear model on the frozen features{where}, on samples left out of its fit, with a 95% "
        f"interval. Guessing gets {main.words(main.guess)}."
    )
    for other in others:
        text += f" {other.heading}: {other} for the best, {other.words(other.guess)} by guessing."
    return [text]


def _dropped(ranking: Ranking, name: Callable[[str], str]) -> list[str]:
    """A line for each subset and leader, with the probabilities."""
    found = grouped(
        ((row.dropped.n, row.dropped.leader), (name(row.identifier), row.dropped.chance))
        for row in ranking.rows
        if row.dropped is not None
    )
    lines = []
    for (n, leader), who in found.items():
        each = listing([f"{short} {chance}" for short, chance in who], MOST_NAMES)
        lines.append(f"on {n:,} samples P(better than {name(leader)}) was too low: {each}.")
    return lines


EXPENDABLE = ("time", "samples/s", "FLOPs", "params", "judged on", "latency", "gain")
"""The columns that a narrow terminal does without, the first of these first; then further metrics from the last.

The latency is the cost on this machine; the gain says whether a score is good at all.
"""
SHORTEST_NAME = 16
"""A name is cut to no less: columns go before that."""


def _best_layer(row: Row) -> str:
    """Its name, and its score unless that is the score of the row."""
    best = row.best_layer
    if best is None:
        return "–"
    name = best.name or "final"
    return name if best.name == row.layer else f"{name} {best.score:.4f}"


def _score(row: Row) -> str:
    return f"{row.score:.4f}" + (f" ± {row.standard_error:.4f}" if row.standard_error is not None else "")


def _expected_head(ranking: Ranking) -> str:
    """The metric of the task that samples left out have; empty where it is not known."""
    return next((row.expected[0].title for row in ranking.rows if row.expected), "")


def columns(ranking: Ranking) -> dict[str, Callable[[Row], str]]:
    """The headings that this ranking has something to say under, and what it says of a row."""
    rows, (first, *others), expected = ranking.rows, ranking.metrics, _expected_head(ranking)
    sure = len(rows) > 1 and ranking.explains_labels is not False and any(row.p_best is not None for row in rows)

    def score_of(name: str) -> Callable[[Row], str]:
        return lambda row: f"{row.scores[name]:.4f}" if name in row.scores else "–"

    known: list[tuple[str, Callable[[Row], str], bool]] = [
        ("#", lambda row: str(row.rank), True),
        ("model", lambda row: row.identifier, True),
        (first, _score, True),
        (expected, lambda row: str(row.expected[0]) if row.expected else "–", bool(expected)),
        ("gain", lambda row: "–" if row.gain is None else f"{row.gain:+.3f}", any(r.gain is not None for r in rows)),
        ("P(best)", lambda row: human_probability(row.p_best), sure),
        *((name, score_of(name), True) for name in others),
        ("best layer", _best_layer, any(row.layers for row in rows)),
        ("params", lambda row: human_count(row.params), True),
        ("FLOPs", lambda row: human_count(row.flops), True),
        ("samples/s", lambda row: human_count(row.samples_per_second), True),
        ("latency", latency_text, any(row.latency_seconds is not None for row in rows)),
        ("time", lambda row: "cached" if row.from_cache else human_seconds(row.seconds), True),
        ("judged on", lambda row: f"{row.n:,}", len({row.n for row in rows}) > 1),
    ]
    return {head: cell for head, cell, there in known if there}


@dataclass(frozen=True)
class Layout:
    """What of a ranking is shown at a width: headings, what the models are called, and the headings left out."""

    heads: tuple[str, ...]
    names: Mapping[str, str]
    left_out: tuple[str, ...] = ()


def lay_out(ranking: Ranking, width: int) -> Layout:
    """Fit a ranking into `width` without folding: shorter names first, then fewer columns, then cut names."""
    identifiers = ranking.identifiers
    whole = [strip_credentials(identifier) for identifier in identifiers]
    heads = columns(ranking)
    widths = {head: max(map(cell_len, (head, *map(cell, ranking.rows)))) for head, cell in heads.items()}

    def room(shown: Iterable[str]) -> int:
        """What the names may take: a column has a border and a space at either side, the table one border more."""
        return width - 1 - sum(widths[head] + 3 for head in shown if head != "model") - 3

    def longest(names: Sequence[str]) -> int:
        return max(cell_len(name) for name in ("model", *names))

    if longest(whole) <= room(heads):
        return Layout(tuple(heads), dict(zip(identifiers, whole, strict=True)))
    failed = [failure.identifier for failure in ranking.failures]
    names = short_names([*whole, *map(strip_credentials, failed)])
    names, below = names[: len(whole)], dict(zip(failed, names[len(whole) :], strict=True))
    last = ("best layer", "P(best)", _expected_head(ranking))
    expendable = [head for head in (*EXPENDABLE, *reversed(ranking.metrics[1:]), *last) if head in heads]
    shown = list(heads)
    while longest(names) > room(shown) and expendable:
        if longest(names) > 2 * SHORTEST_NAME and room(shown) >= 2 * SHORTEST_NAME:
            break
        shown.remove(expendable.pop(0))
    cut = [shorten(name, max(room(shown), SHORTEST_NAME)) for name in names]
    if len(set(cut)) == len(cut):
        names = cut
    left_out = tuple(head for head in heads if head not in shown)
    return Layout(tuple(shown), {**below, **dict(zip(identifiers, names, strict=True))}, left_out)


def renderables(ranking: Ranking, width: int) -> Iterator[RenderableType]:
    """The table and the footnotes for a rich console of this width. Names are text, never markup."""
    if not ranking.rows:
        yield Text(f"{title(ranking)}: no model could be ranked.")
        yield from map(Text, footnotes(ranking))
        return
    layout, cells = lay_out(ranking, width), columns(ranking)
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
        texts = (cells[head](row) if head != "model" else layout.names[row.identifier] for head in layout.heads)
        table.add_row(*map(Text, texts), style=style, end_section=line)
    yield table
    best = ranking.best.identifier
    if layout.names[best] != best and ranking.explains_labels is not False:
        yield Text(f"Best: {best}")  # whose short name alone will not open it
    if layout.left_out:
        yield Text(f"Left out at this width: {listing(layout.left_out)} (--json has them).")
    yield from map(Text, footnotes(ranking, layout.names, without=layout.left_out))
    yield from profile_renderables(ranking)


def as_text(ranking: Ranking, width: int = 160) -> str:
    """The table as plain text."""
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    for part in renderables(ranking, width):
        console.print(part)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]


def as_html(ranking: Ranking) -> str:
    """The table for a notebook: short names, the identifier where one points at them. Every name is escaped."""
    every = [*ranking.identifiers, *(failure.identifier for failure in ranking.failures)]
    names, cells = names_by_model(every), columns(ranking)
    body = []
    tied = [row for row in ranking.rows if row.tied_with_best]
    for row in ranking.rows:
        style = ' style="border-bottom: 2px solid currentColor"' if tied and row is tied[-1] else ""
        texts = {head: f"<td>{escape(cell(row))}</td>" for head, cell in cells.items()}
        texts["model"] = f'<td title="{escape(row.identifier)}">{escape(names[row.identifier])}</td>'
        body.append(f"<tr{style}>{''.join(texts.values())}</tr>")
    foot = "".join(f"<p>{escape(footnote)}</p>" for footnote in footnotes(ranking, names))
    return (
        f"<table><caption>{escape(title(ranking))}</caption><thead><tr>"
        f"{''.join(f'<th>{escape(text)}</th>' for text in cells)}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table>{foot}"
    )
