"""Per class: what each model explains well or badly."""

from __future__ import annotations

import numpy as np

from hubscout.report.charts.chart import Chart
from hubscout.report.charts.heat import heat
from hubscout.report.markup import Markup, join, json_script, scrolling, tag
from hubscout.report.names import shorten
from hubscout.report.saved_run import Run
from hubscout.report.sections.section import Section
from hubscout.report.view import View
from hubscout.runs.row import Row
from hubscout.tasks.kinds import kind_of

MODELS_SHOWN = 16
TARGETS_SHOWN = 12


def targets_section(run: Run) -> Section | None:
    """A heat map of the gain of each model on each target; the targets that models differ most on come first."""
    view = run.view
    if view is None:
        return None
    task = view.ranking.task
    names = task.target_names
    rows = [(index, row) for index, row in enumerate(view.rows) if row.per_target and len(row.per_target) == len(names)]
    if len(names) < 2 or not rows:
        return None
    kind = kind_of(task.kind)
    noun, plural = kind.noun, kind.plural
    gains = np.array([row.per_target for _, row in rows])
    order = order_by_spread(gains)
    shown = order[:TARGETS_SHOWN]
    low, high = colour_range(gains)
    lead = f"Gain over the base rate of each {noun}, in nats per sample; the darker, the better explained."
    if len(names) > TARGETS_SHOWN:
        lead += f" These are the {TARGETS_SHOWN} of {len(names)} {plural} that the models differ most on."
    data = {
        "targets": [str(names[index]) for index in order],
        "models": [index for index, _ in rows],
        "gains": [[float(f"{gains[i, j]:.4g}") for j in order] for i in range(len(rows))],
        "low": low,
        "high": high,
        "shown": TARGETS_SHOWN,
        "columns": MODELS_SHOWN,
    }
    parts: list[object] = [
        _controls(len(names), plural) if len(names) > TARGETS_SHOWN else "",
        scrolling(_heat(view, rows[:MODELS_SHOWN], gains, [int(i) for i in shown], noun, low, high), f"Gain by {noun}"),
        _scale(low, high),
        json_script("targets-data", data),
    ]
    if len(rows) > MODELS_SHOWN:
        parts.insert(
            2, tag("p", f"The best {MODELS_SHOWN} models are shown; highlight another to add it.", class_="note")
        )
    return Section(anchor="targets", title=f"By {noun}", short=plural.capitalize(), lead=lead, body=join(parts))


def targets_chart(view: View) -> Chart:
    """The gain of the best models on the targets that models differ most on."""
    names = view.ranking.task.target_names
    rows = [(index, row) for index, row in enumerate(view.rows) if len(row.per_target) == len(names)]
    gains = np.array([row.per_target for _, row in rows])
    order = order_by_spread(gains)[: 2 * TARGETS_SHOWN]
    shown = gains[:MODELS_SHOWN, order].T
    low, high = colour_range(gains)
    models = [view.names[index] for index, _ in rows[:MODELS_SHOWN]]
    targets = [str(names[index]) for index in order]
    return Chart(
        draw=lambda frame: heat(
            frame, targets, models, shown, label="Gain by target", low=low, high=high, unit="nats gained"
        )
    )


def order_by_spread(gains: np.ndarray) -> np.ndarray:
    """Targets (columns), the one with the widest spread over models first; equal ones in their order."""
    return np.argsort(-(gains.max(axis=0) - gains.min(axis=0)), kind="stable")


def colour_range(gains: np.ndarray) -> tuple[float, float]:
    """The gains at the two ends of the colours: the least and the most, so that no cell is off the scale."""
    low, high = gains.min(), gains.max()
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    return float(low), float(high)


def _controls(count: int, plural: str) -> Markup:
    return tag(
        "form",
        tag(
            "label",
            tag("span", f"Find among {count} {plural}"),
            tag("input", type="search", id="target-filter", autocomplete="off"),
        ),
        tag("button", f"Show all {count}", type="button", id="target-all", aria_expanded="false"),
        tag("output", "", id="target-count", aria_live="polite"),
        class_="controls script-only",
        role="search",
        aria_label=f"Find {plural}",
    )


def _heat(
    view: View, rows: list[tuple[int, Row]], gains: np.ndarray, shown: list[int], noun: str, low: float, high: float
) -> Markup:
    head = [tag("th", noun.capitalize(), scope="col")]
    head += [
        tag("th", tag("span", shorten(view.names[index], 26)), scope="col", data_model=index, title=row.identifier)
        for index, row in rows
    ]
    names = view.ranking.task.target_names
    body = []
    for target in shown:
        cells = [tag("th", names[target], scope="row")]
        for place, (index, _) in enumerate(rows):
            value = float(gains[place, target])
            heat = min(1.0, max(0.0, (value - low) / (high - low)))
            cells.append(
                tag(
                    "td",
                    f"{value:.2f}",
                    style=f"--heat:{heat:.2f}",
                    class_="hot" if heat > 0.55 else None,
                    data_model=index,
                )
            )
        body.append(tag("tr", *cells))
    return tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body), class_="heat", id="heat")


def _scale(low: float, high: float) -> Markup:
    return tag(
        "div",
        tag("span", f"{low:.2f}"),
        tag("i", class_="ramp", aria_hidden="true"),
        tag("span", f"{high:.2f} nats"),
        class_="heat-scale",
    )
