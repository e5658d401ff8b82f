"""The main charts of a run by their names: for `plot()`, notebooks and picture files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hubscout.errors import InputError, UnknownNameError
from hubscout.report.charts.chart import Chart
from hubscout.report.saved_run import Run, View
from hubscout.report.sections.metric_sections import (
    agreement_chart,
    convergence_charts,
    layers_chart,
    reference_chart,
)
from hubscout.report.sections.score_sections import cost_chart, scores_chart, targets_chart
from hubscout.report.sections.tuning_sections import by_method, validation_chart


class UnknownPictureError(UnknownNameError):
    """No picture of this name, or not of this run."""

    what = "picture"


def _tuning(run: Run) -> Chart | None:
    metric = next((found.primary for found in run.tuning if found.primary), None)
    return None if metric is None else validation_chart(by_method(run.tuning), metric)


def _of_ranking(make: Callable[[View], Chart | None]) -> Callable[[Run], Chart | None]:
    return lambda run: None if run.view is None else make(run.view)


PICTURES: dict[str, tuple[Callable[[Run], Chart | None], str]] = {
    "scores": (_of_ranking(scores_chart), "It has no ranked model."),
    "cost": (
        _of_ranking(lambda view: cost_chart(view, view.costs[0]) if view.costs else None),
        "The cost of fewer than two of its models is known.",
    ),
    "metrics": (_of_ranking(agreement_chart), "It has one metric, or one model."),
    "targets": (_of_ranking(targets_chart), "Gains by target come with the metric logme, for two targets or more."),
    "layers": (_of_ranking(layers_chart), "No layers were scanned: rank with layers='all'."),
    "convergence": (
        _of_ranking(lambda view: next(iter(convergence_charts(view).values()), None)),
        "Facts about convergence come with the metric logme.",
    ),
    "reference": (reference_chart, "It has no results of fine-tuning for two of its models or more."),
    "tuning": (_tuning, "It has no tuning curves."),
}
"""What makes each, and why it may be missing."""


def draw(run: Run, what: str) -> Chart:
    """One picture of a run.

    Args:
        run: What `open_run` gives.
        what: Its name, one of `PICTURES`.

    Returns:
        The chart: shown by a notebook, saved by `save`.

    Raises:
        UnknownPictureError: There is no picture of this name.
        InputError: The run has nothing to draw for it.

    Example:
        >>> draw(open_run("run/"), "cost").save("cost.pdf")  # doctest: +SKIP
    """
    if what not in PICTURES:
        raise UnknownPictureError(what, PICTURES)
    make, reason = PICTURES[what]
    chart = make(run)
    if chart is None:
        if run.view is None and what not in ("reference", "tuning"):
            reason = "It has no ranked model."
        raise InputError(f"This run has nothing to draw for {what!r}. {reason}")
    return chart


def write_pictures(run: Run, folder: str | Path, *, ending: str = "png") -> list[Path]:
    """Write every picture that this run has something for into `folder`; returns their paths."""
    charts = {name: chart for name, (make, _) in PICTURES.items() if (chart := make(run)) is not None}
    return [chart.save(Path(folder) / f"{name}.{ending}") for name, chart in charts.items()]
