"""Convergence: the fixed points of the paper's iteration."""

from __future__ import annotations

from hubscout.report.charts.frame import figure
from hubscout.report.charts.lines import Curve, lines
from hubscout.report.markup import Markup, table
from hubscout.report.names import significant
from hubscout.report.run import Run
from hubscout.report.sections.section import Section, selector
from hubscout.runs.row import Convergence

MODELS = 12


def convergence_section(run: Run) -> Section | None:
    """f(t) against t for a few targets of each model: on the diagonal the evidence is stationary."""
    view = run.view
    if view is None:
        return None
    known = [(index, row.convergence) for index, row in enumerate(view.rows) if row.convergence is not None][:MODELS]
    if not known:
        return None
    choices = [(f"convergence-{index}", view.names[index]) for index, _ in known]
    panels = [_panel(view.names[index], found) for index, found in known]
    return Section(
        anchor="convergence",
        title="Convergence",
        lead="f(t) of the paper's fixed-point iteration, t = α/β. A target's curve crosses the dashed line f(t) = t "
        "where its evidence is highest; the dot is the t that was found.",
        body=selector("convergence", "Model", choices, panels),
    )


def _panel(name: str, found: Convergence) -> Markup:
    curves = []
    for place, (target, mapped, fixed) in enumerate(zip(found.targets, found.mapped, found.fixed_points, strict=True)):
        curves.append(Curve(name=target, x=found.t, y=mapped, colour=place))
        if fixed is not None:
            tip = f"{target}\nfixed point t = {significant(fixed)}"
            curves.append(Curve(name=target, x=(fixed,), y=(fixed,), tips=(tip,), colour=place, named=False, dots=True))
    rows = [
        (target, "∞ (null model)" if fixed is None else significant(fixed))
        for target, fixed in zip(found.targets, found.fixed_points, strict=True)
    ]
    return figure(
        lambda frame: lines(
            frame,
            curves,
            label=f"f(t) against t for {len(found.targets)} targets of {name}",
            x_title="t (logarithmic)",
            y_title="f(t)",
            logarithmic_axes=True,
            diagonal=True,
        ),
        caption="The best and the worst explained target and some between." if len(rows) > 2 else "",
        numbers=table(("Target", "Fixed point t"), rows),
    )
