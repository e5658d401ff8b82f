"""Score against cost."""

from __future__ import annotations

from hubscout.report.charts.frame import figure, legend
from hubscout.report.charts.scatter import Point, scatter
from hubscout.report.markup import Markup, join, table
from hubscout.report.run import Run
from hubscout.report.sections.ranking import ERRORS_SHOWN
from hubscout.report.sections.section import Section, switch
from hubscout.report.view import Cost, View
from hubscout.runs.ranking import Ranking
from hubscout.runs.row import Row


def cost_section(run: Run) -> Section | None:
    """Score against parameters, FLOPs and latency, with the front of models that nothing beats in both."""
    view = run.view
    if view is None or not view.costs:
        return None
    panels = [_panel(view, cost) for cost in view.costs]
    keys = [("best", "best"), ("tied", "cannot be told apart from the best"), ("rest", "the others")]
    if len(view.ranking.tied_with_best) < 2:
        del keys[1]
    if any(row.dropped for row in view.rows):
        keys.append(("dropped", "dropped, judged on fewer samples"))
    return Section(
        anchor="cost",
        title="Score against cost",
        short="Cost",
        lead="No model is both cheaper and better than one on the staircase. Click a point to pin its model.",
        body=join(
            [
                switch("cost", "Cost", [(cost.name, cost.title) for cost in view.costs], panels),
                legend([*keys, ("front-key", "Pareto front")]),
            ]
        ),
    )


def front_of(ranking: Ranking, cost: Cost) -> list[Row]:
    """The Pareto front, cheapest first."""
    return sorted(ranking.pareto(cost.name), key=lambda row: cost.of(row) or 0.0)  # type: ignore[arg-type]


def _priority(row: Row, on_front: bool) -> int:
    """Whose name is written first where there is not room for all."""
    if row.rank == 1:
        return 0
    if row.dropped is not None:
        return 9
    return 1 if on_front else 2 if row.tied_with_best else 5


def _panel(view: View, cost: Cost) -> Markup:
    front = front_of(view.ranking, cost)
    on_front = {row.identifier for row in front}
    points = []
    for index, row in enumerate(view.rows):
        price = cost.of(row)
        if price is None:
            continue
        important = row.identifier in on_front or (row.tied_with_best and row.rank <= 4)
        points.append(
            Point(
                model=index,
                name=view.names[index],
                x=price,
                y=row.score,
                tip=view.tip(row, f"{cost.title} {cost.words(price)}"),
                group=view.group(row),
                error=None if row.standard_error is None else ERRORS_SHOWN * row.standard_error,
                priority=_priority(row, row.identifier in on_front),
                important=important,
            )
        )
    numbers = table(
        ("Model", cost.title, view.metric, "On the front"),
        [
            (name, cost.words(point.x), f"{point.y:.4f}", "yes" if name in on_front else "")
            for name, point in ((view.rows[point.model].identifier, point) for point in points)
        ],
    )
    return figure(
        lambda frame: scatter(
            frame,
            points,
            label=f"{view.metric} against {cost.title.lower()} of {len(points)} models",
            x_title=f"{cost.title} (logarithmic)",
            y_title=view.metric,
            x_format=cost.words,
            x_logarithmic=True,
            front=[(cost.of(row) or 0.0, row.score) for row in front],
        ),
        caption=f"Error bars reach {ERRORS_SHOWN:g} standard errors each way." if points[0].error else "",
        numbers=numbers,
    )
