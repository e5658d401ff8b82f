"""A race under way: who starts, who goes on, what is kept, and when the time is over."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hubscout.credentials import strip_credentials
from hubscout.engines import Engine, Job, JobResult
from hubscout.engines.memory import forget
from hubscout.errors import RunError, TuningError
from hubscout.racing.arms import BEST, Arm, Climb, Look, finish
from hubscout.racing.elimination import one_rate_each, survivors
from hubscout.racing.held_out_samples import with_validation
from hubscout.racing.outcome import Race
from hubscout.racing.rungs import Field, Rung, choose_field, rungs_of
from hubscout.ranking import Ranking
from hubscout.ranking.task_reference import TaskReference
from hubscout.runs.atomic_files import write_atomically
from hubscout.runs.json_files import append_line, read_lines

if TYPE_CHECKING:
    from hubscout.runs.events import Observer
    from hubscout.tasks import Task
    from hubscout.tuning import Tuned, TuningArguments

LOOKS = "race.jsonl"
RECORD = "race.json"
FORWARD_SHARE = 1 / 3
"""Of a training step: what its forward pass takes."""


@dataclass
class Contest:
    """A race under way: rung by rung, then the winner; what is finished is on disk at once."""

    task: Task
    ranking: Ranking
    asked: TuningArguments
    folder: Path
    engine: Engine
    observer: Any
    seconds: float | None
    started: float
    evidence_seconds: float
    looks: list[Look] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def run(self, *, refit: bool) -> Race:
        """All rungs, then the winner."""
        from hubscout.tuning.rates import rates_of

        reference = TaskReference.of(self.task, self.engine)
        evidence = {row.identifier: row.score for row in self.ranking}
        contenders = self._resume() or self._start()
        rungs = rungs_of(contenders.steps, self.asked.cooldown)
        base = self.asked.replace(steps=contenders.steps).settled(self.task.modality, self.task.kind)
        first = self.asked.learning_rate or rates_of(base.optimizer, self.task.modality).raced
        arms = [Arm(m, float(f"{f * first:.3g}")) for m in contenders.models for f in contenders.factors]
        leaders = arms
        for rung, width in zip(rungs, contenders.widths, strict=False):
            if not width:
                continue
            arms = arms[:width]
            looks = list(self._climb(reference, arms, rung, base, contenders.steps))
            if not looks:
                break
            share = rung.steps / contenders.steps
            # A budget was granted to be used, and the order of all is worth something too.
            fewest = len(looks) if self.seconds is not None else math.ceil(len(contenders.models) / 3)
            leaders = survivors(looks, evidence, share, len(looks), self.asked.seed, fewest)
            if not leaders:
                reasons = "; ".join(f"{look.arm}: {look.failure}" for look in looks[:3])
                raise TuningError(f"No arm could be trained: {reasons}")
            arms = one_rate_each(leaders)
            if len(arms) == 1:
                break
        rung_seconds = time.perf_counter() - self.started - self.evidence_seconds
        winner = leaders[0]
        began = time.perf_counter()
        tuned = self._finish(reference, winner, base, refit=refit)
        spent = {"evidence": self.evidence_seconds, "rungs": rung_seconds, "winner": time.perf_counter() - began}
        outcome = self._outcome(winner, contenders.steps, rungs, spent, tuned)
        write_atomically(self.folder / RECORD, strip_credentials(json.dumps(outcome.record(), indent=1)) + "\n")
        return outcome

    def _start(self) -> Field:
        """Who starts, from what the evidence showed of each model's speed."""
        per_epoch = math.ceil(len(self.task.train) / self.asked.batch_size)
        steps = self.asked.steps or self.asked.epochs * per_epoch
        known = [row.samples_per_second for row in self.ranking if row.samples_per_second]
        usual = sorted(known)[len(known) // 2] if known else 100.0
        pace = {
            row.identifier: self.asked.batch_size / (row.samples_per_second or usual) / FORWARD_SHARE
            for row in self.ranking
        }
        chosen = choose_field(self.ranking.identifiers, pace, steps, self._left(), self.asked.cooldown)
        self.folder.mkdir(parents=True, exist_ok=True)
        append_line(self.folder / LOOKS, {"event": "race", "identity": self._identity(), "field": asdict(chosen)})
        left_out = len(self.ranking) - len(chosen.models)
        if left_out:
            self.notes.append(f"{left_out} models of least evidence did not start: the budget is too short for them")
        return chosen

    def _resume(self) -> Field | None:
        """What an earlier run of the same race left."""
        lines = read_lines(self.folder / LOOKS)
        if not lines:
            return None
        first, *rest = lines
        if first.get("identity") != self._identity():
            raise RunError(
                f"{self.folder} holds another race: choose another folder, or overwrite it "
                "(overwrite=True, --overwrite)."
            )
        # By the names as they were given now: the user has said them, not the file.
        given = {name: name for name in self.ranking.identifiers}
        try:
            for line in rest:
                told = {name: value for name, value in line.items() if name not in ("event", "arm")}
                arm = Arm(given[line["arm"]["model"]], line["arm"]["learning_rate"])
                self.looks.append(Look(arm=arm, **{**told, "log_likelihoods": tuple(told["log_likelihoods"])}))
            start = first["field"]
            models = tuple(given[name] for name in start["models"])
            return Field(models, tuple(start["factors"]), int(start["steps"]), tuple(start["widths"]))
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(
                f"{self.folder / LOOKS} is damaged or of another race: {error}. Remove it to start anew."
            ) from error

    def _identity(self) -> dict[str, Any]:
        models = sorted(self.ranking.identifiers)
        asked = {"task": self.task.fingerprint, "models": models, "arguments": self.asked.decisive()}
        return json.loads(strip_credentials(json.dumps(asked)))  # as it stands in the file

    def _climb(
        self, reference: TaskReference, arms: list[Arm], rung: Rung, base: TuningArguments, steps: int
    ) -> Iterator[Look]:
        """Looks at the arms on a rung: those of an earlier run, then new ones while there is time."""
        done = {look.arm: look for look in self.looks if look.rung == rung.number}
        yield from (done[arm] for arm in arms if arm in done)
        jobs = [
            Job(str(arm), self._work(reference, arm, rung, base), cost=-place)
            for place, arm in enumerate(arms)
            if arm not in done
        ]
        if not jobs or not self._has_time(rung, steps):
            return
        with closing(cast(Generator[JobResult], self.engine.run(jobs))) as results:
            for count, result in enumerate(results, start=1):
                if result.error is not None:
                    raise result.error
                yield self._keep(result.value)
                if count < len(jobs) and not self._has_time(rung, steps):
                    missed = len(jobs) - count
                    self.notes.append(f"time was short: {missed} arms were not looked at after {rung.steps} steps")
                    return

    def _work(self, reference: TaskReference, arm: Arm, rung: Rung, base: TuningArguments) -> Climb:
        best = [look.metric for look in self.looks if look.rung == rung.number and look.metric is not None]
        return Climb(
            task=reference,
            arm=arm,
            arguments=self._at_rate(base, arm.learning_rate),
            folder=self._folder(arm),
            rung=rung.number,
            stable=rung.stable,
            steps=rung.steps,
            rows=rung.rows(base.batch_size),
            keep_above=max(best, default=-math.inf),
        )

    def _at_rate(self, base: TuningArguments, rate: float) -> TuningArguments:
        chosen = base.replace(learning_rate=rate, head_learning_rate=self.asked.head_learning_rate)
        return chosen.settled(self.task.modality, self.task.kind)

    def _keep(self, look: Look) -> Look:
        """Write a look down at once; the best so far becomes the model that can be used."""
        before = [one.metric for one in self.looks if one.rung >= look.rung and one.metric is not None]
        self.looks.append(look)
        append_line(self.folder / LOOKS, {"event": "look", **asdict(look)})
        saved = self._folder(look.arm) / BEST
        if look.metric is not None and look.metric > max(before, default=-math.inf) and saved.is_dir():
            put_in_place(saved, self.folder / "winner")
        if self.observer is not None:
            from hubscout.runs.events import Message

            self.observer(Message("", f"{look.arm}: {look.failure or f'{look.metric:.4f}'} after {look.steps} steps"))
        return look

    def _has_time(self, rung: Rung, steps: int) -> bool:
        """Whether another look leaves enough for the end of the one that leads."""
        left = self._left()
        if left is None:
            return True
        measured = [look for look in self.looks if look.seconds_per_step > 0]
        if not measured:
            return True
        pace = sorted(look.seconds_per_step for look in measured)[len(measured) // 2]
        recent = max(look.seconds for look in measured[-3:])
        return left > recent + pace * (steps - rung.stable)

    def _left(self) -> float | None:
        if self.seconds is None:
            return None
        return max(0.0, self.seconds - (time.perf_counter() - self.started))

    def _finish(self, reference: TaskReference, winner: Arm, base: TuningArguments, *, refit: bool) -> Tuned:
        from hubscout.runs.events import silent
        from hubscout.tuning import tune

        chosen = self._at_rate(base, winner.learning_rate)
        heard: Observer = self.observer or silent
        tuned = finish(reference, winner, chosen, self._folder(winner), heard)
        if refit:
            tuned = tune(
                with_validation(self.task),
                winner.model,
                (),
                "fine-tune",
                out=self.folder / "refit",
                observer=heard,
                arguments=chosen,
            )
        put_in_place(tuned.save(self.folder / "arms" / "final"), self.folder / "winner")
        return tuned

    def _outcome(
        self, winner: Arm, steps: int, rungs: tuple[Rung, ...], spent: Mapping[str, float], tuned: Tuned
    ) -> Race:
        from hubscout.tasks.task_metrics import primary

        return Race(
            task_name=self.task.name,
            metric=primary(self.task.kind, self.task.target_names),
            winner=winner,
            ranking=self.ranking,
            looks=tuple(self.looks),
            steps=steps,
            shares={rung.number: rung.steps / steps for rung in rungs},
            seconds=dict(spent),
            tuned=tuned,
            notes=(*self.task.notes, *self.notes),
        )

    def _folder(self, arm: Arm) -> Path:
        number = list(self.ranking.identifiers).index(arm.model)
        return self.folder / "arms" / f"{number:03d}-{arm.learning_rate:g}"


def clear(folder: Path) -> None:
    """Remove what a race left, but for its winner, which stays until there is another."""
    forget()
    (folder / LOOKS).unlink(missing_ok=True)
    for name in ("arms", "refit"):
        shutil.rmtree(folder / name, ignore_errors=True)


def put_in_place(source: Path, target: Path) -> None:
    """A copy of a folder under another name; a reader sees the old one or the new one."""
    fresh, old = target.with_name(f".{target.name}.new"), target.with_name(f".{target.name}.old")
    for folder in (fresh, old):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, fresh)
    if target.exists():
        target.rename(old)
    fresh.rename(target)
    shutil.rmtree(old, ignore_errors=True)
