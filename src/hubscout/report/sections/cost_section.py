"""Score against cost."""

from __future__ import annotations

from hubscout.report.charts.chart import Chart
from hubscout.report.charts.scatter import Point, scatter
from hubscout.report.markup import table
from hubscout.report.saved_run import Run
from hubscout.report.score_chart import ERRORS_SHOWN, error_bar
from hubscout.report.sections.section import Section, switch
from hubscout.report.view import Cost, View
from hubscout.runs.ranking import Ranking
from hubscout.runs.row import Row

ALWAYS_NAMED = 5
"""The best so many models are named, wherever there is room for them."""


def cost_section(run: Run) -> Section | None:
    """Score against parameters, FLOPs and latency, with the front of models that nothing beats in both."""
    view = run.view
    if view is None or not view.costs:
        return None
    panels = [cost_chart(view, cost).html() for cost in view.costs]
    return Section(
        anchor="cost",
        title="Score against cost",
        short="Cost",
        lead="No model is both cheaper and better than those on the dashed line, the Pareto front. Click a dot to "
        "highlight its model everywhere.",
        body=switch("cost", "Cost", [(cost.name, cost.title) for cost in view.costs], panels),
    )


def front_of(ranking: Ranking, cost: Cost) -> list[Row]:
    """The Pareto front, cheapest first, of the models whose cost can be drawn."""
    front = [row for row in ranking.pareto(cost.name) if cost.of(row) is not None]  # type: ignore[arg-type]
    return sorted(front, key=lambda row: cost.of(row) or 0.0)


def _priority(row: Row, on_front: bool) -> int:
    """Whose name is written first where there is not room for all."""
    if row.dropped is not None:
        return 9_000 + row.rank
    if row.rank <= ALWAYS_NAMED:
        return row.rank
    return row.rank + (1_000 if on_front else 2_000 if row.tied_with_best else 3_000)


def cost_chart(view: View, cost: Cost) -> Chart:
    """Score against one cost, with its front."""
    front = front_of(view.ranking, cost)
    on_front = {row.identifier for row in front}
    points = []
    for index, row in enumerate(view.rows):
        price = cost.of(row)
        if price is None:
            continue
        points.append(
            Point(
                model=index,
                name=view.names[index],
                x=price,
                y=row.score,
                tip=view.tip(row, f"{cost.title} {cost.words(price)}"),
                group=view.group(row),
                error=error_bar(row),
                priority=_priority(row, row.identifier in on_front),
                important=row.identifier in on_front or row.rank <= ALWAYS_NAMED,
                short=f"#{row.rank}" if row.rank <= ALWAYS_NAMED else "",
            )
        )
    numbers = table(
        ("Model", cost.title, view.metric, "Pareto front"),
        [
            (name, cost.words(point.x), f"{point.y:.4f}", "yes" if name in on_front else "")
            for name, point in ((view.rows[point.model].identifier, point) for point in points)
        ],
    )
    left_out = len(view.rows) - len(points)
    captions = []
    if any(point.error for point in points):
        captions.append(f"Error bars reach {ERRORS_SHOWN:g} standard errors each way.")
    if left_out:
        noun = "model has" if left_out == 1 else "models have"
        captions.append(f"{left_out} {noun} no known {cost.title.lower()} above 0 and cannot be drawn.")
    return Chart(
        draw=lambda frame: scatter(
            frame,
            points,
            label=f"{view.metric} against {cost.title.lower()} of {len(points)} models",
            x_title=f"{cost.title} (logarithmic)",
            y_title=view.metric,
            x_format=cost.words,
            x_logarithmic=True,
            front=[(cost.of(row) or 0.0, row.score) for row in front],
            keys=[*view.keys(point.model for point in points), ("front", "Pareto front")],
        ),
        caption=" ".join(captions),
        numbers=numbers,
    )
