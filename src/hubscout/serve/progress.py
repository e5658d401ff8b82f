"""How far a run is, told by its lines: what the page shows while a ranking, a race or a tuning is going on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from hubscout.errors import RunError
from hubscout.metric_texts import metric_text
from hubscout.report.charts.chart import WIDE, Chart, metric_ticks
from hubscout.report.charts.lines import Curve, lines
from hubscout.report.markup import Markup, breakable, definitions, fill, join, tag
from hubscout.report.sections.race_sections import race_panel
from hubscout.report.sections.tuning_sections import coloured, loss_curves, validation_curve
from hubscout.runs.race_display import race_status
from hubscout.runs.race_record import RaceRecord
from hubscout.runs.record_types import is_number
from hubscout.runs.row import Cause, cause_of
from hubscout.runs.run_folder import CURVES, EVENTS, RACE_EVIDENCE, RACE_LINES
from hubscout.runs.texts import counted, human_seconds, names_by_model, short_names
from hubscout.runs.tuning_record import TuningRecord, tuning_run
from hubscout.serve.served_folder import as_dict, as_list, as_number

ModelStatus = Literal["done", "dropped", "running", "waiting", "unfinished", "failed", "not reached", "over the limits"]
ORDER: tuple[ModelStatus, ...] = get_args(ModelStatus)
"""Of the table."""
STEPS_KEPT = 1500
OPENING = "Opening the data and the first model. Nothing has been written yet."
EARLIER = "finished in an earlier run"
OF_ARMS = ("arms/", "folds/", "lessons/", "refit/", "winner/", "deployed/")
"""Folders of a race in which networks are tuned."""
CHART = replace(WIDE, height=300)


@dataclass
class Model:
    """One model of a ranking that is going on."""

    status: ModelStatus = "waiting"
    score: float | None = None
    seconds: float | None = None
    since: float | None = None
    samples: int = 0
    rows: int = 0
    """Samples in all, where the model says so while it runs."""
    note: str = ""

    @property
    def done(self) -> float:
        """The share of its work that is done, however it ended."""
        if self.status == "running" and self.rows:
            return min(self.samples / self.rows, 1.0)
        return float(self.status not in {"running", "waiting", "unfinished"})


@dataclass
class Progress:
    """Takes the lines of a run one by one, and shows where they have led."""

    models: dict[str, Model] = field(default_factory=dict)
    curves: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    race: RaceRecord | None = None
    over: bool = False
    began: float | None = None
    of_race: bool = False
    """Whether the models are ranked for a race, which goes on after that."""
    printed: str = ""
    """The last line that the process printed: all there is to show before the first event."""

    def take(self, file: str, line: Mapping[str, Any]) -> None:
        """Count one line of `file` in."""
        if file == RACE_LINES:
            self.race = self.race or RaceRecord()
            with suppress(RunError):  # a line that is none is passed over
                self.race.take(line)
        elif file in (EVENTS, f"{RACE_EVIDENCE}/{EVENTS}"):
            self.of_race = file != EVENTS
            self._take_event(line)
        elif file.startswith(OF_ARMS):
            return  # the curves of single arms: a race shows their rungs
        elif file.endswith(CURVES):
            self._take_tuning(file.removesuffix(CURVES).rstrip("/"), line)

    def _take_event(self, line: Mapping[str, Any]) -> None:
        event, name = line.get("event"), str(line.get("model") or "")
        if event == "started":
            self.began = as_number(line.get("time"))
            self.models = {str(model): Model() for model in as_list(line.get("models"))}
            self.models |= {str(model): Model("done", note=EARLIER) for model in as_list(line.get("taken_over"))}
        elif event == "finished":
            self.over = True
        if not name:
            return
        model = self.models.setdefault(name, Model())
        if event == "model-started":
            model.status, model.since = "running", as_number(line.get("time"))
        elif event == "model-advanced":
            model.samples, model.rows = _count(line.get("n")), _count(line.get("rows"))
        elif event == "model-finished":
            model.status, model.samples = "done", _count(line.get("n"))
            model.score, model.seconds = as_number(line.get("score")), as_number(line.get("seconds"))
        elif event == "model-failed":
            model.status = cause_of(str(line.get("error")))
            told = f"{line.get('error')}: " if model.status == "failed" else ""
            model.note = f"{told}{line.get('reason')}"
        elif event == "dropped":
            model.status, model.note = "dropped", str(line.get("reason") or "")

    def _take_tuning(self, name: str, line: Mapping[str, Any]) -> None:
        kept = self.curves.setdefault(name, [])
        kept.append(dict(line))
        steps = [entry for entry in kept if entry.get("event") == "step"] if len(kept) > 2 * STEPS_KEPT else []
        if len(steps) > STEPS_KEPT:  # every second one draws the same curve
            gone = {id(entry) for entry in steps[1::2]}
            self.curves[name] = [entry for entry in kept if id(entry) not in gone]

    def halt(self) -> None:
        """The process is gone: what was running will not be finished, and no time passes any more."""
        self.over = True
        for model in self.models.values():
            if model.status in {"running", "waiting"}:
                model.status = "unfinished"

    @property
    def status(self) -> str:
        """One sentence for those who listen."""
        if self.race is not None:
            return race_status(self.race)
        if self.models:
            statuses = [model.status for model in self.models.values()]
            done = statuses.count("done") + statuses.count("dropped")
            running = [name for name, model in self.models.items() if model.status == "running"]
            words = f"{'Stage 1, evidence: ' if self.of_race else ''}{done} of {len(self.models)} models done"
            words += "".join(f", {statuses.count(cause)} {cause}" for cause in get_args(Cause) if cause in statuses)
            return f"{words}; now {', '.join(short_names(running))}" if running and not self.over else words
        if not self.curves:
            return OPENING
        step = max((_count(line.get("step")) for kept in self.curves.values() for line in kept[-1:]), default=0)
        return f"{counted(len(self.curves), 'run')}, step {step}"

    def markup(self) -> Markup:
        """The panel."""
        if self.race is not None:
            return race_panel(self.race)
        if self.models:
            names = names_by_model(self.models)
            done = sum(model.done for model in self.models.values())
            bar = tag("progress", value=done, max=len(self.models), aria_label="Models done")
            head = [] if self.over else [self._ranking_header(names, done), bar]
            return join([*head, self._table(names)])
        if self.curves:
            return join([*([] if self.over else [_tuning_header(self.curves)]), *self._charts()])
        return tag("p", self.printed, class_="log") if self.printed else tag("p", OPENING, class_="note")

    def _ranking_header(self, names: Mapping[str, str], done: float) -> Markup:
        models = self.models.values()
        best = max(
            ((model.score, names[key]) for key, model in self.models.items() if model.score is not None), default=None
        )
        samples, earlier = sum(model.samples for model in models), sum(model.note == EARLIER for model in models)
        elapsed = None if self.began is None else max(0.0, time.time() - self.began)
        facts: dict[str, object] = {"Elapsed": whole_seconds(elapsed)}
        if not self.of_race:
            facts["Time left"] = time_left(elapsed, done - earlier, len(models) - done)
        facts["Samples done"] = f"{samples:,}" if samples else ""
        facts["Best so far"] = breakable(f"{best[1]}, {best[0]:.4f}") if best else ""
        return _header(facts)

    def _table(self, names: Mapping[str, str]) -> Markup:
        ranked = sorted(
            self.models.items(),
            key=lambda item: (ORDER.index(item[1].status), -(item[1].score if item[1].score is not None else -1e300)),
        )
        models = [(key, model, self._time(model)) for key, model in ranked]
        return fill("models.html", "hubscout.serve", models=models, names=names)

    def _time(self, model: Model) -> str:
        if model.status == "running" and model.since is not None and not self.over:
            return human_seconds(max(0.0, time.time() - model.since))
        return human_seconds(model.seconds)

    def _charts(self) -> list[Markup]:
        runs = [
            tuning_run(
                name or "validation",
                TuningRecord(),
                [line for line in kept if line.get("event") in {"step", "validation"}],
            )
            for name, kept in self.curves.items()
        ]
        primary = next((run.primary for run in runs if run.primary), None)
        parts: list[Markup] = []
        if primary is not None:
            found = [validation_curve(run.name, [run], primary) for run in runs]
            parts += _chart(f"Validation {primary}", [c for c in found if c is not None], "Epoch", primary)
        if len(runs) == 1:
            parts += _chart("Parts of the loss", loss_curves(runs), "Step", "Loss")
        nothing = "No step of training was recorded." if self.over else "The first numbers will appear soon."
        return parts or [tag("p", nothing, class_="note")]


def _chart(title: str, curves: list[Curve], x_title: str, y_title: str) -> list[Markup]:
    if not curves:
        return []
    tips = {"Epoch": lambda name, epoch, value: f"{name} {epoch:g}: {metric_text(y_title, value)}"}
    drawn, label = coloured(curves, tips.get(x_title), most=STEPS_KEPT), f"{title} so far"
    chart = Chart(
        draw=lambda frame: lines(
            frame,
            drawn,
            label=label,
            x_title=x_title,
            y_title=y_title,
            y_format=metric_ticks(y_title),
            whole_x=True,
        ),
        wide=CHART,
    )
    return [tag("h3", title), chart.html()]


def _tuning_header(runs: Mapping[str, list[dict[str, Any]]]) -> Markup:
    """Of tunings by the lines of their curves; a `started` line says when a run began and how far it goes."""
    began: list[float] = []
    done = before = steps = samples = 0
    best: tuple[float, str] | None = None
    for kept in runs.values():
        started: dict[str, Any] = next((line for line in reversed(kept) if line.get("event") == "started"), {})
        last = max((int(line["step"]) for line in kept if is_number(line.get("step"))), default=0)
        done += last
        if all(is_number(started.get(key)) for key in ("time", "step", "steps", "batch_size")):
            began.append(float(started["time"]))
            before += int(started["step"])
            steps += int(started["steps"])
            samples += last * int(started["batch_size"])
        for line in kept:
            metrics = as_dict(line.get("metrics")) if line.get("event") == "validation" else {}
            name = next(iter(metrics), "")
            value = as_number(metrics.get(name))
            if value is not None and (best is None or value > best[0]):
                best = (float(value), str(name))
    elapsed = max(0.0, time.time() - min(began)) if began else None
    return _header(
        {
            "Elapsed": whole_seconds(elapsed),
            "Time left, at most": time_left(elapsed, done - before, steps - done) if steps else "",
            "Steps": f"{done:,} of {steps:,}" if steps else f"{done:,}",
            "Samples done": f"{samples:,}" if samples else "",
            "Best so far": f"{best[1]} {metric_text(best[1], best[0])}" if best else "",
        }
    )


def _header(facts: Mapping[str, object]) -> Markup:
    """The facts side by side; those that are not known yet are dashes, so that nothing moves when they come."""
    return definitions([(name, value or "–") for name, value in facts.items()], "facts small live")


def whole_seconds(seconds: float | None) -> str:
    """A time without parts of a second, which would only flicker.

    >>> whole_seconds(8.26), whole_seconds(91.4), whole_seconds(None)
    ('8 s', '1 min 31 s', '–')
    """
    return f"{seconds:.0f} s" if seconds is not None and seconds < 59.5 else human_seconds(seconds)


def time_left(elapsed: float | None, done: float, left: float) -> str:
    """How long the rest takes at the pace so far.

    >>> time_left(60.0, 2, 6), time_left(60.0, 0, 6), time_left(None, 1, 1)
    ('about 3 min', '', '')
    """
    if elapsed is None or done <= 0:
        return ""
    return f"about {whole_seconds(elapsed * left / done)}" if left > 0 else "nearly done"


def _count(value: Any) -> int:
    return int(as_number(value) or 0)
