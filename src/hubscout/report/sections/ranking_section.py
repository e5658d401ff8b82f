"""The table of models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hubscout.report.charts.scale import Scale, linear, reach, significant
from hubscout.report.markup import Markup, Section, breakable, details, join, scrolling, table, tag
from hubscout.report.saved_run import GROUPS, Run, View
from hubscout.report.sections.cost_section import ERRORS_SHOWN, error_bar
from hubscout.runs.paired_comparison import failed_words
from hubscout.runs.row import Expected, Row
from hubscout.runs.texts import human_count, human_probability, human_seconds, latency_text, listing
from hubscout.tasks.kinds import kind_of

BAR_WIDTH = 132.0
ROWS_SHOWN = 25
"""Rows of a table before it is unfolded."""


def ranking_section(run: Run) -> Section | None:
    """All models: sorted, filtered, with error bars; those that failed with their reasons."""
    if run.ranking is None or not (run.ranking.rows or run.ranking.failures):
        return None
    view = run.view
    parts: list[Markup] = []
    if view is not None:
        parts += [_controls(view), scrolling(_table(view), "Ranking of the models"), _unfold(len(view.rows))]
        parts += [_explanation(view), _notes(view)]
    if run.ranking.failures:
        parts.append(_failures(run))
    count = len(run.ranking.rows)
    tied = len(run.ranking.tied_with_best)
    n = max((row.n for row in run.ranking.rows), default=0)
    unit = kind_of(run.ranking.task.kind).unit
    lead = f"{count} {'model' if count == 1 else 'models'} on {n:,} training {unit} of {run.ranking.task.name}."
    if not count:
        lead = ""
    if run.ranking.failures and count:
        lead += f" {failed_words(run.ranking)}."
    if tied > 1 and run.ranking.explains_labels is not False:
        group = f"The first {tied}, above the line," if tied < len(run.ranking.compared) else "All of them"
        lead += f" {group} are statistically tied: P(better than the best) is 5% or more."
    return Section(anchor="ranking", title="Ranking", lead=lead, body=join(parts))


def _unfold(count: int) -> Markup:
    """The button that shows the rows of a long table that the page's script folds away."""
    if count <= ROWS_SHOWN:
        return join([])
    words = f"Show all {count} models"
    return tag("button", words, type="button", id="unfold", class_="script-only", data_shown=ROWS_SHOWN)


def _controls(view: View) -> Markup:
    fields = [
        tag(
            "label",
            tag("span", "Find a model"),
            tag("input", type="search", id="filter-name", placeholder="name or architecture", autocomplete="off"),
        )
    ]
    if any(row.params for row in view.rows):
        fields.append(
            tag(
                "label",
                tag("span", "Max. parameters, in millions"),
                tag("input", type="number", id="filter-params", min=0, step="any", inputmode="decimal"),
            )
        )
    if len(view.ranking.tied_with_best) > 1:
        fields.append(
            tag("label", tag("input", type="checkbox", id="filter-tied"), " tied with the best only", class_="check")
        )
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

    def known(self, rows: Sequence[Row]) -> bool:
        """Whether any model has something to say under it."""
        return any(self.key(row) is not None for row in rows)


def _columns(view: View) -> list[Column]:
    """The columns after rank, model and score, as far as this ranking knows them."""
    gain = Column("Gain", lambda row: "–" if row.gain is None else f"{row.gain:+.3f}", lambda row: row.gain)
    explained = view.ranking.explains_labels is not False
    best = Column("P(best)", lambda row: _probability(row.p_best), lambda row: row.p_best if explained else None)
    prices = [
        Column("Params", lambda row: human_count(row.params), lambda row: row.params),
        Column("FLOPs", lambda row: human_count(row.flops), lambda row: row.flops),
        Column("Latency", latency_text, lambda row: row.latency_seconds),
    ]
    expected = [_expected_column(view)] if any(row.expected for row in view.rows) else []
    metrics = [_metric_column(name) for name in view.ranking.metrics[1:]]
    speeds = [
        Column("Samples/s", lambda row: significant(row.samples_per_second), lambda row: row.samples_per_second),
        Column("Time", lambda row: "cached" if row.from_cache else human_seconds(row.seconds), lambda row: row.seconds),
    ]
    columns = [column for column in (*expected, gain, best, *prices, *metrics, *speeds) if column.known(view.rows)]
    if len({row.n for row in view.rows}) > 1:
        columns.append(Column("Samples", lambda row: f"{row.n:,}", lambda row: row.n))
    return columns


def _expected_column(view: View) -> Column:
    """The metric of the task for samples left out, with its interval."""
    return Column(
        next(row.expected[0].heading for row in view.rows if row.expected),
        lambda row: _with_interval(row.expected[0]) if row.expected else "–",
        lambda row: row.expected[0].value if row.expected else None,
    )


def _with_interval(expected: Expected) -> Markup:
    value, interval = str(expected).split(" ", 1)
    return join([value, tag("small", interval)])


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
    cells = [
        tag("td", str(row.rank), class_="number", data_value=row.rank),
        _model(view, row, index),
        tag("td", _score(row), class_="number", data_value=repr(row.score)),
    ]
    if scale is not None:
        cells.append(tag("td", _bar(view, row, scale), class_="bar"))
    for column in columns:
        key = column.key(row)
        cells.append(tag("td", column.cell(row), class_="number", data_value=None if key is None else repr(key)))
    following = view.rows[index + 1] if index + 1 < len(view.rows) else None
    line = view.group(row) in ("best", "tied") and following is not None and not following.tied_with_best
    architecture = row.card.get("architecture") or ""
    return tag(
        "tr",
        *cells,
        class_=f"{view.group(row)}{' line' if line else ''}",
        data_model=index,
        data_search=f"{row.identifier} {architecture}".lower(),
        data_params=row.params,
        data_tied="1" if row.tied_with_best else None,
    )


def _score(row: Row) -> Markup:
    error = tag("small", f"± {row.standard_error:.4f}") if row.standard_error is not None else ""
    return join([f"{row.score:.4f}", error])


def _probability(value: float | None) -> Markup:
    if value is None:
        return join(["–"])
    return join([tag("i", class_="share", style=f"--share:{value:.3f}", aria_hidden="true"), human_probability(value)])


def _model(view: View, row: Row, index: int) -> Markup:
    footnotes: list[Markup] = []
    if row.dropped is not None:
        leader = row.dropped.leader
        footnotes.append(tag("small", row.dropped.reason.replace(leader, view.short.get(leader, leader))))
    pin = tag(
        "button",
        breakable(view.names[index]),
        type="button",
        class_="pin",
        aria_pressed="false",
        data_model=index,
        title=f"{row.identifier} (click to highlight it in all charts)",
    )
    badge = {"best": "best", "dropped": "dropped"}.get(view.group(row))
    return tag(
        "th",
        pin,
        tag("span", badge, class_=f"badge {badge}") if badge else "",
        tag("span", GROUPS["tied"], class_="unseen") if view.group(row) == "tied" else "",
        *footnotes,
        scope="row",
        data_value=row.identifier,
    )


def _bar(view: View, row: Row, scale: Scale) -> Markup:
    middle = scale(row.score)
    error = error_bar(row)
    low, high = scale(max(row.score - error, scale.low)), scale(min(row.score + error, scale.high))
    best = scale(view.rows[0].score)
    return tag(
        "svg",
        tag("path", d=f"M{best:.1f} 0V22", class_="leader"),
        tag(
            "g",
            tag("path", d=f"M{low:.1f} 11H{high:.1f}", class_="error"),
            tag("circle", cx=middle, cy=11, r=4, class_=f"mark {view.group(row)}"),
            class_=f"point {view.group(row)}",
        ),
        viewBox=f"0 0 {BAR_WIDTH:g} 22",
        width=BAR_WIDTH,
        height=22,
        aria_hidden="true",
    )


def _explanation(view: View) -> Markup:
    metric = view.metric
    words = [
        "P(best) and the line come from paired comparisons: all models were scored on the same blocks of data, so a "
        "block that is hard for all of them counts against none. Two error bars can therefore overlap although the "
        "difference is significant. ",
    ]
    if metric == "logme":
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


def _failures(run: Run) -> Markup:
    failures = run.ranking.failures if run.ranking is not None else ()
    rows = [(failure.identifier, failure.error, failure.reason) for failure in failures]
    found = table(("Model", "Error", "Reason"), rows, text_columns=(0, 1, 2), class_="failures")
    noun = "model" if len(rows) == 1 else "models"
    return join(
        [tag("h3", f"{len(rows)} {noun} could not be ranked"), scrolling(found, "Models that could not be ranked")]
    )
