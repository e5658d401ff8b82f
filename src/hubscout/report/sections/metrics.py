"""Metrics against each other."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from hubscout.evaluation.agreement import FEWEST_MODELS
from hubscout.report.charts.chart import Chart
from hubscout.report.charts.heat import heat
from hubscout.report.charts.scatter import Point, scatter
from hubscout.report.markup import Markup, join, scrolling, table, tag
from hubscout.report.saved_run import Run
from hubscout.report.sections.section import TAU, Section, selector
from hubscout.report.view import View

MOST_POINTS = 4000
"""In all scatter plots of pairs together; beyond it the pairs without the first metric are left out."""


def metrics_section(run: Run) -> Section | None:
    """How similarly the metrics order the models: a matrix, and a scatter plot of every pair."""
    view = run.view
    if view is None or len(view.ranking.metrics) < 2 or len(view.ranking.compared) < 2:
        return None
    agreement = view.ranking.agreement()
    pairs = [pair for pair in combinations(range(len(agreement.metrics)), 2) if agreement.models[pair] > 1]
    if len(pairs) * len(view.ranking.compared) > MOST_POINTS:
        pairs = [pair for pair in pairs if pair[0] == 0]
    if not pairs:
        return None
    names = agreement.metrics
    choices = [(f"pair-{i}-{j}", f"{names[i]} and {names[j]}") for i, j in pairs]
    panels = [_pair_chart(view, names[i], names[j], float(agreement.weighted_tau[i, j])).html() for i, j in pairs]
    fewest = int(min(agreement.models[pair] for pair in pairs))
    lead = (
        "How similarly the metrics order the models, as weighted rank correlation: 1 is the same order, −1 the "
        "reverse. Click a cell to see the pair."
    )
    if fewest < FEWEST_MODELS:
        lead += f" With only {fewest} models in common it is mostly noise."
    return Section(
        anchor="metrics",
        title="Metrics against each other",
        short="Metrics",
        lead=lead,
        body=join(
            [
                scrolling(_matrix(names, agreement.weighted_tau, agreement.models, set(pairs)), "Agreement of metrics"),
                selector("pairs", "Compare", choices, panels),
            ]
        ),
    )


def _matrix(names: tuple[str, ...], tau: np.ndarray, models: np.ndarray, pairs: set[tuple[int, int]]) -> Markup:
    head = tag("tr", tag("td", ""), *(tag("th", tag("span", name), scope="col") for name in names))
    body = []
    for i, name in enumerate(names):
        cells = [tag("th", name, scope="row")]
        for j in range(len(names)):
            pair = (min(i, j), max(i, j))
            value = float(tau[i, j])
            shown: object = f"{value:.2f}".replace("-", "−")
            if pair in pairs:
                shown = tag(
                    "button",
                    shown,
                    type="button",
                    data_of="pairs",
                    data_choose=f"pair-{pair[0]}-{pair[1]}",
                    title=f"{names[i]} and {names[j]}, {models[i, j]} models",
                )
            look = [word for word, there in (("hot", abs(value) > 0.55), ("minus", value < 0)) if there]
            cells.append(
                tag("td", shown if i != j else "", class_=" ".join(look) or None, style=f"--heat:{abs(value):.2f}")
                if i != j
                else tag("td", "", class_="self")
            )
        body.append(tag("tr", *cells))
    return tag("table", tag("thead", head), tag("tbody", *body), class_="heat matrix", id="agreement")


def agreement_chart(view: View) -> Chart:
    """The weighted rank correlation of every pair of metrics."""
    agreement = view.ranking.agreement()
    names = agreement.metrics
    return Chart(
        draw=lambda frame: heat(
            frame, names, names, agreement.weighted_tau, label="Agreement of metrics", low=-1, high=1, unit="weighted τ"
        )
    )


def _pair_chart(view: View, first: str, second: str, tau: float) -> Chart:
    points = []
    for index, row in enumerate(view.rows):
        if row.dropped is not None or first not in row.scores or second not in row.scores:
            continue
        x, y = row.scores[first], row.scores[second]
        points.append(
            Point(
                model=index,
                name=view.names[index],
                x=x,
                y=y,
                tip="\n".join([*view.naming(row), f"{first} {x:.4f}", f"{second} {y:.4f}"]),
                group=view.group(row),
                priority=row.rank,
                important=row.rank <= 3,
            )
        )
    numbers = table(
        ("Model", first, second), [(view.rows[p.model].identifier, f"{p.x:.4f}", f"{p.y:.4f}") for p in points]
    )
    return Chart(
        draw=lambda frame: scatter(
            frame,
            points,
            label=f"{second} against {first} of {len(points)} models",
            x_title=first,
            y_title=second,
            keys=view.keys(point.model for point in points),
        ),
        caption=join([TAU, f" = {tau:.2f} over {len(points)} models".replace("-", "−")]),
        numbers=numbers,
    )
