"""Scores against what fine-tuning really gave."""

from __future__ import annotations

from collections.abc import Mapping

from hubscout.evaluation.agreement import Agreement
from hubscout.report.charts.chart import Chart
from hubscout.report.charts.scatter import Point, scatter
from hubscout.report.markup import join, scrolling, table, tag
from hubscout.report.saved_run import Run
from hubscout.report.sections.section import TAU, Section, switch
from hubscout.report.view import View


def reference_section(run: Run) -> Section | None:
    """A scatter plot of each metric against the reference, τ_w in its title, and the baselines beside them."""
    view = run.view
    if view is None or run.reference is None:
        return None
    known = run.reference
    if sum(row.identifier in known for row in view.ranking.compared) < 2:
        return None
    found = view.ranking.evaluate(known, better=run.better)
    names = list(found.metrics)
    panels = [
        join([tag("h3", name, ": ", TAU, " = ", _tau(agreement)), reference_chart(view, name, known, agreement).html()])
        for name, agreement in found.metrics.items()
    ]
    warning = next((agreement.warning for agreement in found.metrics.values() if agreement.warning), None)
    rows = [(name, *agreement.cells) for name, agreement in found.metrics.items()]
    rows += [(f"{name} (baseline)", *agreement.cells) for name, agreement in found.baselines.items()]
    heads = ("Score", TAU, "95% interval", "p", "τ", "Rel@1", "Its choice")
    lead = f"Known results of fine-tuning for {len(found.models)} of the models."
    if found.missing:
        lead += f" For {len(found.missing)} there are none."
    return Section(
        anchor="reference",
        title="Scores against fine-tuning",
        short="Reference",
        lead=lead,
        body=join(
            [
                switch("reference", "Score", [(f"reference-{i}", name) for i, name in enumerate(names)], panels),
                tag("h3", "How well each score predicts the results"),
                scrolling(table(heads, rows, text_columns=(0, 6)), "Agreement with the reference"),
                tag("p", f"{warning}.", class_="caveat") if warning else "",
            ]
        ),
    )


def _tau(agreement: Agreement) -> str:
    return f"{agreement.weighted_tau:.2f} (p = {agreement.p_value:.3f})".replace("-", "−")


def reference_chart(view: View, metric: str, known: Mapping[str, float], agreement: Agreement) -> Chart:
    """The known results against one metric."""
    points = []
    for index, row in enumerate(view.rows):
        if row.dropped is not None or row.identifier not in known or metric not in row.scores:
            continue
        x, y = row.scores[metric], known[row.identifier]
        points.append(
            Point(
                model=index,
                name=view.names[index],
                x=x,
                y=y,
                tip="\n".join([*view.naming(row), f"{metric} {x:.4f}", f"reference {y:.4g}"]),
                group=view.group(row),
                priority=row.rank,
                important=len(known) <= 12,
            )
        )
    numbers = table(
        ("Model", metric, "Reference"),
        [(view.rows[p.model].identifier, f"{p.x:.4f}", f"{p.y:.4g}") for p in points],
    )
    return Chart(
        draw=lambda frame: scatter(
            frame,
            points,
            label=f"Reference against {metric}: weighted tau {_tau(agreement)}",
            x_title=metric,
            y_title="Result of fine-tuning",
            keys=view.keys(point.model for point in points),
        ),
        numbers=numbers,
    )
