"""The scores of the models with their error bars."""

from __future__ import annotations

from hubscout.report.charts.chart import Chart
from hubscout.report.charts.intervals import intervals
from hubscout.report.view import View
from hubscout.runs.row import Row

ERRORS_SHOWN = 2.0
"""Error bars reach this many standard errors each way."""
MODELS_DRAWN = 40
"""In the picture of scores."""


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
