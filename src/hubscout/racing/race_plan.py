"""Before the rungs: who starts and how far they go, and what more there is to do where the budget has grown."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.engines import Engine, JobResult
from hubscout.racing.arms import Arm, Runner, Speed
from hubscout.racing.floor import MOST_ROWS, TIME_SHARE, FitProbe, Floor
from hubscout.racing.race_journal import BEST, EARLIER, PROBES, RaceJournal, arm_folder, put_in_place, restore
from hubscout.racing.rungs import Clock, Field, Pace, Time, choose_field, rungs_of, seconds_per_step
from hubscout.ranking import Ranking
from hubscout.ranking.jobs import TaskReference
from hubscout.runs.events import Observer
from hubscout.runs.run_folder import RACE_WINNER
from hubscout.runs.texts import counted
from hubscout.runs.tuning_record import read_tuning
from hubscout.tasks.task_metrics import primary
from hubscout.tuning.rates import rates_of
from hubscout.tuning.time_budget import FORWARD_SHARE, PACE_STEPS
from hubscout.tuning.trials import trial_job

if TYPE_CHECKING:
    from hubscout.tasks import Task
    from hubscout.tuning import TuningArguments


ROWS_TIMED = 100
"""Held-out samples that are judged to see how fast that is."""


@dataclass
class RacePlan:
    """What a race is made of, and its beginning: in a folder that holds it, where it stopped.

    Where the budget is longer than it was, or there are more models, who starts is chosen anew. Looks at arms stay if
    the rungs do, arms go on from their checkpoints, and the winner so far stays until there is a better one.
    """

    task: Task
    asked_for: Sequence[str]
    """The models, those that could not be ranked included."""
    ranking: Ranking
    evidence: Mapping[str, float]
    """Of each model, in the order in which models would be given up last."""
    asked: TuningArguments
    folder: Path
    engine: Engine
    observer: Observer
    clock: Clock
    journal: RaceJournal
    race: str
    """Tells this call from others in the memory of a process."""
    folds: int = 1
    ends: float = 1.0
    """Whole runs that come after the rungs: the winner's, and those that follow it."""
    deploy: str = ""
    evidence_seconds: float | None = None
    """What the ranking was allowed: when the race goes on it is allowed the same, whatever the budget is then."""
    whole_evidence: bool = True
    """Whether all models were ranked on all samples: a longer budget would not change that."""
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        restore(self.folder / RACE_WINNER)
        self.steps = self.longest  # until it is known who starts
        chosen = self.journal.resume(self._identity(), self.ranking.identifiers)
        if chosen is None:
            chosen = self._start()
        elif self.journal.has_more(self.clock.seconds, self.asked_for):
            chosen = self._extended(chosen)
        self.steps, self.widths = chosen.steps, chosen.widths
        self.rungs = rungs_of(self.steps, self.asked.cooldown)
        self.arms = self._arms(chosen)
        self.notes += [text for text in self.journal.record.notes if text not in self.notes]
        for model, ratio in self.journal.record.slow.items():
            told = f"it takes {ratio:.0f} times as long per step as the others"
            self.notes.append(f"{model} did not start: {told}, and the budget is too short for it")
        if left_out := self.journal.record.left_out:
            self.notes.append(f"{counted(left_out, 'model')} of least evidence did not start: the budget is too short")

    def _arms(self, chosen: Field) -> list[Arm]:
        """Every model at its first rate, then at the next: where time is short, all have been looked at once."""
        return [Arm(model, self.rate(factor)) for factor in chosen.factors for model in chosen.models]

    @cached_property
    def base(self) -> TuningArguments:
        """What all arms have in common, however long the race lets them run."""
        return self.asked.replace(steps=self.longest, epochs=None).settled(self.task.modality, self.task.kind)

    @cached_property
    def floor(self) -> Floor | None:
        """The linear probe of the first model by evidence, below which the race does not end; None once it is over."""
        record = self.journal.record
        return self.probe_of(record.probed) if record.probed and not record.complete else None

    @cached_property
    def reference(self) -> TaskReference:
        """The task, as jobs get it."""
        return TaskReference.of(self.task, self.engine)

    def rate(self, factor: float) -> float:
        """A learning rate: the default of the data and the optimiser, or what was asked for, times a factor."""
        optimizer = self.asked.settled(self.task.modality, self.task.kind).optimizer
        first = self.asked.learning_rate or rates_of(optimizer, self.task.modality).first
        return float(f"{factor * first:.3g}")

    def _start(self) -> Field:
        """Who starts, and how far they go in the time that there is."""
        shutil.rmtree(self.folder / PROBES, ignore_errors=True)
        if (floor := self._first_probe()) is not None:
            put_in_place(floor.folder / BEST, self.folder / RACE_WINNER)
        time, pace = self._time(floor)
        chosen = self._field(time, self.longest)
        self._write_start(chosen, time, floor, pace)
        return chosen

    def _field(self, time: Time | None, steps: int) -> Field:
        """Who starts in the time that there is, in runs of at most so many steps."""
        return choose_field(list(self.evidence), steps, self.asked.cooldown, time, self.longest)

    def _extended(self, before: Field) -> Field:
        """Who starts where there is more time, or more models, than there was."""
        floor = self._first_probe()
        time, pace = self._time(floor)
        more = (
            None
            if time is None
            else replace(time, seconds=time.seconds + self.journal.record.seconds.get("rungs", 0.0))
        )
        chosen = self._field(more, self.longest)
        if chosen.steps != before.steps:  # looks after other steps do not count: what they have taken is gone
            chosen = self._field(time, self.longest)
        if chosen.steps <= before.steps:
            chosen = self._field(more, before.steps)
        # Its one arm was trained past the rungs, where the others are to be compared with it; the winner stays.
        if not any(before.widths):
            shutil.rmtree(self.folder / "arms", ignore_errors=True)
        told: dict[str, Any] = {}
        final = self.journal.record.final
        if final is not None and "winner" in self.journal.stages_done:
            put_in_place(self.folder / RACE_WINNER, self.folder / EARLIER)
            record = read_tuning(self.folder / EARLIER)
            measured = record.first_metric("validation")
            told["ended"] = {**asdict(final), "steps": record.steps, "metric": measured and measured[2][0]}
        self._write_start(chosen, time, floor, pace, **told)
        here, there = (f"{len(one.models)} in runs of {one.steps} steps" for one in (chosen, before))
        beside = ", as before" if here == there else f"; they were {there}"
        self.note(f"the race goes on with more time or models: models that start are {here}{beside}")
        return chosen

    def _first_probe(self) -> Floor | None:
        """That of the first model by evidence that can be run; one that cannot shows that in the race."""
        return next((one for one in map(self.probe_of, list(self.evidence)[:3]) if one is not None), None)

    def _write_start(
        self, chosen: Field, time: Time | None, floor: Floor | None, pace: Pace | None, **told: Any
    ) -> None:
        waiting = [model for model in self.evidence if model not in chosen.models]
        slow = time.far_slower(waiting, chosen.models) if time is not None else {}
        self.folder.mkdir(parents=True, exist_ok=True)
        self.journal.start(
            self._identity(),
            chosen,
            task=self.task.name,
            metric=self.metric,
            steps=chosen.steps,
            rungs=[rung.steps for rung in rungs_of(chosen.steps, self.asked.cooldown)],
            arms=[asdict(arm) for arm in self._arms(chosen)],
            budget=self.clock.seconds,
            evidence_seconds=self.evidence_seconds,
            whole_evidence=self.whole_evidence,
            probe=None if floor is None else floor.told(),
            left_out=len(self.ranking) - len(chosen.models) - len(slow),
            slow={model: round(ratio, 1) for model, ratio in slow.items()},
            pace=None if pace is None else asdict(pace),
            **told,
        )

    def note(self, text: str) -> None:
        """Tell the user, now and in the result, also where the race is stopped and goes on."""
        if text not in self.notes:
            self.notes.append(text)
            self.journal.note(text)

    @property
    def longest(self) -> int:
        """Steps of a run as they were asked for; a short budget means fewer."""
        return self.asked.length(math.ceil(len(self.task.train) / self.asked.batch_size))

    def probe_of(self, model: str) -> Floor | None:
        """The linear probe of a model, fitted now or before; None where it cannot be run.

        It takes as many train samples as there is time for, and at least those of the ranking.
        """
        runner = self.runner(Arm(model, self.rate(1.0)), folder=self.folder / PROBES)
        if (known := Floor.read(runner.folder, model)) is not None:
            return known
        rows, left = min(len(self.task.train), MOST_ROWS), self.clock.left
        row = next((row for row in self.ranking if row.identifier == model), None)
        fewest, speed = (row.n, row.samples_per_second) if row is not None else self._usual_speed()
        if left is not None and speed:
            rows = min(rows, max(fewest, int(TIME_SHARE * left * speed)))
        return self.run_alone("probe", FitProbe(runner, rows)).value

    def run_alone(self, key: str, work: Callable[[], Any]) -> JobResult:
        """What becomes of one job."""
        (result,) = self.engine.run([trial_job(key, work, self.engine, self.asked.device)], observer=self.observer)
        return result

    def _usual_speed(self) -> tuple[int, float]:
        """For a model to deploy that is not ranked: samples of the others, and how many were judged per second."""
        pace = self.journal.usual_pace
        return min(row.n for row in self.ranking), 0.0 if pace is None or not pace.row else 1 / pace.row

    def _time(self, floor: Floor | None) -> tuple[Time | None, Pace | None]:
        """What the race has and needs, and how fast its first model is."""
        left, pace = self.clock.left, None
        if left is None:
            return None, None
        first = next(iter(self.evidence)) if floor is None else floor.model
        if floor is None or self._can_be_timed(first, floor, left):
            speed = Speed(self.runner(Arm(first, self.rate(1.0))), rows=ROWS_TIMED)
            pace = self.run_alone("speed", speed).value
        per_step = seconds_per_step(self.ranking, self.asked.batch_size, first, pace)
        if pace is None and floor is not None:
            pace = Pace(per_step[first], floor.seconds, FORWARD_SHARE * per_step[first] / self.asked.batch_size)
        look = 0.0 if pace is None else pace.look
        return Time(self.clock.left or 0.0, per_step, look, self.ends, self.engine.places()), pace

    def _can_be_timed(self, model: str, floor: Floor, left: float) -> bool:
        """Whether there is time to see how fast a model is trained, twice as much as expected, and to measure it."""
        step = seconds_per_step(self.ranking, self.asked.batch_size, model, None)[model]
        row = FORWARD_SHARE * step / self.asked.batch_size
        return left - row * self.samples_measured > max(floor.seconds, 2 * ((1 + PACE_STEPS) * step + ROWS_TIMED * row))

    @property
    def samples_measured(self) -> int:
        """Those that a whole run is judged by at its end."""
        return len(self.task.validation) + len(self.task.test)

    @property
    def metric(self) -> str:
        """What arms are judged by."""
        return primary(self.task.kind, self.task.target_names)

    def _identity(self) -> dict[str, Any]:
        return {
            "task": self.task.fingerprint,
            "models": sorted(self.asked_for),
            "arguments": self.asked.decisive(),
            "folds": self.folds,
        }

    def runner(self, arm: Arm, task: TaskReference | None = None, folder: Path | None = None, **more: Any) -> Runner:
        """What trains an arm, in a folder of its own."""
        home = (folder or self.folder / "arms") / arm_folder(arm)
        chosen = self.base.replace(learning_rate=arm.learning_rate, head_learning_rate=self.asked.head_learning_rate)
        settled = chosen.settled(self.task.modality, self.task.kind)
        past = max((steps for ended, steps, _ in self.journal.record.ended if ended == arm), default=0)
        return Runner(self.race, task or self.reference, arm, settled, home, steps=self.steps, past=past, **more)
