"""Scores: alone, and against what the models cost."""

from __future__ import annotations

from hubscout.report.charts.chart import Chart
from hubscout.report.charts.scatter import Point, intervals, scatter
from hubscout.report.markup import Section, switch, table
from hubscout.report.saved_run import Cost, View
from hubscout.runs.row import Row

ERRORS_SHOWN = 2.0
"""Error bars reach this many standard errors each way."""
MODELS_DRAWN = 40
"""In the picture of scores."""
ALWAYS_NAMED = 5
"""The best so many models are named, wherever there is room for them."""


def error_bar(row: Row) -> float:
    """Half the length of a model's error bar; 0 where its error is not known."""
    return ERRORS_SHOWN * (row.standard_error or 0.0)


def scores_chart(view: View) -> Chart:
    """The scores with error bars, best on top."""
    rows = view.rows[:MODELS_DRAWN]
    entries = [(view.names[index], row.score, error_bar(row), view.group(row)) for index, row in enumerate(rows)]
    return Chart(
        draw=lambda frame: intervals(
            frame,
            entries,
            label=f"{view.metric} of {len(rows)} models",
            x_title=f"{view.metric} (± {ERRORS_SHOWN:g} standard errors)",
            keys=view.keys(range(len(rows))),
        )
    )


def cost_section(view: View) -> Section | None:
    """Score against parameters, FLOPs and latency, with the front of models that nothing beats in both."""
    if not view.costs:
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


def _priority(row: Row, on_front: bool) -> int:
    """Whose name is written first where there is not room for all."""
    if row.dropped is not None:
        return 9_000 + row.rank
    if row.rank <= ALWAYS_NAMED:
        return row.rank
    return row.rank + (1_000 if on_front else 2_000 if row.tied_with_best else 3_000)


def cost_chart(view: View, cost: Cost) -> Chart:
    """Score against one cost, with its Pareto front."""
    found = ((cost.of(row), row) for row in view.ranking.pareto(cost.name))  # type: ignore[arg-type]
    front = sorted(((price, row.score, row.identifier) for price, row in found if price is not None))
    on_front = {identifier for *_, identifier in front}
    points, numbers = [], []
    for index, row in enumerate(view.rows):
        price = cost.of(row)
        if price is None:
            continue
        named, there = row.rank <= ALWAYS_NAMED, row.identifier in on_front
        numbers.append((row.identifier, cost.words(price), f"{row.score:.4f}", "yes" if there else ""))
        points.append(
            Point(
                model=index,
                name=view.names[index],
                x=price,
                y=row.score,
                tip=view.tip(row, f"{cost.title} {cost.words(price)}"),
                group=view.group(row),
                error=error_bar(row),
                priority=_priority(row, there),
                important=there or named,
                short=f"#{row.rank}" if named else "",
            )
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
            front=[(price, score) for price, score, _ in front],
            keys=[*view.keys(point.model for point in points), ("front", "Pareto front")],
        ),
        caption=" ".join(captions),
        numbers=table(("Model", cost.title, view.metric, "Pareto front"), numbers),
    )
