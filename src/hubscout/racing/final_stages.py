"""After the rungs: the winner to its end, a refit on all data, and the model to deploy with the winners as teachers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from hubscout.errors import DivergedError, EngineError, TuningError
from hubscout.racing.arms import Arm, Climb, Look, Runner, opened
from hubscout.racing.contest import Contest
from hubscout.racing.elimination import better_rate
from hubscout.racing.finishing import Finish
from hubscout.racing.floor import Floor
from hubscout.racing.held_out_samples import with_validation
from hubscout.racing.race_journal import BEST, EARLIER, put_in_place
from hubscout.racing.rungs import HIGHER_FACTOR, RATE_FACTORS, Rung
from hubscout.ranking.jobs import TaskReference
from hubscout.runs.run_folder import RACE_DEPLOYED, RACE_WINNER
from hubscout.tuning.arguments import RESTART_FACTOR
from hubscout.tuning.rates import Grid
from hubscout.tuning.time_budget import TESTED_IN_PART
from hubscout.tuning.trials import trial_job

if TYPE_CHECKING:
    from hubscout.tuning import Tuned

T = TypeVar("T")

FEWEST_STEPS_WORTH = 2
"""Steps of training without which a probe is taken as it is."""
DEPLOY_ENDS = 1.5
"""What the model to deploy takes, in whole runs: its own, and three learning rates up to the second rung."""


@dataclass
class FinalStages(Contest):
    """A contest with what is made after its rungs. A stage that is over is taken from its folder."""

    refit: bool = False

    def winner(self, leaders: Sequence[Arm]) -> tuple[Arm, Tuned]:
        """The best of the leaders that can be tuned to its end, tuned; or a linear probe that is better."""
        steps, looks = 0, self.journal.looks
        if "earlier" in self.journal.stages_done:
            arm = self.journal.ended[-1][0]
            tuned = opened(self.folder / RACE_WINNER, arm.model)
        elif (probed := self.journal.stages_done.get("probe")) is not None:
            arm, tuned = self._arm_of(probed), opened(self.folder / RACE_WINNER, probed)
        else:
            arm, tuned = self._to_its_end(leaders)
            steps = tuned.steps  # those of a winner that may not stay
            self._compare(tuned)
            if (floor := self._better_probe(arm, tuned)) is not None:
                arm, tuned = self._as_it_is(floor)
            elif (earlier := self._better_earlier(tuned)) is not None:
                arm, tuned = earlier
        self.journal.decide(arm)
        self.notes += [note for note in tuned.notes if note.startswith(TESTED_IN_PART)]
        if tuned.best_step == 0:
            why = "there was no time to train it"
            if looks or steps or tuned.steps:
                failed = looks and all(look.failure for look in looks)
                why = "no model could be trained" if failed else "training did not come up to it in this time"
            told = f"the winner is the linear probe of its frozen features: {why}"
            self.notes.append(told + ("; it is not fitted again on train and validation" if self.refit else ""))
        elif self.refit:
            tuned = self._made("refit", self._on_all(self.runner(arm)), RACE_WINNER, later=self.ends - 2)
        return arm, tuned

    def _arm_of(self, model: str) -> Arm:
        """The arm that a probe of a model stands for: the one that came furthest."""
        looks = [look for look in self.journal.looks if look.arm.model == model and look.metric is not None]
        best = max(looks, key=lambda look: (look.rung, look.metric), default=None)
        return Arm(model, self.rate(1.0)) if best is None else best.arm

    def _to_its_end(self, leaders: Sequence[Arm]) -> tuple[Arm, Tuned]:
        if not leaders and self.floor is not None:
            return self._as_it_is(self.floor)
        first = self.journal.record.final or self._at_better_rate(leaders[0])
        for arm, steps, _ in self.journal.ended[-1:]:
            if arm == first and steps >= self.steps and not self.refit:  # it was tuned for as long already
                put_in_place(self.folder / EARLIER, self.folder / RACE_WINNER)
                self.journal.stage("winner", arm.model)
                return arm, opened(self.folder / RACE_WINNER, arm.model)
        for arm in [first, *(arm for arm in leaders if arm != first)]:
            self.journal.decide(arm)
            try:
                floor = self.floor if self.floor is not None and self.floor.model == arm.model else None
                return arm, self._made("winner", self.runner(arm), RACE_WINNER, later=self.ends - 1, floor=floor)
            except TuningError as error:
                self.note(f"{arm} could not be tuned to its end: {error}")
                last = error
        if self.floor is None:
            raise last
        return self._as_it_is(self.floor)

    def _as_it_is(self, floor: Floor) -> tuple[Arm, Tuned]:
        """A linear probe in the winner's place."""
        arm = self._arm_of(floor.model)
        return arm, self._made("probe", self.runner(arm), RACE_WINNER, later=0.0, floor=floor, trains=False)

    def _better_earlier(self, tuned: Tuned) -> tuple[Arm, Tuned] | None:
        """The winner of a shorter race where a longer one found nothing better, in its place again."""
        for arm, _, metric in self.journal.ended[-1:]:
            if metric is not None and "validation" in tuned.metrics and metric > tuned.metric("validation").value:
                self._compare(opened(self.folder / EARLIER, arm.model))
                put_in_place(self.folder / EARLIER, self.folder / RACE_WINNER)
                self.journal.stage("earlier", arm.model)
                self.note("the winner of the shorter race stays: the longer one has found nothing better")
                return arm, opened(self.folder / RACE_WINNER, arm.model)
        return None

    def _compare(self, tuned: Tuned) -> None:
        """Note how the winner and the probe that the race began with do on the same samples."""
        if self.floor is None or tuned.best_step == 0 or "validation" not in tuned.metrics:
            return
        reached = self.floor.of_same_samples(self.task, tuned)
        self.journal.beside(self.floor.model, self.floor.metric, reached, self.floor.held_out)

    def _better_probe(self, arm: Arm, tuned: Tuned) -> Floor | None:
        """A linear probe that is better than the tuned winner: of the first by evidence, or of the winner itself."""
        if self.floor is None or self.floor.model == arm.model or "validation" not in tuned.metrics:
            return None  # nothing is held out, or the two were compared already
        row = next((row for row in self.ranking if row.identifier == arm.model), None)
        probes = [self.floor]
        if row is not None and row.expected and row.expected[0].value > tuned.metric("validation").value:
            probes += [own for own in [self._probe_of(arm.model)] if own is not None]
        # Of two probes the first by evidence may have been measured on fewer samples: each is compared on its own.
        leads = {one: one.metric - one.of_same_samples(self.task, tuned) for one in probes}
        best = max(probes, key=leads.__getitem__)
        return best if leads[best] > 0 else None

    def _at_better_rate(self, first: Arm) -> Arm:
        """The first with its rates compared again on the last rung: after few steps high rates lead, not at the end."""
        rates = [first, *(arm for arm in self.arms if arm.model == first.model and arm != first)]
        if not self.rungs or len(rates) == 1:
            return first
        rung, grid = self.rungs[-1], Grid(beyond=(self.rate(HIGHER_FACTOR),))
        looks = list(self.climb(rates, rung))
        if len(looks) < len(rates):
            return first  # there is no time
        best = better_rate(looks)
        higher = grid.next_rate([arm.learning_rate for arm in rates], best.learning_rate)
        if higher is None:
            return best
        return better_rate([*looks, *self.climb([Arm(first.model, higher)], rung)])

    def deployed(self, winner: Arm, tuned: Tuned, teachers: Sequence[str], rate: float | None) -> Tuned:
        """The model to deploy, taught by `teachers`; the winner itself where it is the model to deploy.

        `rate` is the learning rate that was best for it in the race; None where it has not raced.
        """
        self.journal.deploy(self.deploy, teachers)
        if winner.model == self.deploy:
            self.notes.append("the model to deploy has won: nobody teaches it")
            put_in_place(self.folder / RACE_WINNER, self.folder / RACE_DEPLOYED)
            return tuned
        floor = None if self.refit or "deploy" in self.journal.stages_done else self._probe_of(self.deploy)
        chosen = rate if rate is not None else self._best_rate(tuple(teachers))
        for slower in range(self.asked.restarts + 1):
            runner = self._lesson(float(f"{chosen / RESTART_FACTOR**slower:.3g}"), tuple(teachers))
            try:
                learner = self._on_all(runner) if self.refit else runner
                return self._made("deploy", learner, RACE_DEPLOYED, later=0, floor=floor)
            except DivergedError as error:
                self.note(f"{runner.arm} diverged while it was taught: {error.what}")
        raise TuningError(f"{self.deploy} diverged at every learning rate.")

    def _lesson(self, rate: float, teachers: tuple[str, ...]) -> Runner:
        return self.runner(Arm(self.deploy, rate), folder=self.folder / "lessons", teachers=teachers)

    def _made(
        self,
        stage: str,
        runner: Runner,
        place: str,
        later: float,
        floor: Floor | None = None,
        trains: bool = True,
    ) -> Tuned:
        """Finish a run and put it in its place; `later` whole runs come after it.

        Where there is no time for training, or it does not come up to its `floor`, the result is that probe.
        """
        target = self.folder / place
        if stage in self.journal.stages_done:
            return opened(target, runner.arm.model)
        pace, left = self.pace(runner.arm.model), self.clock.left
        samples = len(self.task.validation) + len(self.task.test)
        reserve = pace.look + 1.2 * pace.row * samples + 0.01 * (self.clock.seconds or 0.0)
        if (compared := floor or (self.floor if stage == "winner" else None)) is not None:
            reserve += pace.row * compared.held_out
        seen = [look.steps for look in self.journal.looks if look.arm == runner.arm] if stage == "winner" else []
        now = self.steps - max(seen, default=0)
        seconds = None if left is None else left * now / (now + max(0.0, later) * self.steps)
        if floor is not None and seconds is not None and not seen:
            trains = trains and seconds - reserve > FEWEST_STEPS_WORTH * pace.step
        work = Finish(
            runner,
            pace=pace.step,
            seconds=seconds,
            reserve=reserve,
            row=pace.row,
            longest=self.longest,
            elsewhere=self.engine.elsewhere,
            floor=floor,
            trains=trains,
            from_probe=stage == "winner" and not seen,
        )
        tuned = self._done(stage, work, runner.arm)
        put_in_place(runner.folder / BEST, target)
        self.journal.stage(stage, runner.arm.model)
        return tuned if tuned is not None else opened(target, runner.arm.model)

    def _done(self, key: str, work: Callable[[], T], arm: Arm) -> T:
        """What one job gives; a process that died under it is a failure of the arm, not of the race."""
        job = trial_job(key, work, self.engine, self.asked.device)
        (result,) = self.engine.run([job], observer=self.observer)
        if isinstance(result.error, EngineError):
            raise TuningError(f"{arm}: {result.reason}") from result.error
        if result.error is not None:
            raise result.error
        value: T = result.value
        return value

    def _on_all(self, runner: Runner) -> Runner:
        """The same on train and validation together, in a folder of its own."""
        task = TaskReference.of(with_validation(self.task), self.engine)
        return replace(runner, task=task, folder=self.folder / "refit" / runner.folder.name)

    def _best_rate(self, teachers: tuple[str, ...]) -> float:
        """The learning rate at which the model to deploy learns best from its teachers, by the second rung.

        Lower ones are tried only where it diverges at those of the race.
        """
        if not self.rungs:
            return self.rate(1.0)
        rung = self.rungs[min(1, len(self.rungs) - 1)]
        looks = list(self.journal.lesson_looks)
        lower = [RATE_FACTORS[0] / RESTART_FACTOR**slower for slower in range(1, self.asked.restarts + 1)]
        for factor in (*RATE_FACTORS, *lower):
            arm = Arm(self.deploy, self.rate(factor))
            pace, left = self.pace(self.deploy), self.clock.left
            if any(look.arm == arm for look in looks):
                continue
            if any(not look.failure for look in looks) and (
                factor in lower or (left is not None and left < pace.look + pace.step * (rung.steps + self.steps))
            ):
                break
            looks.append(self._look(arm, rung, teachers))
        good = [look for look in looks if look.metric is not None]
        if not good:
            raise TuningError(f"{self.deploy} could not be tuned: {looks[0].failure}")
        return max(good, key=lambda look: look.metric if look.metric is not None else -math.inf).arm.learning_rate

    def _look(self, arm: Arm, rung: Rung, teachers: tuple[str, ...]) -> Look:
        lesson = self._lesson(arm.learning_rate, teachers)
        climb = Climb(lesson, rung, rung.rows(self.base.batch_size), keep_above=math.inf)
        look = self._done(f"lesson-{arm}", climb, arm)
        assert look is not None  # it has no limit of time
        self.journal.look(look, "lesson")
        return look
