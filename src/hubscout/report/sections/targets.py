"""Per class: what each model explains well or badly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubscout.report.charts.chart import Chart
from hubscout.report.charts.heat import heat
from hubscout.report.markup import Section, fill, join, json_script
from hubscout.report.saved_run import View
from hubscout.runs.texts import shorten
from hubscout.tasks.kinds import kind_of

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
