"""LogME along the layers of a model, and how its fit converged."""

from __future__ import annotations

from hubscout.report.charts.chart import Chart, significant
from hubscout.report.charts.lines import COLOURS, Curve, curve_heights, lines
from hubscout.report.markup import Section, details, join, scrolling, selector, table, tag
from hubscout.report.saved_run import View
from hubscout.runs.row import Convergence, Row

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
        dots=True,
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
        body=details(f"Show the curves of {noun}", selector("convergence", "Model", choices, panels)),
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
            curves.append(Curve(name=target, x=(fixed,), y=(fixed,), tips=(tip,), colour=place, named=False, dots=True))
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
