"""Metrics: against each other and against what fine-tuning gave, LogME along the layers, and how its fit converged."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from hubscout.evaluation.agreement import FEWEST_MODELS, Agreement
from hubscout.report.charts.chart import Chart, significant
from hubscout.report.charts.heat import heat
from hubscout.report.charts.lines import COLOURS, Curve, curve_heights, lines
from hubscout.report.charts.scatter import Point, scatter
from hubscout.report.markup import TAU, Section, details, fill, join, scrolling, switch, table, tag
from hubscout.report.saved_run import Run, View
from hubscout.runs.row import Convergence, Row

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
        body=join([matrix, switch("pairs", "Compare", choices, panels, listed=True)]),
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
    return _reference(view, view.metric, known, view.ranking.evaluate(known, better=run.better).metrics[view.metric])


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


FINAL = "before the head"
CONVERGENCE_SHOWN = 12
"""Models, the best ones."""


def layers_section(view: View) -> Section | None:
    """LogME along the depth of each model whose layers were scanned, and which layer is its best."""
    chart = layers_chart(view)
    if chart is None:
        return None
    rows = []
    for row in view.rows:
        best = row.best_layer
        if best is None or len(row.layers_by_depth) < 2:
            continue
        last = next((layer for layer in row.layers if not layer.name), row.layers[-1])
        scores = (f"{best.score:.4f}", f"{last.score:.4f}", f"{best.score - last.score:+.4f}")
        rows.append((view.short[row.identifier], best.name or FINAL, *scores, str(best.feature_dim)))
    heads = ("Model", "Best layer", "Its LogME", f"LogME {FINAL}", "Difference", "Dimensions")
    title = "The best layer of each model"
    return Section(
        anchor="layers",
        title="By layer",
        short="Layers",
        lead="Where in the network the features explain the labels best, from the input (left) to the output.",
        body=join([chart.html(), tag("h3", title), scrolling(table(heads, rows, text_columns=(0, 1)), title)]),
    )


def layers_chart(view: View) -> Chart | None:
    """LogME along the depth of the models whose layers were scanned; None where there are none."""
    scanned = [(index, row) for index, row in enumerate(view.rows) if len(row.layers_by_depth) > 1]
    if not scanned:
        return None
    curves = [_layer_curve(view, index, row, place) for place, (index, row) in enumerate(scanned)]
    numbers = [
        (row.identifier, layer.name or FINAL, f"{layer.score:.4f}", f"{layer.gain:+.3f}", str(layer.feature_dim))
        for _, row in scanned
        for layer in row.layers
    ]
    label, depth = "LogME along the depth of each model", f"Depth (1: {FINAL})"
    return Chart(
        draw=lambda frame: lines(frame, curves, label=label, x_title=depth, y_title="LogME"),
        numbers=table(("Model", "Layer", "LogME", "Gain", "Dimensions"), numbers, text_columns=(0, 1)),
    )


def _layer_curve(view: View, index: int, row: Row, place: int) -> Curve:
    layers = row.layers_by_depth
    return Curve(
        name=view.names[index],
        x=[position / (len(layers) - 1) for position in range(len(layers))],
        y=[layer.score for layer in layers],
        tips=[f"{view.names[index]}\n{layer.name or FINAL}\nLogME {layer.score:.4f}" for layer in layers],
        colour=place if place < COLOURS else None,
        model=index,
        named=place < COLOURS,
    )


def convergence_section(view: View) -> Section | None:
    """f(t) against t for a few targets of each model, folded away: on the diagonal the evidence is stationary."""
    charts = convergence_charts(view)
    if not charts:
        return None
    choices = [(f"convergence-{view.names.index(name)}", name) for name in charts]
    panels = [join([tag("h3", name), chart.html()]) for name, chart in charts.items()]
    noun = "the best model" if len(panels) == 1 else f"the best {len(panels)} models"
    return Section(
        anchor="convergence",
        title="Convergence",
        lead="Did the fit of the evidence converge? f(t) is the paper's fixed-point iteration, t = α/β. The curve of a "
        "target crosses the dashed line where its evidence is highest; the dot is the t that was found.",
        body=details(f"Show the curves of {noun}", switch("convergence", "Model", choices, panels, listed=True)),
    )


def convergence_charts(view: View) -> dict[str, Chart]:
    """One chart per model by its short name, all with one scale."""
    known = [(name, row.convergence) for name, row in zip(view.names, view.rows, strict=True) if row.convergence]
    curves = {name: _convergence_curves(found) for name, found in known[:CONVERGENCE_SHOWN]}
    heights = [height for drawn in curves.values() for height in curve_heights(drawn)]
    return {name: _convergence_chart(name, found, curves[name], heights) for name, found in known[:CONVERGENCE_SHOWN]}


def _convergence_curves(found: Convergence) -> list[Curve]:
    curves = []
    for place, (target, mapped, fixed) in enumerate(zip(found.targets, found.mapped, found.fixed_points, strict=True)):
        curves.append(Curve(name=target, x=found.t, y=mapped, colour=place))
        if fixed is not None:
            tip = f"{target}\nfixed point t = {significant(fixed)}"
            curves.append(Curve(name=target, x=(fixed,), y=(fixed,), tips=(tip,), colour=place, named=False))
    return curves


def _convergence_chart(name: str, found: Convergence, curves: list[Curve], heights: list[float]) -> Chart:
    rows = [
        (target, "∞ (null model)" if fixed is None else significant(fixed))
        for target, fixed in zip(found.targets, found.fixed_points, strict=True)
    ]
    return Chart(
        draw=lambda frame: lines(
            frame,
            curves,
            label=f"f(t) against t for {len(found.targets)} targets of {name}",
            x_title="t (logarithmic)",
            y_title="f(t), logarithmic",
            logarithmic_axes=True,
            diagonal=True,
            keys=[("diagonal", "f(t) = t")],
            shared_y=heights,
        ),
        caption="The best and the worst explained target and some in between." if len(rows) > 2 else "",
        numbers=table(("Target", "Fixed point t"), rows),
    )
