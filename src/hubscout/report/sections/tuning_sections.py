"""A tuning: how good the model is and against what, how each method went, and where it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from hubscout.grouping import grouped
from hubscout.metric_texts import bounds_text, difference_text, metric_text
from hubscout.report.answer import data_of_command, shell_command
from hubscout.report.charts.chart import Chart, metric_ticks
from hubscout.report.charts.lines import COLOURS, Curve, curve_heights, lines
from hubscout.report.markup import Markup, Section, copyable, definitions, join, scrolling, switch, table, tag
from hubscout.report.saved_run import Run
from hubscout.runs.evaluation_record import achieved, conclusion
from hubscout.runs.run_folder import RACE_DEPLOYED, RACE_WINNER
from hubscout.runs.texts import counted, human_seconds, listing, names_by_model, short_name, short_names
from hubscout.runs.tuning_record import TuningRun

STRETCHES = 60
"""That the steps of a run are cut into, for the curves of its losses."""


def by_method(runs: Iterable[TuningRun]) -> dict[str, list[TuningRun]]:
    """Runs that differ in their seed alone, together under the name of their method.

    Where one method was run on several models, the model is part of the name.
    """
    runs = list(runs)
    short = names_by_model(run.model for run in runs if run.model)
    several = len(short) > 1
    return grouped((f"{run.method}, {short[run.model]}" if run.model and several else run.method, run) for run in runs)


def evaluated(runs: Iterable[TuningRun]) -> TuningRun | None:
    """The run whose samples are shown: of those that were evaluated the best, by validation where there is one."""
    known = [run for run in runs if run.evaluation is not None]

    def merit(run: TuningRun) -> float:
        measured = run.first_metric("validation", "test")
        return -np.inf if measured is None or np.isnan(measured[2][0]) else measured[2][0]

    return max(known, key=merit, default=None)


def whose(runs: Sequence[TuningRun], chosen: TuningRun) -> str:
    """Which of several runs something is of, in words; nothing where there is only one that was asked for."""
    models = {RACE_WINNER: " of the winner", RACE_DEPLOYED: " of the model to deploy"}
    return models.get(chosen.name) or (f" of {chosen.name}" if len(runs) > 1 else "")


def validation_curve(method: str, runs: list[TuningRun], metric: str) -> Curve | None:
    """The validation metric over epochs; seeds are averaged where they were validated at the same epoch."""
    lines = [line for run in runs for line in run.validation if metric in line["metrics"]]
    values = grouped((round(float(one.get("epoch", one["step"])), 4), float(one["metrics"][metric])) for one in lines)
    return _curve(method, values, len(runs)) if values else None


def loss_curves(runs: list[TuningRun]) -> list[Curve]:
    """The parts of the loss over steps: means of so many stretches, over all runs."""
    parts = dict.fromkeys(part for run in runs for line in run.losses for part in line["parts"])
    last = max((int(line["step"]) for run in runs for line in run.losses), default=0)
    width = max(1.0, last / STRETCHES)

    def means(run: TuningRun, part: str) -> Iterator[tuple[float, float]]:
        there = [line for line in run.losses if part in line["parts"]]
        found = grouped(((int((line["step"] - 1) // width) + 0.5) * width, line["parts"][part]) for line in there)
        return ((centre, float(np.mean(values))) for centre, values in found.items())

    found = {part: grouped(one for run in runs for one in means(run, part)) for part in parts}
    return [_curve(part, values, len(runs)) for part, values in found.items()]


def _curve(name: str, values: Mapping[float, list[float]], runs: int) -> Curve:
    """The means, with a band from the least to the most where there are several runs."""
    places = sorted(values)
    return Curve(
        name=name,
        x=places,
        y=[float(np.mean(values[place])) for place in places],
        low=[min(values[place]) for place in places] if runs > 1 else (),
        high=[max(values[place]) for place in places] if runs > 1 else (),
    )


def coloured(
    curves: Sequence[Curve], tip: Callable[[str, float, float], str] | None = None, most: int = 60
) -> list[Curve]:
    """The curves with a colour each; `tip` makes what is said at (name, x, y) of curves of at most so many points."""
    made = []
    for place, curve in enumerate(curves):
        tips = []
        if tip is not None and len(curve.x) <= most:
            tips = [tip(curve.name, x, y) for x, y in zip(curve.x, curve.y, strict=True)]
        made.append(replace(curve, colour=place if place < COLOURS else None, tips=tips))
    return made


def tuning_answer(run: Run) -> Section:
    """The answer in two sentences; while nothing is measured yet, that."""
    measured = [one for one in run.tuning if achieved(one) is not None]
    single = run.tuning[0] if len(run.tuning) == 1 else None
    warnings = list(dict.fromkeys(one.warning for one in run.tuning if one.warning))
    if not measured:
        words: list[object] = ["Nothing is measured yet: the model is tested when its training is over."]
    elif single is not None:
        model = tag("strong", _short(single.model), class_="model", title=single.model)
        words = [model, f", {_taught(single)}. ", conclusion(single, _short)]
    else:
        words = _best_method(measured)
    parts: list[object] = [tag("p", *words, class_="answer")]
    if single is not None and measured:
        time = [("Time", human_seconds(single.seconds), counted(single.steps, "step"))] if single.seconds else []
        parts.append(definitions([*result_facts(single), *time]))
    failed = [f"{method} could not be run: {reason}" for method, reason in run.failed_methods.items()]
    parts += [tag("p", told, class_="caveat") for told in (*warnings, *failed)]
    if single is not None and measured and (command := _next_command(run, single)):
        parts.append(copyable(command, "Run next"))
    return Section(anchor="answer", title="The answer", short="Answer", body=join(parts))


def _short(identifier: str) -> str:
    return short_name(identifier) if identifier else "The model"


def _taught(run: TuningRun) -> str:
    if run.is_linear_probe:
        return "as a linear probe"
    words = {"fine-tune": "fine-tuned", "": "tuned"}.get(run.method, f"tuned by {run.method}")
    if run.method == "b-tuning" and not run.teachers:
        words = "tuned"  # by the labels, as `tune` does by default: no method that a reader would know
    return f"{words}, taught by {listing(short_names(list(run.teachers)))}" if run.teachers else words


def _best_method(runs: Sequence[TuningRun]) -> list[object]:
    """Which of several methods are best on average over their seeds, and by how much."""
    methods = by_method(runs)
    told = [
        (float(np.mean(values)), values, name)
        for name, group in methods.items()
        if (values := [found.value for one in group if (found := achieved(one)) is not None])
    ]
    told.sort(key=lambda one: -one[0])
    first = achieved(runs[0])
    assert first is not None
    text = partial(metric_text, first.metric)

    def spread(values: Sequence[float]) -> str:
        deviation = "" if len(values) < 2 else text(float(np.std(values, ddof=1))).removesuffix("%")
        return f" ± {deviation} over {len(values)} seeds" if deviation else ""

    value = text(told[0][0])
    level = [name for mean, _, name in told if text(mean) == value]
    spreads = {spread(values) for _, values, name in told if name in level}
    value += spreads.pop() if len(spreads) == 1 else " on average"
    if len(told) == 1:
        words = f": {first.split} {first.metric} {value}."
    elif len(level) == 1:
        words = f" has the best {first.split} {first.metric} of {len(told)} methods: {value}."
    else:
        of = "" if len(level) == len(told) else f" and the best of {len(told)} methods"
        words = f" are level{of}: {first.split} {first.metric} {value}."
    others = [f"{other} {text(mean)}" for mean, _, other in told[len(level) :]]
    words += f" Then {listing(others)}." if others else ""
    probes = [name for _, _, name in told if all(one.is_linear_probe for one in methods[name])]
    if probes:
        whose = "each" if len(probes) == len(told) > 1 else listing(probes)
        trained = any(one.steps for name in probes for one in methods[name])
        why = ": training did not come up to it" if trained else ""
        words += f" The model of {whose} is the linear probe of its frozen features{why}."
    words += f" Guessing gives {text(first.guess)}." if first.guess is not None else ""
    return [tag("strong", listing(level), class_="model"), words]


def result_facts(run: TuningRun) -> list[tuple[str, str, str]]:
    """What a model is worth, and against what; nothing where it was not measured."""
    found = achieved(run)
    if found is None:
        return []
    value, low, high = found.interval
    text, bounds = partial(metric_text, found.metric), bounds_text(found.metric, low, high, " to ")
    facts = [(f"{found.split.capitalize()} {found.metric}", text(value), bounds)]
    names = ("Linear probe", "Best teacher's probe") if "model" in run.probes else ("Best teacher's probe",)
    for name, rival in zip(names, found.rivals, strict=False):
        gained = difference_text(found.metric, value - rival.value, sign=True)
        told = f"{gained} by {'the model' if run.is_linear_probe else 'tuning'}"
        if run.is_linear_probe and name == "Linear probe":
            told = "the model itself"
        facts.append((name, text(rival.value), told))
    if found.guess is not None:
        facts.append(("Guessing", text(found.guess), ""))
    if run.sizes.get(found.split):
        facts.append((f"{found.split.capitalize()} samples", f"{run.sizes[found.split]:,}", ""))
    return facts


def _next_command(run: Run, one: TuningRun) -> str:
    """Use the model; where it is worse than guessing, look for another one. Empty where it is not in a folder."""
    if one.warning:
        data = data_of_command(one.environment, "tune") or "DATA"
        return shell_command(["hubscout", "rank", data, "--out", "ranking/"])
    return "" if run.folder is None else predict_command(run.folder, one.model)


def predict_command(folder: Path, model: str) -> str:
    """Use the model in a folder; bare weights of a network that only code builds need leave to run it."""
    by_code = model.startswith("python:") and not (folder / "config.json").is_file()
    return shell_command(["hubscout", "predict", f"{folder}/", "INPUTS", *(["--allow-code"] if by_code else [])])


def tuning_section(run: Run) -> Section | None:
    """Curves of each method with bands over seeds, the parts of the loss, and a final table."""
    if not run.tuning:
        return None
    groups = by_method(run.tuning)
    primary = next((found.primary for found in run.tuning if found.primary), None)
    parts: list[Markup] = []
    results = _results(groups)
    if results is not None:
        told = "Mean ± standard deviation over seeds; for a single seed the 95% interval over samples."
        parts += [tag("p", told, class_="note"), scrolling(results, "Results of tuning")]
    if primary is not None:
        chart = validation_chart(groups, primary)
        parts += [tag("h3", f"Validation {primary}"), chart.html()] if chart is not None else []
    parts += _losses(groups)
    notes = list(dict.fromkeys(note for found in run.tuning for note in found.notes))
    if notes:
        parts += [tag("h3", "Notes"), tag("ul", *(tag("li", note) for note in notes))]
    return Section(anchor="tuning", title="Tuning", lead=_lead(run.tuning), body=join(parts))


def _lead(runs: tuple[TuningRun, ...]) -> str:
    models = listing([*names_by_model(run.model for run in runs if run.model).values()])
    teachers = listing([*names_by_model(teacher for run in runs for teacher in run.teachers).values()])
    words = (f"{models} tuned" if models else "Tuned") + (f", taught by {teachers}" if teachers else "")
    return f"{words}. {counted(len(runs), 'run')}."


def _results(groups: dict[str, list[TuningRun]]) -> Markup | None:
    """One line per method: the mean over seeds with its deviation, or the bootstrap interval of the only seed."""
    columns = list(
        dict.fromkeys(
            (split, metric)
            for runs in groups.values()
            for run in runs
            for split in sorted(run.metrics, key=lambda name: name != "test")
            for metric in run.metrics[split]
        )
    )
    if not columns:
        return None
    rows = []
    for method, runs in groups.items():
        cells: list[object] = [method, str(len(runs))]
        for split, metric in columns:
            found = [run.metrics[split][metric] for run in runs if metric in run.metrics.get(split, {})]
            cells.append(_interval(metric, found))
        rows.append(cells)
    heads = ["Method", "Seeds", *(f"{metric}, {split}" for split, metric in columns)]
    return table(heads, rows)


def _interval(metric: str, found: list[tuple[float, float, float]]) -> Markup:
    if not found:
        return join(["–"])
    if len(found) == 1:
        value, low, high = found[0]
        bounds = tag("small", bounds_text(metric, low, high, " … ")) if low < high else ""
        return join([f"{metric_text(metric, value)} ", bounds])
    values = [value for value, _, _ in found]
    deviation = metric_text(metric, float(np.std(values, ddof=1))).removesuffix("%")
    return join([f"{metric_text(metric, float(np.mean(values)))} ", tag("small", f"± {deviation}")])


def validation_chart(groups: dict[str, list[TuningRun]], metric: str) -> Chart | None:
    """The validation metric of each method over epochs, with bands over seeds."""
    found = [validation_curve(method, runs, metric) for method, runs in groups.items()]
    curves = [curve for curve in found if curve is not None]
    if not curves:
        return None
    drawn = coloured(
        curves, lambda name, epoch, value: f"{name}\nepoch {epoch:g}: {metric} {metric_text(metric, value)}"
    )
    numbers = [
        (curve.name, f"{epoch:g}", *(metric_text(metric, value) for value in values))
        for curve in curves
        for epoch, *values in zip(curve.x, curve.y, curve.low or curve.y, curve.high or curve.y, strict=True)
    ]
    return Chart(
        draw=lambda frame: lines(
            frame,
            drawn,
            label=f"Validation {metric} of each method over epochs",
            x_title="Epoch",
            whole_x=True,
            y_title=f"Validation {metric}",
            y_format=metric_ticks(metric),
        ),
        caption="Bands reach from the worst to the best seed." if any(curve.low for curve in curves) else "",
        numbers=table(("Method", "Epoch", f"{metric}, mean", "Lowest", "Highest"), numbers),
    )


def _losses(groups: dict[str, list[TuningRun]]) -> list[Markup]:
    found = {method: coloured(curves) for method, runs in groups.items() if (curves := loss_curves(runs))}
    heights = [height for curves in found.values() for height in curve_heights(curves)]
    choices = [(f"loss-{place}", method) for place, method in enumerate(found)]
    panels = [_loss_chart(method, curves, heights).html() for method, curves in found.items()]
    return [tag("h3", "Parts of the loss"), switch("losses", "Method", choices, panels)] if found else []


def _loss_chart(method: str, curves: list[Curve], heights: list[float]) -> Chart:
    label = f"Parts of the loss of {method} over steps"
    rows = [(c.name, f"{step:.0f}", f"{mean:.4g}") for c in curves for step, mean in zip(c.x, c.y, strict=True)]
    return Chart(
        draw=lambda frame: lines(frame, curves, label=label, x_title="Step", y_title="Loss", shared_y=heights),
        numbers=table(("Part", "Step", "Mean"), rows),
    )
