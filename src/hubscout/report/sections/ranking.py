"""The table of models."""

from __future__ import annotations

from collections.abc import Sequence

from hubscout.ranking.row import Row
from hubscout.ranking.table import human_count, human_probability, human_seconds
from hubscout.report.charts.frame import details
from hubscout.report.charts.scale import Scale, linear
from hubscout.report.markup import Markup, join, scrolling, table, tag
from hubscout.report.names import listing, significant
from hubscout.report.run import Run
from hubscout.report.sections.section import Section
from hubscout.report.view import View

ERRORS_SHOWN = 2.0
"""Error bars reach this many standard errors each way."""
BAR_WIDTH = 132.0


def ranking_section(run: Run) -> Section | None:
    """All models: sorted, filtered, with error bars; those that failed with their reasons."""
    if run.ranking is None or not (run.ranking.rows or run.ranking.failures):
        return None
    view = run.view
    parts: list[Markup] = []
    if view is not None:
        parts += [_controls(view), scrolling(_table(view), "Ranking of the models"), _explanation(view), _notes(view)]
    if run.ranking.failures:
        parts.append(_failures(run))
    count = len(run.ranking.rows)
    tied = len(run.ranking.tied_with_best)
    n = max((row.n for row in run.ranking.rows), default=0)
    unit = "words" if run.ranking.task.kind == "tagging" else "samples"
    lead = f"{count} {'model' if count == 1 else 'models'} on {n:,} training {unit} of {run.ranking.task.name}."
    if not count:
        lead = ""
    if tied > 1:
        group = f"The first {tied}, above the line," if tied < len(run.ranking.compared) else "They"
        lead += f" {group} cannot be told apart from the best."
    return Section(anchor="ranking", title="Ranking", lead=lead, body=join(parts))


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
                tag("span", "At most, million parameters"),
                tag("input", type="number", id="filter-params", min=0, step="any", inputmode="decimal"),
            )
        )
    if len(view.ranking.tied_with_best) > 1:
        fields.append(
            tag("label", tag("input", type="checkbox", id="filter-tied"), " only the best group", class_="check")
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


def _table(view: View) -> Markup:
    rows = view.rows
    scale = linear(_reach(rows), 6, BAR_WIDTH - 6, padding=0.02)
    heads: list[tuple[str, str, str]] = [("#", "number", ""), ("Model", "text", ""), (view.metric, "number", "")]
    if any(row.standard_error is not None for row in rows):
        heads.append((f"{view.metric}, ± {ERRORS_SHOWN:g} standard errors", "bar", ""))
    optional = {
        "Gain": any(row.gain is not None for row in rows),
        "P(best)": any(row.p_best is not None for row in rows),
    }
    heads += [(name, "number", "") for name, there in optional.items() if there]
    prices = {
        "Params": any(row.params is not None for row in rows),
        "FLOPs": any(row.flops is not None for row in rows),
        "Latency": any(row.latency_seconds is not None for row in rows),
    }
    heads += [(name, "number", "") for name, there in prices.items() if there]
    heads += [(name, "number", "") for name in view.ranking.metrics[1:]]
    speeds = {
        "Samples/s": any(row.samples_per_second is not None for row in rows),
        "Time": any(row.seconds is not None for row in rows),
        "Judged on": len({row.n for row in rows}) > 1,
    }
    heads += [(name, "number", "") for name, there in speeds.items() if there]
    names = [name for name, _, _ in heads]
    head = tag("tr", *(_head(name, kind, index) for index, (name, kind, _) in enumerate(heads)))
    body = [_row(view, row, index, names, scale) for index, row in enumerate(rows)]
    return tag("table", tag("thead", head), tag("tbody", *body), id="models", class_="models")


def _reach(rows: Sequence[Row]) -> list[float]:
    """What the little axes must show: every score, and error bars as far as they do not dwarf the scores."""
    scores = [row.score for row in rows]
    most = (max(scores) - min(scores)) or float("inf")
    reach = [min(ERRORS_SHOWN * (row.standard_error or 0.0), most) for row in rows]
    return [score + sign * error for score, error in zip(scores, reach, strict=True) for sign in (-1, 1)]


def _head(name: str, kind: str, index: int) -> Markup:
    if kind == "bar":
        return tag("th", name, scope="col", class_="bar")
    order = "ascending" if index == 0 else "none"
    button = tag("button", name, tag("i", aria_hidden="true"), type="button", data_column=index)
    return tag("th", button, scope="col", aria_sort=order, class_="number" if kind == "number" else None)


def _row(view: View, row: Row, index: int, names: list[str], scale: Scale) -> Markup:
    cells: dict[str, tuple[object, float | str | None]] = {
        "#": (str(row.rank), row.rank),
        view.metric: (_score(row), row.score),
        "Gain": ("–" if row.gain is None else f"{row.gain:+.3f}", row.gain),
        "P(best)": (_probability(row.p_best), row.p_best),
        "Params": (human_count(row.params), row.params),
        "FLOPs": (human_count(row.flops), row.flops),
        "Latency": (human_seconds(row.latency_seconds), row.latency_seconds),
        "Samples/s": (
            significant(row.samples_per_second),
            row.samples_per_second,
        ),
        "Time": ("cached" if row.from_cache else human_seconds(row.seconds), row.seconds),
        "Judged on": (f"{row.n:,}", row.n),
    }
    for name in view.ranking.metrics[1:]:
        value = row.scores.get(name)
        cells[name] = ("–" if value is None else f"{value:.4f}", value)
    made = []
    for name in names:
        if name == "Model":
            made.append(_model(view, row, index))
        elif "standard errors" in name:
            made.append(tag("td", _bar(view, row, scale), class_="bar"))
        else:
            shown, key = cells[name]
            made.append(tag("td", shown, class_="number", data_value=None if key is None else repr(key)))
    following = view.rows[index + 1] if index + 1 < len(view.rows) else None
    line = row.tied_with_best and following is not None and not following.tied_with_best
    architecture = row.card.get("architecture") or ""
    return tag(
        "tr",
        *made,
        class_=f"{view.group(row)}{' line' if line else ''}",
        data_model=index,
        data_search=f"{row.identifier} {architecture}".lower(),
        data_params=row.params,
        data_tied="1" if row.tied_with_best else None,
    )


def _score(row: Row) -> Markup:
    doubt = tag("small", f"± {row.standard_error:.4f}") if row.standard_error is not None else ""
    return join([f"{row.score:.4f}", doubt])


def _probability(value: float | None) -> Markup:
    if value is None:
        return join(["–"])
    return join([tag("i", class_="share", style=f"--share:{value:.3f}", aria_hidden="true"), human_probability(value)])


def _model(view: View, row: Row, index: int) -> Markup:
    remarks: list[Markup] = []
    if row.dropped is not None:
        remarks.append(tag("small", f"Dropped: {row.dropped.reason}"))
    pin = tag(
        "button",
        view.names[index],
        type="button",
        class_="pin",
        aria_pressed="false",
        data_model=index,
        title=f"{row.identifier} (click to pin it in all charts)",
    )
    badge = {"best": "best", "dropped": "dropped"}.get(view.group(row))
    return tag(
        "th",
        pin,
        tag("span", badge, class_=f"badge {badge}") if badge else "",
        tag("span", "cannot be told apart from the best", class_="unseen") if view.group(row) == "tied" else "",
        *remarks,
        scope="row",
        data_value=row.identifier,
    )


def _bar(view: View, row: Row, scale: Scale) -> Markup:
    middle = scale(row.score)
    reach = ERRORS_SHOWN * (row.standard_error or 0.0)
    low, high = scale(max(row.score - reach, scale.low)), scale(min(row.score + reach, scale.high))
    best = scale(view.rows[0].score)
    return tag(
        "svg",
        tag("path", d=f"M{best:.1f} 0V22", class_="leader"),
        tag("path", d=f"M{low:.1f} 11H{high:.1f}", class_="error"),
        tag("circle", cx=middle, cy=11, r=4),
        viewBox=f"0 0 {BAR_WIDTH:g} 22",
        width=BAR_WIDTH,
        height=22,
        aria_hidden="true",
        class_=f"point {view.group(row)}",
    )


def _explanation(view: View) -> Markup:
    metric = view.metric
    words = [
        "P(best) and the line under the best group come from paired comparisons: all models were judged on the same "
        "blocks of data, so what makes a block hard for all of them cancels. Two error bars may overlap although the "
        "difference is certain. ",
    ]
    if metric == "logme":
        words.append(
            "LogME is the log evidence a sample (in nats) of a linear model on the frozen features; the gain is over "
            "a model that has no features. It says which model to start from, not what accuracy to expect."
        )
    return details("How to read this table", tag("p", *words, class_="note"))


def _notes(view: View) -> Markup:
    """What went otherwise than planned, by what happened: often the same for several models."""
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
