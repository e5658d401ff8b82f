"""Per layer, where layers were scanned."""

from __future__ import annotations

from hubscout.report.charts.chart import Chart
from hubscout.report.charts.lines import COLOURS, Curve, lines
from hubscout.report.markup import join, scrolling, table, tag
from hubscout.report.saved_run import Run
from hubscout.report.sections.section import Section
from hubscout.report.view import View
from hubscout.runs.row import Row

FINAL = "before the head"


def layers_section(run: Run) -> Section | None:
    """LogME along the depth of each model, and which layer is its best."""
    view = run.view
    if view is None or not any(len(row.layers_by_depth) > 1 for row in view.rows):
        return None
    scanned = [(index, row) for index, row in enumerate(view.rows) if len(row.layers_by_depth) > 1]
    rows = []
    for index, row in scanned:
        best = row.best_layer
        last = next((layer for layer in row.layers if not layer.name), row.layers[-1])
        assert best is not None
        rows.append(
            (
                view.names[index],
                best.name or FINAL,
                f"{best.score:.4f}",
                f"{last.score:.4f}",
                f"{best.score - last.score:+.4f}",
                str(best.feature_dim),
            )
        )
    summary = table(
        ("Model", "Best layer", "Its LogME", f"LogME {FINAL}", "Difference", "Dimensions"), rows, text_columns=(0, 1)
    )
    return Section(
        anchor="layers",
        title="By layer",
        short="Layers",
        lead="Where in the network the features explain the labels best, from the input (left) to the output.",
        body=join(
            [
                layers_chart(view).html(),
                tag("h3", "The best layer of each model"),
                scrolling(summary, "The best layer of each model"),
            ]
        ),
    )


def layers_chart(view: View) -> Chart:
    """LogME along the depth of the models whose layers were scanned."""
    scanned = [(index, row) for index, row in enumerate(view.rows) if len(row.layers_by_depth) > 1]
    curves = [_curve(view, index, row, place) for place, (index, row) in enumerate(scanned)]
    numbers = table(
        ("Model", "Layer", "LogME", "Gain", "Dimensions"),
        [
            (row.identifier, layer.name or FINAL, f"{layer.score:.4f}", f"{layer.gain:+.3f}", str(layer.feature_dim))
            for _, row in scanned
            for layer in row.layers
        ],
        text_columns=(0, 1),
    )
    return Chart(
        draw=lambda frame: lines(
            frame,
            curves,
            label="LogME along the depth of each model",
            x_title=f"Depth (1: {FINAL})",
            y_title="LogME",
        ),
        numbers=numbers,
    )


def _curve(view: View, index: int, row: Row, place: int) -> Curve:
    layers = row.layers_by_depth
    depth = [position / (len(layers) - 1) for position in range(len(layers))]
    return Curve(
        name=view.names[index],
        x=depth,
        y=[layer.score for layer in layers],
        tips=[f"{view.names[index]}\n{layer.name or FINAL}\nLogME {layer.score:.4f}" for layer in layers],
        colour=place if place < COLOURS else None,
        model=index,
        named=place < COLOURS,
        dots=True,
    )
