"""`race()`: evidence, then rungs of real tuning, then the winner."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hubscout.engines import Engine, Job, JobResult, open_engine
from hubscout.errors import InputError, InterruptedRunError, RunError, TuningError
from hubscout.racing.arms import BEST, Arm, Climb, Look, finish
from hubscout.racing.elimination import survivors
from hubscout.racing.held_out_samples import for_race, with_validation
from hubscout.racing.outcome import Race
from hubscout.racing.rungs import ETA, Field, Rung, choose_field, rungs_of
from hubscout.ranking import Ranking, rank
from hubscout.ranking.progressive import parse_seconds
from hubscout.ranking.task_reference import TaskReference
from hubscout.runs.json_files import append_line, read_lines

if TYPE_CHECKING:
    from hubscout.runs.events import Observer
    from hubscout.tasks import Task
    from hubscout.tuning import Tuned, TuningArguments

LOOKS = "race.jsonl"
RECORD = "race.json"
SETTINGS = {"schedule": "wsd", "frozen_norm_statistics": True, "keep_best": False, "keep_checkpoints": 1}
"""Of every arm: a rate that stays constant can be prolonged; short runs do better with the norms' own statistics."""
WARMUP = 0.02
EVIDENCE_SHARE = 0.25
"""Of the budget, at most: a ranking that would take longer goes by growing subsets."""
FORWARD_SHARE = 1 / 3
"""Of a training step: what its forward pass takes."""


def race(
    task: Task | str | Path,
    models: Iterable[str] | str,
    *,
    budget: float | str | None = None,
    out: str | Path | None = None,
    max_params: float | None = None,
    max_flops: float | None = None,
    max_latency: float | None = None,
    refit: bool = False,
    device: str = "auto",
    limit: int | None = None,
    seed: int = 0,
    skip_bad: bool = False,
    engine: str | Engine = "local",
    engine_options: Mapping[str, Any] | None = None,
    observer: Any = None,
    **options: Any,
) -> Race:
    """Find the model that will be best once tuned, and tune it, within a budget of time.

    Every model is ranked by its evidence. Then each is tuned a little at several learning rates, judged on the same
    held-out samples, and those without a chance are given up; the rest go on from where they are. The winner is tuned
    to its end.

    Args:
        task: the labelled data, or what `hubscout.open_task` opens.
        models: identifiers or patterns, as for `rank`.
        budget: seconds, or a text such as "30min"; None races without a limit. Half-done work is kept in `out`.
        out: a folder for everything; the winner is in `out`/winner. The same call goes on where it stopped.
        max_params: race only models of at most so many parameters.
        max_flops: race only models of at most so many operations per sample.
        max_latency: race only models of at most so many seconds for one sample.
        refit: tune the winner again on train and validation together, with the learning rate that won.
        device: "auto", "cpu" or "cuda".
        limit: use at most so many train samples for the evidence.
        seed: of splits, order and augmentation.
        skip_bad: leave out samples that cannot be read.
        engine: where arms run: "local", "ray", or an engine.
        engine_options: for the engine, such as `address`.
        observer: hears of progress, of ranking and of tuning alike.
        options: fields of `TuningArguments`, such as `epochs`, `steps` or `batch_size`.

    Returns:
        The race: `winner`, `tuned`, `ranking`, `order`, `answer`.

    Raises:
        InputError: no model is left to race.
        RunError: `out` holds another race.
        InterruptedRunError: Ctrl-C; the best so far is in `out`/winner.

    Example:
        >>> race("flowers/", ["timm/resnet18.a1_in1k", "timm/mobilenetv3_small_100.lamb_in1k"],
        ...      budget="30min", out="run/").winner  # doctest: +SKIP

    """
    from hubscout.tasks import open_task

    started = time.perf_counter()
    seconds = None if budget is None else parse_seconds(budget)
    opened = open_task(task) if isinstance(task, str | Path) else task
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) if out is None else Path(out)
        ranking = rank(
            opened,
            models,
            device=device,
            limit=limit,
            seed=seed,
            skip_bad=skip_bad,
            out=folder / "evidence",
            engine=engine,
            engine_options=engine_options,
            observer=observer,
            budget=None if seconds is None else EVIDENCE_SHARE * seconds,
        )
        allowed = ranking.within(max_params=max_params, max_flops=max_flops, max_latency=max_latency)
        if not len(allowed):
            raise InputError("No model is left to race: " + _why_none(ranking, allowed))
        runner = open_engine(engine, **(engine_options or {})) if isinstance(engine, str) else engine
        if isinstance(engine, str):
            stack.callback(runner.close)
        contest = _Contest(
            for_race(opened, seed),
            allowed,
            _arguments(options, device, seed),
            folder,
            runner,
            observer,
            seconds,
            started,
            ranking.seconds,
        )
        try:
            return contest.run(refit=refit)
        except KeyboardInterrupt as error:
            where = f"the best so far is in {folder / 'winner'}; run the same command again to resume" if out else ""
            raise InterruptedRunError(f"Stopped after {len(contest.looks)} looks at arms. {where}".strip()) from error


def _why_none(ranking: Ranking, allowed: Ranking) -> str:
    if len(ranking) and not len(allowed):
        return f"none of {len(ranking)} keeps the limits."
    return "; ".join(f"{one.identifier}: {one.reason}" for one in ranking.failures[:3]) or "none was given."


def _arguments(options: Mapping[str, Any], device: str, seed: int) -> TuningArguments:
    from hubscout.tuning import TuningArguments

    return TuningArguments.of(**{**SETTINGS, "warmup": WARMUP, **options, "device": device, "seed": seed})


@dataclass
class _Contest:
    """A race under way."""

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
        reference = TaskReference.of(self.task, self.engine)
        evidence = {row.identifier: row.score for row in self.ranking}
        contenders = self._resume() or self._start()
        rungs = rungs_of(contenders.steps, self.asked.cooldown)
        base = self.asked.replace(steps=contenders.steps).settled(self.task.modality, self.task.kind)
        assert base.learning_rate is not None
        arms = [Arm(m, float(f"{f * base.learning_rate:.3g}")) for m in contenders.models for f in contenders.factors]
        leaders = arms
        for rung in rungs:
            looks = list(self._climb(reference, arms, rung, base, contenders.steps))
            if not looks:
                break
            share = rung.steps / contenders.steps
            leaders = survivors(looks, evidence, share, len(looks), self.asked.seed)
            if not leaders:
                reasons = "; ".join(f"{look.arm}: {look.failure}" for look in looks[:3])
                raise TuningError(f"No arm could be trained: {reasons}")
            arms = leaders[: max(1, math.ceil(len(looks) / ETA))]
            if len(arms) == 1:
                break
        rung_seconds = time.perf_counter() - self.started - self.evidence_seconds
        winner = leaders[0]
        began = time.perf_counter()
        tuned = self._finish(reference, winner, base, refit=refit)
        spent = {"evidence": self.evidence_seconds, "rungs": rung_seconds, "winner": time.perf_counter() - began}
        outcome = self._outcome(winner, contenders.steps, rungs, spent, tuned)
        (self.folder / RECORD).write_text(json.dumps(outcome.record(), indent=1) + "\n", encoding="utf-8")
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
            raise RunError(f"{self.folder} holds another race: choose another folder, or remove it.")
        for line in rest:
            arm = Arm(**line.pop("arm"))
            line.pop("event")
            line["log_likelihoods"] = tuple(line["log_likelihoods"])
            self.looks.append(Look(arm=arm, **line))
        told = first["field"]
        return Field(tuple(told["models"]), tuple(told["factors"]), told["steps"])

    def _identity(self) -> dict[str, Any]:
        return json.loads(json.dumps({"task": self.task.fingerprint, "arguments": self.asked.decisive()}))

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
                resume=True,
                observer=heard,
                arguments=chosen,
            )
        put_in_place(tuned.save(self.folder / "arms" / "final"), self.folder / "winner")
        return tuned

    def _outcome(
        self, winner: Arm, steps: int, rungs: tuple[Rung, ...], spent: Mapping[str, float], tuned: Tuned
    ) -> Race:
        from hubscout.tuning.task_metrics import primary

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
