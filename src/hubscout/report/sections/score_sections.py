"""Scores: alone, against what the models cost, and by target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubscout.report.charts.chart import Chart
from hubscout.report.charts.heat import heat
from hubscout.report.charts.scatter import Point, intervals, scatter
from hubscout.report.markup import Section, fill, join, json_script, switch, table
from hubscout.report.saved_run import Cost, View
from hubscout.runs.row import Row
from hubscout.runs.texts import shorten
from hubscout.tasks.kinds import kind_of

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
    found = ((cost.of(row), row) for row in view.ranking.pareto(cost.name))
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


MODELS_SHOWN = 16
TARGETS_SHOWN = 12


@dataclass(frozen=True)
class Gains:
    """The gain of `models` (places in the ranking) on each target, models in rows.

    `order` are the targets, the one with the widest spread over models first. `low` and `high` are the least and the
    most gain, the ends of the colours, so that no cell is off the scale.
    """

    models: list[int]
    values: np.ndarray
    order: list[int]
    low: float
    high: float


def gains_by_target(view: View) -> Gains | None:
    """None where there is one target, or no model has gains."""
    count = len(view.ranking.task.target_names)
    models = [index for index, row in enumerate(view.rows) if row.per_target and len(row.per_target) == count]
    if count < 2 or not models:
        return None
    values = np.array([view.rows[index].per_target for index in models])
    order = np.argsort(values.min(axis=0) - values.max(axis=0), kind="stable")
    low, high = float(values.min()), float(values.max())
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    return Gains(models, values, [int(index) for index in order], low, high)


def targets_section(view: View) -> Section | None:
    """A heat map of the gain of each model on each target; the targets that models differ most on come first."""
    found = gains_by_target(view)
    if found is None:
        return None
    names, kind = view.ranking.task.target_names, kind_of(view.ranking.task.kind)
    noun, plural = kind.noun, kind.plural
    lead = f"Gain over the base rate of each {noun}, in nats per sample; the darker, the better explained."
    if len(names) > TARGETS_SHOWN:
        lead += f" These are the {TARGETS_SHOWN} of {len(names)} {plural} that the models differ most on."
    data = {
        "targets": [str(names[index]) for index in found.order],
        "models": found.models,
        "gains": [[float(f"{gains[target]:.4g}") for target in found.order] for gains in found.values],
        "low": found.low,
        "high": found.high,
        "shown": TARGETS_SHOWN,
        "columns": MODELS_SHOWN,
    }
    shown = {"targets_shown": TARGETS_SHOWN, "models_shown": MODELS_SHOWN, "shorten": shorten}
    table = fill("targets.html", view=view, gains=found, names=names, kind=kind, **shown)
    body = join([table, json_script("targets-data", data)])
    return Section(anchor="targets", title=f"By {noun}", short=plural.capitalize(), lead=lead, body=body)


def targets_chart(view: View) -> Chart | None:
    """The gain of the best models on the targets that models differ most on."""
    found = gains_by_target(view)
    if found is None:
        return None
    order = found.order[: 2 * TARGETS_SHOWN]
    models = [view.names[index] for index in found.models[:MODELS_SHOWN]]
    targets = [str(view.ranking.task.target_names[index]) for index in order]
    shown = found.values[:MODELS_SHOWN, order].T
    return Chart(
        draw=lambda frame: heat(
            frame, targets, models, shown, label="Gain by target", low=found.low, high=found.high, unit="nats gained"
        )
    )
