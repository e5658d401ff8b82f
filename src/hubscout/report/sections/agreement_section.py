"""Metrics against each other, and against what fine-tuning really gave."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from hubscout.evaluation.agreement import FEWEST_MODELS, Agreement
from hubscout.report.charts.chart import Chart
from hubscout.report.charts.heat import heat
from hubscout.report.charts.scatter import Point, scatter
from hubscout.report.markup import TAU, Section, fill, join, scrolling, selector, switch, table, tag
from hubscout.report.saved_run import Run, View

MOST_POINTS = 4000
"""In all scatter plots of pairs together; beyond it the pairs without the first metric are left out."""
FEW = 12
"""Known results of so few models are all named in their chart."""


def metrics_section(view: View) -> Section | None:
    """How similarly the metrics order the models: a matrix, and a scatter plot of every pair."""
    if len(view.ranking.metrics) < 2 or len(view.ranking.compared) < 2:
        return None
    agreement = view.ranking.agreement()
    pairs = [pair for pair in combinations(range(len(agreement.metrics)), 2) if agreement.models[pair] > 1]
    if len(pairs) * len(view.ranking.compared) > MOST_POINTS:
        pairs = [pair for pair in pairs if pair[0] == 0]
    if not pairs:
        return None
    names = agreement.metrics
    choices = [(f"pair-{i}-{j}", f"{names[i]} and {names[j]}") for i, j in pairs]
    panels = [
        _pair_chart(view, names[i], names[j], float(agreement.weighted_tau[i, j]), agreement.models[i, j]).html()
        for i, j in pairs
    ]
    fewest = int(min(agreement.models[pair] for pair in pairs))
    lead = (
        "How similarly the metrics order the models, as weighted rank correlation: 1 is the same order, −1 the "
        "reverse. Click a cell to see the pair."
    )
    if fewest < FEWEST_MODELS:
        lead += f" With only {fewest} models in common it is mostly noise."
    counts = {"tau": agreement.weighted_tau, "models": agreement.models}
    matrix = fill("agreement.html", names=names, pairs=pairs, **counts)
    return Section(
        anchor="metrics",
        title="Metrics against each other",
        short="Metrics",
        lead=lead,
        body=join([matrix, selector("pairs", "Compare", choices, panels)]),
    )


def agreement_chart(view: View) -> Chart | None:
    """The weighted rank correlation of every pair of metrics; None of one metric or one model."""
    if len(view.ranking.metrics) < 2 or len(view.ranking.compared) < 2:
        return None
    agreement = view.ranking.agreement()
    names = agreement.metrics
    return Chart(
        draw=lambda frame: heat(
            frame, names, names, agreement.weighted_tau, label="Agreement of metrics", low=-1, high=1, unit="weighted τ"
        )
    )


def reference_section(run: Run, view: View) -> Section | None:
    """A scatter plot of each metric against the reference, τ_w in its title, and the baselines beside them."""
    known = run.reference
    if known is None or not _enough(view, known):
        return None
    found = view.ranking.evaluate(known, better=run.better)
    panels = [
        join([tag("h3", name, ": ", TAU, " = ", _tau(agreement)), _reference(view, name, known, agreement).html()])
        for name, agreement in found.metrics.items()
    ]
    warning = next((agreement.warning for agreement in found.metrics.values() if agreement.warning), None)
    rows = [(name, *agreement.cells) for name, agreement in found.metrics.items()]
    rows += [(f"{name} (baseline)", *agreement.cells) for name, agreement in found.baselines.items()]
    heads = ("Score", TAU, "95% interval", "p", "τ", "Rel@1", "Its choice")
    lead = f"Known results of fine-tuning for {len(found.models)} of the models."
    if found.missing:
        lead += f" For {len(found.missing)} there are none."
    choices = [(f"reference-{index}", name) for index, name in enumerate(found.metrics)]
    parts = [
        switch("reference", "Score", choices, panels),
        tag("h3", "How well each score predicts the results"),
        scrolling(table(heads, rows, text_columns=(0, 6)), "Agreement with the reference"),
        tag("p", f"{warning}.", class_="caveat") if warning else "",
    ]
    return Section(
        anchor="reference", title="Scores against fine-tuning", short="Reference", lead=lead, body=join(parts)
    )


def reference_chart(run: Run) -> Chart | None:
    """The known results against the metric that orders the models; None of fewer than two results."""
    view, known = run.view, run.reference
    if view is None or known is None or not _enough(view, known):
        return None
    agreement = view.ranking.evaluate(known, better=run.better).metrics[view.metric]
    return _reference(view, view.metric, known, agreement)


def _enough(view: View, known: Mapping[str, float]) -> bool:
    return sum(row.identifier in known for row in view.ranking.compared) > 1


def _tau(agreement: Agreement) -> str:
    return f"{agreement.weighted_tau:.2f} (p = {agreement.p_value:.3f})".replace("-", "−")


def _reference(view: View, metric: str, known: Mapping[str, float], agreement: Agreement) -> Chart:
    return _scatter(
        view,
        metric,
        known,
        label=f"Reference against {metric}: weighted tau {_tau(agreement)}",
        heads=("reference", "Reference", "Result of fine-tuning"),
        digits=".4g",
        named=len(view.rows) if len(known) <= FEW else 0,
    )


def _pair_chart(view: View, first: str, second: str, tau: float, models: int) -> Chart:
    return _scatter(
        view,
        first,
        {row.identifier: row.scores[second] for row in view.rows if second in row.scores},
        label=f"{second} against {first} of {models} models",
        heads=(second, second, second),
        digits=".4f",
        named=3,
        caption=join([TAU, f" = {tau:.2f} over {models} models".replace("-", "−")]),
    )


def _scatter(
    view: View,
    metric: str,
    others: Mapping[str, float],
    *,
    label: str,
    heads: tuple[str, str, str],
    digits: str,
    named: int,
    caption: object = "",
) -> Chart:
    """`others` (by identifier) against a metric; the best `named` models are sure of their names.

    `heads` is what the numbers are called in a tip, in the table and at the axis.
    """
    points, rows = [], []
    for index, row in enumerate(view.rows):
        if row.dropped is not None or metric not in row.scores or row.identifier not in others:
            continue
        x, y = row.scores[metric], others[row.identifier]
        rows.append((row.identifier, f"{x:.4f}", f"{y:{digits}}"))
        points.append(
            Point(
                model=index,
                name=view.names[index],
                x=x,
                y=y,
                tip="\n".join([*view.naming(row), f"{metric} {x:.4f}", f"{heads[0]} {y:{digits}}"]),
                group=view.group(row),
                priority=row.rank,
                important=row.rank <= named,
            )
        )
    keys = view.keys(point.model for point in points)
    return Chart(
        draw=lambda frame: scatter(frame, points, label=label, x_title=metric, y_title=heads[2], keys=keys),
        caption=caption,
        numbers=table(("Model", metric, heads[1]), rows),
    )
