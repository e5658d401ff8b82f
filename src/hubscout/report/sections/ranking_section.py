"""The table of models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hubscout.grouping import grouped
from hubscout.report.charts.chart import linear, reach, significant
from hubscout.report.markup import Markup, Section, fill, join, scrolling, table, tag
from hubscout.report.saved_run import GROUPS, Run, View
from hubscout.report.sections.score_sections import ERRORS_SHOWN, error_bar
from hubscout.runs.paired_comparison import failed_words
from hubscout.runs.row import Row
from hubscout.runs.texts import counted, human_count, human_probability, human_seconds, latency_text, listing
from hubscout.tasks.kinds import kind_of

BAR_WIDTH = 132.0
ROWS_SHOWN = 25
"""Rows of a table before it is unfolded."""


def ranking_section(run: Run) -> Section | None:
    """All models: sorted, filtered, with error bars; those that failed with their reasons."""
    ranking, view = run.ranking, run.view
    if ranking is None or not (ranking.rows or ranking.failures):
        return None
    lead, parts = "", []
    if view is not None:
        count, tied = len(view.rows), ranking.tied_with_best
        samples = f"{max(row.n for row in view.rows):,} training {kind_of(ranking.task.kind).unit}"
        lead = f"{counted(count, 'model')} on {samples} of {ranking.task.name}."
        if ranking.failures:
            lead += f" {failed_words(ranking)}."
        if len(tied) > 1 and ranking.explains_labels is not False:
            above = ranking.identifiers.index(tied[-1]) + 1
            group = f"The first {above}, above the line," if above < count else "All of them"
            if len(tied) < above:  # one between them can be told from the best: it does worse on nearly all blocks
                group = f"{len(tied)} of the first {above}, marked at the left,"
            lead += f" {group} are statistically tied: P(better than the best) is 5% or more."
        parts.append(_models(view))
    if ranking.failures:
        causes = [one.error if one.cause == "failed" else one.cause for one in ranking.failures]
        rows = [(one.identifier, cause, one.reason) for one, cause in zip(ranking.failures, causes, strict=True)]
        found = table(("Model", "Cause", "Reason"), rows, text_columns=(0, 1, 2), class_="failures")
        title = f"{counted(len(rows), 'model')} could not be ranked"
        parts += [tag("h3", title), scrolling(found, "Models that could not be ranked")]
    return Section(anchor="ranking", title="Ranking", lead=lead, body=join(parts))


def _models(view: View) -> Markup:
    """The table of models, the form that filters it, and what is said below."""
    scale = None
    if any(row.standard_error is not None for row in view.rows):
        errors = [error_bar(row) for row in view.rows]
        scale = linear(reach([row.score for row in view.rows], errors), 6, BAR_WIDTH - 6, padding=0.02)
    return fill(
        "ranking.html",
        view=view,
        columns=_columns(view),
        scale=scale,
        width=BAR_WIDTH,
        error_bar=error_bar,
        errors_shown=ERRORS_SHOWN,
        groups=GROUPS,
        rows_shown=ROWS_SHOWN,
        expected=next((row.expected[0] for row in view.rows if row.expected), None),
        # By what happened: often the same for several models.
        notes=grouped((note, view.short[row.identifier]) for row in view.rows for note in row.notes),
        listing=listing,
    )


@dataclass(frozen=True)
class Column:
    """A column of the table: `cell` gives what is shown of a model, `key` what it sorts by (None comes last)."""

    title: str
    cell: Callable[[Row], object]
    key: Callable[[Row], float | None]


def _columns(view: View) -> list[Column]:
    """The columns after rank, model and score, as far as this ranking knows them."""
    explained = view.ranking.explains_labels is not False
    columns = [
        Column(_expected_heading(view), _expected, lambda row: row.expected[0].value if row.expected else None),
        Column("Gain", lambda row: "–" if row.gain is None else f"{row.gain:+.3f}", lambda row: row.gain),
        Column("P(best)", _probability, lambda row: row.p_best if explained else None),
        Column("Params", lambda row: human_count(row.params), lambda row: row.params),
        Column("FLOPs", lambda row: human_count(row.flops), lambda row: row.flops),
        Column("Latency", latency_text, lambda row: row.latency_seconds),
        *(_metric_column(name) for name in view.ranking.metrics[1:]),
        Column("Samples/s", lambda row: significant(row.samples_per_second), lambda row: row.samples_per_second),
        Column("Time", lambda row: "cached" if row.from_cache else human_seconds(row.seconds), lambda row: row.seconds),
    ]
    columns = [column for column in columns if any(column.key(row) is not None for row in view.rows)]
    if len({row.n for row in view.rows}) > 1:
        columns.append(Column("Samples", lambda row: f"{row.n:,}", lambda row: row.n))
    return columns


def _expected_heading(view: View) -> str:
    return next((row.expected[0].heading for row in view.rows if row.expected), "")


def _expected(row: Row) -> Markup | str:
    """The metric of the task for samples left out, with its interval."""
    if not row.expected:
        return "–"
    value, interval = str(row.expected[0]).split(" ", 1)
    return join([value, tag("small", interval)])


def _probability(row: Row) -> Markup | str:
    if row.p_best is None:
        return "–"
    bar = tag("i", class_="share", style=f"--share:{row.p_best:.3f}", aria_hidden="true")
    return join([bar, human_probability(row.p_best)])


def _metric_column(name: str) -> Column:
    return Column(
        name, lambda row: f"{row.scores[name]:.4f}" if name in row.scores else "–", lambda row: row.scores.get(name)
    )
