"""Static pictures of the main plots, for papers and notebooks: matplotlib figures from the same numbers as the page."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hubscout.errors import InputError, UnknownNameError
from hubscout.report.names import shorten
from hubscout.report.picture_frame import (
    BLUE,
    GREY,
    ORANGE,
    SERIES,
    logarithmic_axis,
    new_figure,
    plain,
    reach,
    write_names,
)
from hubscout.report.run import Run
from hubscout.report.sections.cost import front_of
from hubscout.report.sections.layers import FINAL
from hubscout.report.sections.ranking import ERRORS_SHOWN
from hubscout.report.sections.targets import MODELS_SHOWN, TARGETS_SHOWN, order_by_spread
from hubscout.report.tuning_runs import by_method, validation_curve
from hubscout.report.view import PRICES, View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODELS_DRAWN = 40


class UnknownPictureError(UnknownNameError):
    """No picture of this name, or not of this run."""

    what = "picture"


def _errors(values: list[float | None]) -> list[float]:
    return [ERRORS_SHOWN * (value or 0.0) for value in values]


def _view(run: Run) -> View:
    view = run.view
    if view is None:
        raise InputError("This run has no ranked model to draw.")
    return view


def draw_scores(run: Run) -> Figure:
    """Scores with error bars, best on top."""
    view = _view(run)
    rows = view.rows[:MODELS_DRAWN]
    figure, axis = new_figure(6.4, max(2.2, 0.9 + 0.27 * len(rows)))
    places = np.arange(len(rows))[::-1]
    scores = [row.score for row in rows]
    errors = _errors([row.standard_error for row in rows])
    colours = [BLUE if row.tied_with_best else GREY for row in rows]
    axis.errorbar(scores, places, xerr=errors, fmt="none", ecolor=colours)
    axis.scatter(scores, places, c=colours, zorder=3, s=28)
    axis.set_yticks(places, [plain(shorten(view.names[index])) for index in range(len(rows))])
    axis.set_xlim(*reach(scores, errors))
    axis.set_xlabel(f"{view.metric} (± {ERRORS_SHOWN:g} standard errors)")
    if len(view.ranking.tied_with_best) > 1:
        axis.set_title("models in blue cannot be told apart from the best", fontsize=9)
    axis.grid(axis="x", alpha=0.3)
    return figure


def draw_cost(run: Run, cost: str = "params") -> Figure:
    """Score against cost, with the Pareto front."""
    view = _view(run)
    price = next((found for found in PRICES if found.name == cost), None)
    if price is None:
        raise InputError(f"cost must be one of {', '.join(found.name for found in PRICES)}, not {cost!r}.")
    rows = [(index, row) for index, row in enumerate(view.rows) if row.dropped is None]
    known = [(index, row, value) for index, row in rows if (value := price.of(row)) is not None]
    if not known:
        raise InputError(f"No model of this run has a known cost {cost!r}.")
    figure, axis = new_figure()
    scores = [row.score for _, row, _ in known]
    colours = [BLUE if row.tied_with_best else GREY for _, row, _ in known]
    values = [value for _, _, value in known]
    errors = _errors([row.standard_error for _, row, _ in known])
    axis.errorbar(values, scores, yerr=errors, fmt="none", ecolor=colours, alpha=0.6)
    axis.scatter(values, scores, c=colours, zorder=3, s=28)
    front = front_of(view.ranking, price)
    axis.step(
        [price.of(row) for row in front],
        [row.score for row in front],
        where="post",
        color=ORANGE,
        linestyle="--",
        linewidth=1.2,
        label="Pareto front",
    )
    corners = [(price.of(row) or 0.0, row.score) for row in front]
    axis.set_ylim(*reach(scores, errors))
    logarithmic_axis(axis, values, price.words)
    axis.set_xlabel(price.title)
    axis.set_ylabel(view.metric)
    axis.legend(fontsize=8, frameon=False, loc="upper left")
    on_front = {row.identifier for row in front}
    named = sorted(known, key=lambda entry: (entry[1].identifier not in on_front, entry[1].rank))
    steps = [((a[0], a[1]), (b[0], a[1])) for a, b in pairwise(corners)]
    write_names(figure, axis, [(value, row.score, view.names[index]) for index, row, value in named], avoid=steps)
    return figure


def draw_metrics(run: Run) -> Figure:
    """The agreement matrix of the metrics."""
    view = _view(run)
    agreement = view.ranking.agreement()
    names = [plain(name) for name in agreement.metrics]
    size = 1.8 + 0.5 * len(names)
    figure, axis = new_figure(size + 0.6, size)
    image = axis.imshow(agreement.weighted_tau, vmin=-1, vmax=1, cmap="RdBu")
    for i in range(len(names)):
        for j in range(len(names)):
            value = agreement.weighted_tau[i, j]
            axis.text(
                j, i, f"{value:.2f}", ha="center", va="center", fontsize=7, color="w" if abs(value) > 0.6 else "k"
            )
    axis.set_xticks(range(len(names)), names, rotation=45, ha="right")
    axis.set_yticks(range(len(names)), names)
    figure.colorbar(image, ax=axis, shrink=0.7, label="weighted tau")
    return figure


def draw_reference(run: Run) -> Figure:
    """The first metric against known results, with the weighted tau in the title as in the paper's figures."""
    view = _view(run)
    if run.reference is None:
        raise InputError("This run has no reference results.")
    found = view.ranking.evaluate(run.reference, better=run.better).metrics[view.metric]
    rows = [row for row in view.ranking.compared if row.identifier in run.reference]
    figure, axis = new_figure()
    axis.scatter([row.scores[view.metric] for row in rows], [run.reference[row.identifier] for row in rows], c=BLUE)
    axis.set_xlabel(view.metric)
    axis.set_ylabel("result of fine-tuning")
    axis.set_title(f"{plain(view.metric)}: $\\tau_w$ = {found.weighted_tau:.2f}")
    axis.margins(0.1)
    points = [(row.scores[view.metric], run.reference[row.identifier], view.short[row.identifier]) for row in rows]
    write_names(figure, axis, points)
    return figure


def draw_targets(run: Run) -> Figure:
    """The gain by target as a heat map: the targets that models differ most on."""
    view = _view(run)
    names = view.ranking.task.target_names
    rows = [(i, row) for i, row in enumerate(view.rows) if len(row.per_target) == len(names)][:MODELS_SHOWN]
    if not rows:
        raise InputError("This run has no gains by target: they come with the metric logme.")
    gains = np.array([row.per_target for _, row in rows])
    order = order_by_spread(gains)[: 2 * TARGETS_SHOWN]
    figure, axis = new_figure(2.5 + 0.36 * len(rows), 2.2 + 0.22 * len(order))
    image = axis.imshow(gains[:, order].T, aspect="auto", cmap="Blues")
    axis.set_xticks(range(len(rows)), [plain(shorten(view.names[i], 26)) for i, _ in rows], rotation=60, ha="right")
    axis.set_yticks(range(len(order)), [plain(shorten(str(names[i]), 26)) for i in order])
    figure.colorbar(image, ax=axis, label="gain over base rates (nats per sample)")
    return figure


def draw_layers(run: Run) -> Figure:
    """LogME along the depth of the best models whose layers were scanned."""
    view = _view(run)
    scanned = [(index, row) for index, row in enumerate(view.rows) if len(row.layers) > 1][: len(SERIES)]
    if not scanned:
        raise InputError("No layers were scanned in this run: rank with layers='all'.")
    figure, axis = new_figure()
    for colour, (index, row) in zip(SERIES, scanned, strict=False):
        layers = sorted(row.layers, key=lambda layer: not layer.name)
        axis.plot(
            np.linspace(0, 1, len(layers)),
            [layer.score for layer in layers],
            marker="o",
            markersize=3,
            color=colour,
            label=plain(shorten(view.names[index])),
        )
    axis.set_xlabel(f"depth (1 = {FINAL})")
    axis.set_ylabel("LogME")
    axis.legend(fontsize=7, frameon=False)
    return figure


def draw_convergence(run: Run) -> Figure:
    """f(t) against t for a few targets of the best model that has them."""
    view = _view(run)
    found = next(((i, row.convergence) for i, row in enumerate(view.rows) if row.convergence is not None), None)
    if found is None:
        raise InputError("This run has no convergence facts: they come with the metric logme.")
    index, convergence = found
    figure, axis = new_figure()
    axis.loglog(convergence.t, convergence.t, color=GREY, linestyle="--", linewidth=1)
    for colour, target, mapped, fixed in zip(
        SERIES, convergence.targets, convergence.mapped, convergence.fixed_points, strict=False
    ):
        axis.loglog(convergence.t, mapped, color=colour, label=plain(shorten(target)))
        if fixed is not None:
            axis.plot(fixed, fixed, marker="o", color=colour)
    axis.set_ylim(convergence.t[0], convergence.t[-1])
    axis.set_xlabel("t")
    axis.set_ylabel("f(t)")
    axis.set_title(plain(view.names[index]), fontsize=9)
    axis.legend(fontsize=7, frameon=False)
    return figure


def draw_tuning(run: Run) -> Figure:
    """The validation metric of each method over epochs, with bands over seeds."""
    metric = next((found.primary for found in run.tuning if found.primary), None)
    if metric is None:
        raise InputError("This run has no tuning curves.")
    figure, axis = new_figure()
    for place, (method, runs) in enumerate(by_method(run.tuning).items()):
        curve = validation_curve(method, runs, metric)
        if curve is None:
            continue
        colour = SERIES[place % len(SERIES)]
        axis.plot(curve.epochs, curve.mean, color=colour, label=plain(method), marker="o", markersize=3)
        if curve.runs > 1:
            axis.fill_between(curve.epochs, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
    axis.set_xlabel("epoch")
    axis.set_ylabel(f"validation {metric}")
    axis.legend(fontsize=8, frameon=False)
    return figure


PICTURES: dict[str, Callable[[Run], Figure]] = {
    "scores": draw_scores,
    "cost": draw_cost,
    "metrics": draw_metrics,
    "reference": draw_reference,
    "targets": draw_targets,
    "layers": draw_layers,
    "convergence": draw_convergence,
    "tuning": draw_tuning,
}


def draw(run: Run, what: str) -> Figure:
    """One picture by its name; see `PICTURES`."""
    if what not in PICTURES:
        raise UnknownPictureError(what, PICTURES)
    return PICTURES[what](run)


def write_pictures(run: Run, folder: str | Path, *, dots_per_inch: int = 200) -> list[Path]:
    """Write every picture that this run has something for into `folder`; returns their paths."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    written = []
    for name in available(run):
        path = place / f"{name}.png"
        draw(run, name).savefig(path, dpi=dots_per_inch)
        written.append(path)
    return written


def available(run: Run) -> list[str]:
    """The names of the pictures that this run has something for."""
    view = run.view
    rows = view.rows if view is not None else ()
    there = {
        "scores": bool(rows),
        "cost": sum(bool(row.params) for row in rows) > 1,
        "metrics": view is not None and len(view.ranking.metrics) > 1 and len(view.ranking.compared) > 1,
        "reference": view is not None
        and run.reference is not None
        and sum(row.identifier in run.reference for row in view.ranking.compared) > 1,
        "targets": view is not None and len(view.ranking.task.target_names) > 1 and any(r.per_target for r in rows),
        "layers": any(len(row.layers) > 1 for row in rows),
        "convergence": any(row.convergence is not None for row in rows),
        "tuning": any(found.validation for found in run.tuning),
    }
    return [name for name in PICTURES if there[name]]
