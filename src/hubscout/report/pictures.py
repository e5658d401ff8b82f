"""The main charts of a run by their names: for `plot()`, notebooks and picture files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hubscout.errors import InputError, UnknownNameError
from hubscout.report.charts.chart import Chart
from hubscout.report.saved_run import Run, View
from hubscout.report.sections.agreement_section import agreement_chart, reference_chart
from hubscout.report.sections.logme_curves import convergence_charts, layers_chart
from hubscout.report.sections.score_sections import cost_chart, scores_chart, targets_chart
from hubscout.report.sections.tuning_sections import by_method, validation_chart


class UnknownPictureError(UnknownNameError):
    """No picture of this name, or not of this run."""

    what = "picture"


def _cost(view: View) -> Chart | None:
    return cost_chart(view, view.costs[0]) if view.costs else None


def _convergence(view: View) -> Chart | None:
    return next(iter(convergence_charts(view).values()), None)


def _tuning(run: Run) -> Chart | None:
    metric = next((found.primary for found in run.tuning if found.primary), None)
    return None if metric is None else validation_chart(by_method(run.tuning), metric)


OF_RANKINGS: dict[str, tuple[Callable[[View], Chart | None], str]] = {
    "scores": (scores_chart, ""),
    "cost": (_cost, "The cost of fewer than two of its models is known."),
    "metrics": (agreement_chart, "It has one metric, or one model."),
    "targets": (targets_chart, "Gains by target come with the metric logme, for two targets or more."),
    "layers": (layers_chart, "No layers were scanned: rank with layers='all'."),
    "convergence": (_convergence, "Facts about convergence come with the metric logme."),
}
OF_RUNS: dict[str, tuple[Callable[[Run], Chart | None], str]] = {
    "reference": (reference_chart, "It has no results of fine-tuning for two of its models or more."),
    "tuning": (_tuning, "It has no tuning curves."),
}
PICTURES = (*OF_RANKINGS, *OF_RUNS)


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
    chart = _make(run, what)
    if chart is None:
        _, reason = OF_RUNS[what] if what in OF_RUNS else OF_RANKINGS[what]
        if what in OF_RANKINGS and run.view is None:
            reason = "It has no ranked model."
        raise InputError(f"This run has nothing to draw for {what!r}. {reason}")
    return chart


def _make(run: Run, what: str) -> Chart | None:
    if what in OF_RUNS:
        return OF_RUNS[what][0](run)
    return None if run.view is None else OF_RANKINGS[what][0](run.view)


def write_pictures(run: Run, folder: str | Path, *, ending: str = "png", dots_per_inch: int = 200) -> list[Path]:
    """Write every picture that this run has something for into `folder`; returns their paths."""
    charts = {name: chart for name in PICTURES if (chart := _make(run, name)) is not None}
    return [
        chart.save(Path(folder) / f"{name}.{ending}", dots_per_inch=dots_per_inch) for name, chart in charts.items()
    ]
