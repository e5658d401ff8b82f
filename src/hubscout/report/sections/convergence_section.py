"""Convergence: the fixed points of the paper's iteration."""

from __future__ import annotations

from hubscout.report.charts.chart import Chart
from hubscout.report.charts.lines import Curve, curve_heights, lines
from hubscout.report.markup import details, join, table, tag
from hubscout.report.names import significant
from hubscout.report.saved_run import Run
from hubscout.report.sections.section import Section, selector
from hubscout.report.view import View
from hubscout.runs.row import Convergence

MODELS = 12


def convergence_section(run: Run) -> Section | None:
    """f(t) against t for a few targets of each model, folded away: on the diagonal the evidence is stationary."""
    view = run.view
    known = [] if view is None else _known(view)
    if view is None or not known:
        return None
    choices = [(f"convergence-{index}", view.names[index]) for index, _ in known]
    charts = convergence_charts(view)
    panels = [
        join([tag("h3", view.names[index]), chart.html()]) for (index, _), chart in zip(known, charts, strict=True)
    ]
    noun = "the best model" if len(panels) == 1 else f"the best {len(panels)} models"
    return Section(
        anchor="convergence",
        title="Convergence",
        lead="Did the fit of the evidence converge? f(t) is the paper's fixed-point iteration, t = α/β. The curve of a "
        "target crosses the dashed line where its evidence is highest; the dot is the t that was found.",
        body=details(f"Show the curves of {noun}", selector("convergence", "Model", choices, panels)),
    )


def _known(view: View) -> list[tuple[int, Convergence]]:
    return [(index, row.convergence) for index, row in enumerate(view.rows) if row.convergence is not None][:MODELS]


def convergence_charts(view: View) -> list[Chart]:
    """One chart per model, all with one scale."""
    known = [(view.names[index], found, _curves(found)) for index, found in _known(view)]
    heights = [height for _, _, curves in known for height in curve_heights(curves)]
    return [_chart(name, found, curves, heights) for name, found, curves in known]


def _curves(found: Convergence) -> list[Curve]:
    curves = []
    for place, (target, mapped, fixed) in enumerate(zip(found.targets, found.mapped, found.fixed_points, strict=True)):
        curves.append(Curve(name=target, x=found.t, y=mapped, colour=place))
        if fixed is not None:
            tip = f"{target}\nfixed point t = {significant(fixed)}"
            curves.append(Curve(name=target, x=(fixed,), y=(fixed,), tips=(tip,), colour=place, named=False, dots=True))
    return curves


def _chart(name: str, found: Convergence, curves: list[Curve], heights: list[float]) -> Chart:
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
