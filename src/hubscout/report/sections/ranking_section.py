"""The table of models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hubscout.report.charts.scale import Scale, linear, reach, significant
from hubscout.report.markup import Markup, Section, breakable, details, join, scrolling, table, tag
from hubscout.report.saved_run import GROUPS, Run, View
from hubscout.report.sections.cost_section import ERRORS_SHOWN, error_bar
from hubscout.runs.paired_comparison import failed_words
from hubscout.runs.row import Row
from hubscout.runs.texts import human_count, human_probability, human_seconds, latency_text, listing
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
        count, tied = len(view.rows), len(ranking.tied_with_best)
        samples = f"{max(row.n for row in view.rows):,} training {kind_of(ranking.task.kind).unit}"
        lead = f"{count} {'model' if count == 1 else 'models'} on {samples} of {ranking.task.name}."
        if ranking.failures:
            lead += f" {failed_words(ranking)}."
        if tied > 1 and ranking.explains_labels is not False:
            group = f"The first {tied}, above the line," if tied < len(ranking.compared) else "All of them"
            lead += f" {group} are statistically tied: P(better than the best) is 5% or more."
        parts += [_controls(view), scrolling(_table(view), "Ranking of the models")]
        if count > ROWS_SHOWN:  # the page's script folds the others away
            unfold = {"id": "unfold", "class_": "script-only", "data_shown": ROWS_SHOWN}
            parts.append(tag("button", f"Show all {count} models", type="button", **unfold))
        parts += [_explanation(view), _notes(view)]
    if ranking.failures:
        rows = [(failure.identifier, failure.error, failure.reason) for failure in ranking.failures]
        found = table(("Model", "Error", "Reason"), rows, text_columns=(0, 1, 2), class_="failures")
        title = f"{len(rows)} {'model' if len(rows) == 1 else 'models'} could not be ranked"
        parts += [tag("h3", title), scrolling(found, "Models that could not be ranked")]
    return Section(anchor="ranking", title="Ranking", lead=lead, body=join(parts))


def _controls(view: View) -> Markup:
    """The form that filters the table."""
    search = {"type": "search", "placeholder": "name or architecture", "autocomplete": "off"}
    fields = [tag("label", tag("span", "Find a model"), tag("input", id="filter-name", **search))]
    if any(row.params for row in view.rows):
        limit = tag("input", type="number", id="filter-params", min=0, step="any", inputmode="decimal")
        fields.append(tag("label", tag("span", "Max. parameters, in millions"), limit))
    if len(view.ranking.tied_with_best) > 1:
        box = tag("input", type="checkbox", id="filter-tied")
        fields.append(tag("label", box, " tied with the best only", class_="check"))
    return tag(
        "form",
        *fields,
        tag("output", f"{len(view.rows)} of {len(view.rows)} models", id="filter-count", aria_live="polite"),
        class_="controls",
        id="filters",
        role="search",
        aria_label="Filter the ranking",
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


def _table(view: View) -> Markup:
    columns = _columns(view)
    scale = None
    if any(row.standard_error is not None for row in view.rows):
        errors = [error_bar(row) for row in view.rows]
        scale = linear(reach([row.score for row in view.rows], errors), 6, BAR_WIDTH - 6, padding=0.02)
    heads = [_head("#"), _head("Model", class_="names"), _head(view.metric)]
    if scale is not None:
        heads.append(tag("th", f"{view.metric}, ± {ERRORS_SHOWN:g} standard errors", scope="col", class_="bar"))
    heads += [_head(column.title) for column in columns]
    body = [_row(view, row, index, columns, scale) for index, row in enumerate(view.rows)]
    return tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *body), id="models", class_="models")


def _head(name: str, class_: str = "number") -> Markup:
    button = tag("button", name, tag("i", aria_hidden="true"), type="button")
    return tag("th", button, scope="col", aria_sort="ascending" if name == "#" else "none", class_=class_)


def _row(view: View, row: Row, index: int, columns: Sequence[Column], scale: Scale | None) -> Markup:
    error = tag("small", f"± {row.standard_error:.4f}") if row.standard_error is not None else ""
    cells = [
        tag("td", str(row.rank), class_="number", data_value=row.rank),
        _model(view, row, index),
        tag("td", f"{row.score:.4f}", error, class_="number", data_value=repr(row.score)),
    ]
    if scale is not None:
        cells.append(tag("td", _bar(view, row, scale), class_="bar"))
    for column in columns:
        key = column.key(row)
        cells.append(tag("td", column.cell(row), class_="number", data_value=None if key is None else repr(key)))
    following = view.rows[index + 1] if index + 1 < len(view.rows) else None
    line = view.group(row) in ("best", "tied") and following is not None and not following.tied_with_best
    return tag(
        "tr",
        *cells,
        class_=f"{view.group(row)}{' line' if line else ''}",
        data_model=index,
        data_search=f"{row.identifier} {row.card.get('architecture') or ''}".lower(),
        data_params=row.params,
        data_tied="1" if row.tied_with_best else None,
    )


def _model(view: View, row: Row, index: int) -> Markup:
    group = view.group(row)
    pin = tag(
        "button",
        breakable(view.names[index]),
        type="button",
        class_="pin",
        aria_pressed="false",
        data_model=index,
        title=f"{row.identifier} (click to highlight it in all charts)",
    )
    parts = [pin]
    if group in ("best", "dropped"):
        parts.append(tag("span", group, class_=f"badge {group}"))
    if group == "tied":
        parts.append(tag("span", GROUPS["tied"], class_="unseen"))
    if row.dropped is not None:
        leader = row.dropped.leader
        parts.append(tag("small", row.dropped.reason.replace(leader, view.short.get(leader, leader))))
    return tag("th", *parts, scope="row", data_value=row.identifier)


def _bar(view: View, row: Row, scale: Scale) -> Markup:
    error, group = error_bar(row), view.group(row)
    low, high = scale(max(row.score - error, scale.low)), scale(min(row.score + error, scale.high))
    interval = tag("path", d=f"M{low:.1f} 11H{high:.1f}", class_="error")
    mark = tag("circle", cx=scale(row.score), cy=11, r=4, class_=f"mark {group}")
    return tag(
        "svg",
        tag("path", d=f"M{scale(view.rows[0].score):.1f} 0V22", class_="leader"),
        tag("g", interval, mark, class_=f"point {group}"),
        viewBox=f"0 0 {BAR_WIDTH:g} 22",
        width=BAR_WIDTH,
        height=22,
        aria_hidden="true",
    )


def _explanation(view: View) -> Markup:
    words = [
        "P(best) and the line come from paired comparisons: all models were scored on the same blocks of data, so a "
        "block that is hard for all of them counts against none. Two error bars can therefore overlap although the "
        "difference is significant. ",
    ]
    if view.metric == "logme":
        words.append(
            "LogME is the log evidence per sample (in nats) of a linear model on the frozen features; the gain counts "
            "over base rates: how frequent each class or label is, or the mean of a number. "
        )
    if (best := next((row for row in view.rows if row.expected), None)) is not None:
        found = best.expected[0]
        words.append(
            f"{found.heading} is what such a model gets on samples left out of its fit, with "
            f"a 95% interval; guessing gets {found.words(found.guess)}. Tuning the whole network usually gets more. "
        )
    if any(row.latency_busy for row in view.rows):
        words.append("A latency with ~ was measured while the machine had other work; it may be shorter.")
    return details("How to read this table", tag("p", *words, class_="note"))


def _notes(view: View) -> Markup:
    """What did not go as planned, by what happened: often the same for several models."""
    models: dict[str, list[str]] = {}
    for index, row in enumerate(view.rows):
        for note in row.notes:
            models.setdefault(note, []).append(view.names[index])
    if not models:
        return join([])
    items = [tag("li", note, " ", tag("span", listing(names), class_="note")) for note, names in models.items()]
    return details(f"Notes ({len(items)})", tag("ul", *items))
