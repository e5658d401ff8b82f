"""How far a run is, told by its lines: what the page shows while a ranking or a tuning is going on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hubscout.errors import RunError
from hubscout.report.charts.chart import WIDE, Chart
from hubscout.report.charts.lines import COLOURS, Curve, lines
from hubscout.report.markup import Markup, breakable, join, scrolling, tag
from hubscout.report.sections.race_sections import race_panel
from hubscout.report.tuning_runs import MethodCurve, loss_curves, validation_curve
from hubscout.runs.race_record import RaceRecord, race_status
from hubscout.runs.record_types import is_number
from hubscout.runs.run_folder import CURVES, EVENTS, RACE_EVIDENCE, RACE_LINES
from hubscout.runs.texts import human_seconds, short_names
from hubscout.runs.tuning_record import TuningRecord, tuning_run
from hubscout.serve.live_header import header, ranking_facts, tuning_facts

ModelStatus = Literal["waiting", "running", "done", "failed", "dropped", "unfinished"]
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
            self.began = _number(line.get("time"))
            self.models = {str(model): Model() for model in _list(line.get("models"))}
            for model in _list(line.get("taken_over")):
                self.models[str(model)] = Model("done", note=EARLIER)
        elif event == "finished":
            self.over = True
        if not name:
            return
        model = self.models.setdefault(name, Model())
        if event == "model-started":
            model.status, model.since = "running", _number(line.get("time"))
        elif event == "model-advanced":
            model.samples, model.rows = int(_number(line.get("n")) or 0), int(_number(line.get("rows")) or 0)
        elif event == "model-finished":
            model.status = "done"
            model.score, model.seconds = _number(line.get("score")), _number(line.get("seconds"))
            model.samples = int(_number(line.get("n")) or 0)
        elif event == "model-failed":
            model.status, model.note = "failed", f"{line.get('error')}: {line.get('reason')}"
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
            done = self._count("done", "dropped")
            failed = self._count("failed")
            running = [name for name, model in self.models.items() if model.status == "running"]
            words = f"{'Stage 1, evidence: ' if self.of_race else ''}{done} of {len(self.models)} models done"
            if failed:
                words += f", {failed} failed"
            return f"{words}; now {', '.join(short_names(running))}" if running and not self.over else words
        steps = max((int(_number(line.get("step")) or 0) for c in self.curves.values() for line in c[-1:]), default=0)
        if not self.curves:
            return OPENING
        return f"{len(self.curves)} {'run' if len(self.curves) == 1 else 'runs'}, step {steps}"

    def _count(self, *statuses: ModelStatus) -> int:
        return sum(model.status in statuses for model in self.models.values())

    def markup(self) -> Markup:
        """The panel."""
        if self.race is not None:
            return race_panel(self.race)
        if self.models:
            head = [] if self.over else [self._header(), self._bar()]
            return join([*head, scrolling(self._table(), "Models of this ranking")])
        if self.curves:
            return join([*([] if self.over else [header(tuning_facts(self.curves))]), *self._charts()])
        return tag("p", self.printed, class_="log") if self.printed else tag("p", OPENING, class_="note")

    def _header(self) -> Markup:
        names = dict(zip(self.models, short_names(list(self.models)), strict=True))
        scored = [(model.score, names[name]) for name, model in self.models.items() if model.score is not None]
        best = max(scored, default=None)
        facts = ranking_facts(
            self.began,
            sum(model.note == EARLIER for model in self.models.values()),
            self._count("done", "dropped", "failed") + self._under_way(),
            len(self.models),
            sum(model.samples for model in self.models.values()),
            None if best is None else (best[1], best[0]),
        )
        return header([fact for fact in facts if not (self.of_race and fact[0] == "Time left")])

    def _under_way(self) -> float:
        """The models that are running, each by the share of its samples that is done."""
        running = [model for model in self.models.values() if model.status == "running" and model.rows]
        return sum(min(model.samples / model.rows, 1.0) for model in running)

    def _bar(self) -> Markup:
        over = self._count("done", "dropped", "failed") + self._under_way()
        return tag("progress", value=over, max=max(len(self.models), 1), aria_label="Models done")

    def _table(self) -> Markup:
        names = dict(zip(self.models, short_names(list(self.models)), strict=True))
        order = {"done": 0, "dropped": 1, "running": 2, "waiting": 3, "unfinished": 4, "failed": 5}
        ranked = sorted(
            self.models.items(),
            key=lambda item: (order[item[1].status], -(item[1].score if item[1].score is not None else -1e300)),
        )
        rows = [
            tag(
                "tr",
                tag(
                    "th",
                    breakable(names[name]),
                    tag("small", model.note) if model.note else "",
                    scope="row",
                    title=name,
                ),
                tag("td", tag("span", model.status, class_=f"state {model.status}")),
                tag("td", "–" if model.score is None else f"{model.score:.4f}", class_="number"),
                tag("td", self._time(model), class_="number"),
            )
            for name, model in ranked
        ]
        heads = [
            *(tag("th", words, scope="col", class_=look) for words, look in (("Model", "names"), ("State", None))),
            *(tag("th", words, scope="col", class_="number") for words in ("Score", "Time")),
        ]
        return tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="models live", id="progress")

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
        return parts or [tag("p", "Training has started. The first numbers will appear soon.", class_="note")]


def _chart(title: str, curves: list[MethodCurve], x_title: str, y_title: str) -> list[Markup]:
    if not curves:
        return []
    drawn = [
        Curve(
            name=curve.method,
            x=curve.epochs,
            y=curve.mean,
            colour=place if place < COLOURS else None,
            dots=True,
            tips=[f"{curve.method} {x:g}: {y:.4f}" for x, y in zip(curve.epochs, curve.mean, strict=True)]
            if len(curve.epochs) <= STEPS_KEPT and x_title == "Epoch"
            else (),
        )
        for place, curve in enumerate(curves)
    ]
    chart = Chart(
        draw=lambda frame: lines(frame, drawn, label=f"{title} so far", x_title=x_title, y_title=y_title, whole_x=True),
        wide=CHART,
    )
    return [tag("h3", title), chart.html()]


def _number(value: Any) -> float | None:
    return float(value) if is_number(value) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
