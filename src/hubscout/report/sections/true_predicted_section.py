"""Regression: predicted numbers against the true ones."""

from __future__ import annotations

from functools import partial

from hubscout.report.charts.axes import Frame
from hubscout.report.charts.chart import Chart
from hubscout.report.charts.true_predicted import true_predicted
from hubscout.report.markup import Markup, table, tag
from hubscout.report.saved_run import Run
from hubscout.report.sections.section import Section, selector
from hubscout.report.tuning_runs import evaluated, whose
from hubscout.runs.evaluation_record import EvaluationRecord

MOST_TARGETS = 12
SQUARE = Frame(width=640, height=540)


def true_predicted_section(run: Run) -> Section | None:
    """A scatter plot per target, of which one is shown."""
    chosen = evaluated(run.tuning)
    found = chosen.evaluation if chosen is not None else None
    if chosen is None or found is None or not found.pairs:
        return None
    places = sorted({pair.target for pair in found.pairs})[:MOST_TARGETS]
    charts = [tag("div", true_predicted_chart(found, place).html(), class_="square") for place in places]
    choices = [(f"number-{place}", found.target_names[place]) for place in places]
    drawn = sum(pair.target == places[0] for pair in found.pairs)
    lead = f"{found.split.capitalize()} samples{whose(run.tuning, chosen)}"
    lead += f", {drawn:,} of {found.samples:,} at random." if drawn < found.samples else "."
    body: Markup = selector("numbers", "Target", choices, charts)
    return Section(anchor="numbers", title="Predicted against true", short="Predicted", lead=lead, body=body)


def true_predicted_chart(found: EvaluationRecord, place: int) -> Chart:
    """The chart of one target."""
    pairs = [(pair.true, pair.predicted) for pair in found.pairs if pair.target == place]
    name = found.target_names[place]
    label = f"Predicted against true {name} of {len(pairs)} samples"
    numbers = table(("True", "Predicted"), [(f"{true:.4g}", f"{said:.4g}") for true, said in pairs])
    return Chart(draw=partial(true_predicted, pairs=pairs, label=label, name=name), numbers=numbers, wide=SQUARE)
