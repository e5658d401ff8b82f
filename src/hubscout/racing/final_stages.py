"""After the rungs: the winner to its end, a refit on all data, and the model to deploy with the winners as teachers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, TypeVar

from hubscout.errors import DivergedError, EngineError, TuningError
from hubscout.racing.arms import Arm, Climb, Look, Runner, Study, opened
from hubscout.racing.contest import Contest
from hubscout.racing.elimination import better_rate
from hubscout.racing.finishing import Finish
from hubscout.racing.floor import Floor, metric_on_first
from hubscout.racing.held_out_samples import with_validation
from hubscout.racing.race_journal import BEST, EARLIER, drop_lessons, put_in_place
from hubscout.racing.race_plan import RacePlan
from hubscout.racing.rungs import HIGHER_FACTOR, RATE_FACTORS, Pace, Rung
from hubscout.ranking.jobs import TaskReference
from hubscout.runs.race_display import called
from hubscout.runs.run_folder import RACE_DEPLOYED, RACE_WINNER
from hubscout.tuning.arguments import RESTART_FACTOR
from hubscout.tuning.choices import NOT_HEEDED, unheeded_note
from hubscout.tuning.rates import Grid
from hubscout.tuning.time_budget import TESTED_IN_PART

if TYPE_CHECKING:
    from hubscout.tuning import Tuned

T = TypeVar("T")

FEWEST_STEPS_WORTH = 2
"""Steps of training without which a probe is taken as it is."""
DEPLOY_ENDS = 1.5
"""What the model to deploy takes, in whole runs: its own, and three learning rates up to the second rung."""


@dataclass(frozen=True)
class FinalStages:
    """What is made after the rungs of a contest. A stage that is over is taken from its folder."""

    plan: RacePlan
    contest: Contest
    refit: bool = False

    def winner(self, leaders: Sequence[Arm]) -> tuple[Arm, Tuned]:
        """The best of the leaders that can be tuned to its end, tuned; or a linear probe that is better."""
        plan = self.plan
        steps, looks = 0, plan.journal.looks
        if "earlier" in plan.journal.stages_done:
            arm = plan.journal.record.ended[-1][0]
            tuned = opened(plan.folder / RACE_WINNER, arm.model)
        elif (probed := plan.journal.stages_done.get("probe")) is not None:
            arm, tuned = self._arm_of(probed), opened(plan.folder / RACE_WINNER, probed)
        else:
            arm, tuned = self._to_its_end(leaders)
            steps = tuned.steps  # those of a winner that may not stay
            reached = cache(partial(metric_on_first, plan.task, tuned))  # the samples of two probes may be the same
            self._compare(tuned, reached)
            if (floor := self._better_probe(arm, tuned, reached)) is not None:
                arm, tuned = self._as_it_is(floor)
            elif (earlier := self._better_earlier(tuned)) is not None:
                arm, tuned = earlier
        plan.journal.decide(arm)
        plan.notes += [note for note in tuned.notes if note.startswith(TESTED_IN_PART)]
        if tuned.best_step == 0:
            why = "there was no time to train it"
            if looks or steps or tuned.steps:
                failed = looks and all(look.failure for look in looks)
                why = "no model could be trained" if failed else "training did not come up to it in this time"
            told = f"the winner is the linear probe of its frozen features: {why}"
            plan.notes.append(told + ("; it is not fitted again on train and validation" if self.refit else ""))
        elif self.refit:
            tuned = self._made("refit", self._on_all(plan.runner(arm)), RACE_WINNER, later=plan.ends - 2)
        return arm, tuned

    def _arm_of(self, model: str) -> Arm:
        """The arm that a probe of a model stands for: the one that came furthest."""
        looks = [look for look in self.plan.journal.looks if look.arm.model == model and look.metric is not None]
        best = max(looks, key=lambda look: (look.rung, look.metric), default=None)
        return Arm(model, self.plan.rate(1.0)) if best is None else best.arm

    def _to_its_end(self, leaders: Sequence[Arm]) -> tuple[Arm, Tuned]:
        plan = self.plan
        if not leaders and plan.floor is not None:
            return self._as_it_is(plan.floor)
        first = plan.journal.record.final or self._at_better_rate(leaders[0])
        for arm, steps, _ in plan.journal.record.ended[-1:]:
            if arm == first and steps >= plan.steps and not self.refit:  # it was tuned for as long already
                put_in_place(plan.folder / EARLIER, plan.folder / RACE_WINNER)
                plan.journal.stage("winner", arm.model)
                return arm, opened(plan.folder / RACE_WINNER, arm.model)
        for arm in [first, *(arm for arm in leaders if arm != first)]:
            plan.journal.decide(arm)
            try:
                floor = plan.floor if plan.floor is not None and plan.floor.model == arm.model else None
                return arm, self._made("winner", plan.runner(arm), RACE_WINNER, later=plan.ends - 1, floor=floor)
            except TuningError as error:
                plan.note(f"{called(arm, plan.journal.record)} could not be tuned to its end: {error}")
                last = error
        if plan.floor is None:
            raise last
        return self._as_it_is(plan.floor)

    def _as_it_is(self, floor: Floor) -> tuple[Arm, Tuned]:
        """A linear probe in the winner's place."""
        arm = self._arm_of(floor.model)
        return arm, self._made("probe", self.plan.runner(arm), RACE_WINNER, later=0.0, floor=floor, trains=False)

    def _better_earlier(self, tuned: Tuned) -> tuple[Arm, Tuned] | None:
        """The winner of a shorter race where a longer one found nothing better, in its place again."""
        plan = self.plan
        for arm, _, metric in plan.journal.record.ended[-1:]:
            if metric is not None and "validation" in tuned.metrics and metric > tuned.metric("validation").value:
                earlier = opened(plan.folder / EARLIER, arm.model)
                self._compare(earlier, partial(metric_on_first, plan.task, earlier))
                put_in_place(plan.folder / EARLIER, plan.folder / RACE_WINNER)
                plan.journal.stage("earlier", arm.model)
                plan.note("the winner of the shorter race stays: the longer one has found nothing better")
                return arm, opened(plan.folder / RACE_WINNER, arm.model)
        return None

    def _compare(self, tuned: Tuned, reached: Callable[[int], float]) -> None:
        """Note how the winner and the probe that the race began with do on the same samples.

        `reached` gives the metric of the winner on the first so many of them.
        """
        floor = self.plan.floor
        if floor is None or tuned.best_step == 0 or "validation" not in tuned.metrics:
            return
        self.plan.journal.beside(floor.model, floor.metric, reached(floor.held_out), floor.held_out)

    def _better_probe(self, arm: Arm, tuned: Tuned, reached: Callable[[int], float]) -> Floor | None:
        """A linear probe that is better than the tuned winner: of the first by evidence, or of the winner itself."""
        plan = self.plan
        if plan.floor is None or plan.floor.model == arm.model or "validation" not in tuned.metrics:
            return None  # nothing is held out, or the two were compared already
        row = next((row for row in plan.ranking if row.identifier == arm.model), None)
        probes = [plan.floor]
        if row is not None and row.expected and row.expected[0].value > tuned.metric("validation").value:
            probes += [own for own in [plan.probe_of(arm.model)] if own is not None]
        # Of two probes the first by evidence may have been measured on fewer samples: each is compared on its own.
        leads = {one: one.metric - reached(one.held_out) for one in probes}
        best = max(probes, key=leads.__getitem__)
        return best if leads[best] > 0 else None

    def _at_better_rate(self, first: Arm) -> Arm:
        """The first with its rates compared again on the last rung: after few steps high rates lead, not at the end."""
        plan = self.plan
        rates = [first, *(arm for arm in plan.arms if arm.model == first.model and arm != first)]
        if not plan.rungs or len(rates) == 1:
            return first
        rung, grid = plan.rungs[-1], Grid(beyond=(plan.rate(HIGHER_FACTOR),))
        looks = list(self.contest.climb(rates, rung))
        if len(looks) < len(rates):
            return first  # there is no time
        best = better_rate(looks)
        higher = grid.next_rate([arm.learning_rate for arm in rates], best.learning_rate)
        if higher is None:
            return best
        return better_rate([*looks, *self.contest.climb([Arm(first.model, higher)], rung)])

    def deployed(self, winner: Arm, tuned: Tuned, teachers: Sequence[str], rate: float | None) -> Tuned:
        """The model to deploy, taught by `teachers`; the winner itself where it is the model to deploy.

        Done before, it is taken as it is, who taught it included: the rules of who teaches may have changed since.
        `rate` is the learning rate that was best for it in the race; None where it has not raced.
        """
        from hubscout.tuning.default_method import may_teach

        plan, record = self.plan, self.plan.journal.record
        if "deploy" in plan.journal.stages_done and winner.model != plan.deploy:  # whoever would teach it now
            plan.journal.deploy(plan.deploy, record.taught.get(plan.deploy, ()))
            return opened(plan.folder / RACE_DEPLOYED, plan.deploy)
        if not may_teach(plan.task.kind) and winner.model != plan.deploy:
            plan.note("teachers of tags were no gain where they were tried: nobody teaches the model to deploy")
            teachers = ()
        teachers = self._in_time(tuple(teachers)) if teachers and winner.model != plan.deploy else teachers
        if record.has_other_teachers(plan.deploy, teachers):
            drop_lessons(plan.folder, plan.deploy)
        plan.journal.deploy(plan.deploy, teachers)
        if winner.model == plan.deploy:
            plan.notes.append("the model to deploy has won: nobody teaches it")
            plan.notes += [told for told in [unheeded_note(plan.asked, "fine-tune", ())] if told]
            if record.stages.get("deploy", plan.deploy) != plan.deploy:  # another one has stood there
                plan.journal.stage("deploy", plan.deploy)
            put_in_place(plan.folder / RACE_WINNER, plan.folder / RACE_DEPLOYED)
            return tuned
        floor = None if self.refit else plan.probe_of(plan.deploy)
        chosen = rate if rate is not None else self._best_rate(tuple(teachers))
        for slower in range(plan.asked.restarts + 1):
            runner = self._lesson(float(f"{chosen / RESTART_FACTOR**slower:.3g}"), tuple(teachers))
            try:
                learner = self._on_all(runner) if self.refit else runner
                made = self._made("deploy", learner, RACE_DEPLOYED, later=0, floor=floor)
            except DivergedError as error:
                plan.note(f"{called(runner.arm, record)} diverged while it was taught: {error.what}")
            else:
                plan.notes += [note for note in made.notes if note.startswith(NOT_HEEDED)]
                return made
        raise TuningError(f"{plan.deploy} diverged at every learning rate.")

    def _in_time(self, teachers: tuple[str, ...]) -> tuple[str, ...]:
        """The teachers that there is time for; where a race goes on, those that it had begun with."""
        plan, record = self.plan, self.plan.journal.record
        if record.deploy == plan.deploy and set(begun := record.taught[plan.deploy]) <= set(teachers):
            return begun
        if plan.clock.left is None:
            return teachers
        lesson = self._lesson(plan.rate(1.0), teachers)
        kept, told = self._done("teachers", Study(lesson), lesson.arm)
        if told:
            plan.note(told)
        return kept

    def _lesson(self, rate: float, teachers: tuple[str, ...]) -> Runner:
        plan = self.plan
        place = plan.folder / "lessons"
        return plan.runner(Arm(plan.deploy, rate), folder=place, teachers=teachers, seconds=plan.clock.left)

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
        from hubscout.tuning.tuned_folder import give_own_card

        plan, target = self.plan, self.plan.folder / place
        if stage in plan.journal.stages_done:
            return opened(target, runner.arm.model)
        pace, left = self._pace(runner.arm.model), plan.clock.left
        reserve = pace.look + 1.2 * pace.row * plan.samples_measured + 0.01 * (plan.clock.seconds or 0.0)
        if (compared := floor or (plan.floor if stage == "winner" else None)) is not None:
            reserve += pace.row * compared.held_out
        seen = [look.steps for look in plan.journal.looks if look.arm == runner.arm] if stage == "winner" else []
        now = plan.steps - max(seen, default=0)
        seconds = None if left is None else left * now / (now + max(0.0, later) * plan.steps)
        if floor is not None and seconds is not None and not seen:
            trains = trains and seconds - reserve > FEWEST_STEPS_WORTH * pace.step
        work = Finish(
            runner,
            pace=pace.step,
            seconds=seconds,
            reserve=reserve,
            row=pace.row,
            longest=plan.longest,
            elsewhere=plan.engine.elsewhere,
            floor=floor,
            trains=trains,
            from_probe=stage == "winner" and not seen,
        )
        tuned = self._done(stage, work, runner.arm)
        put_in_place(runner.folder / BEST, target)
        plan.journal.stage(stage, runner.arm.model)
        if tuned is None:
            return opened(target, runner.arm.model)
        give_own_card(tuned.backbone, tuned.model, target)
        return tuned

    def _done(self, key: str, work: Callable[[], T], arm: Arm) -> T:
        """What one job gives; a process that died under it is a failure of the arm, not of the race."""
        result = self.plan.run_alone(key, work)
        if isinstance(result.error, EngineError):
            raise TuningError(f"{arm}: {result.reason}") from result.error
        if result.error is not None:
            raise result.error
        return result.value

    def _on_all(self, runner: Runner) -> Runner:
        """The same on train and validation together, in a folder of its own."""
        task = TaskReference.of(with_validation(self.plan.task), self.plan.engine)
        return replace(runner, task=task, folder=self.plan.folder / "refit" / runner.folder.name)

    def _best_rate(self, teachers: tuple[str, ...]) -> float:
        """The learning rate at which the model to deploy learns best from its teachers, by the second rung.

        Lower ones are tried only where it diverges at those of the race.
        """
        plan = self.plan
        if not plan.rungs:
            return plan.rate(1.0)
        rung = plan.rungs[min(1, len(plan.rungs) - 1)]
        looks = list(plan.journal.lesson_looks)
        lower = [RATE_FACTORS[0] / RESTART_FACTOR**slower for slower in range(1, plan.asked.restarts + 1)]
        for factor in (*RATE_FACTORS, *lower):
            arm = Arm(plan.deploy, plan.rate(factor))
            pace, left = self._pace(plan.deploy), plan.clock.left
            if any(look.arm == arm for look in looks):
                continue
            if any(not look.failure for look in looks) and (
                factor in lower or (left is not None and left < pace.look + pace.step * (rung.steps + plan.steps))
            ):
                break
            looks.append(self._look(arm, rung, teachers))
        good = [look for look in looks if look.metric is not None]
        if not good:
            raise TuningError(f"{plan.deploy} could not be tuned: {looks[0].failure}")
        return max(good, key=lambda look: look.metric if look.metric is not None else -math.inf).arm.learning_rate

    def _look(self, arm: Arm, rung: Rung, teachers: tuple[str, ...]) -> Look:
        lesson = self._lesson(arm.learning_rate, teachers)
        climb = Climb(lesson, rung, rung.rows(lesson.arguments.batch_size), keep_above=math.inf)
        look = self._done(f"lesson-{arm}", climb, arm)
        assert look is not None  # it has no limit of time
        self.plan.journal.look(look, "lesson")
        return look

    def _pace(self, model: str) -> Pace:
        """What the work on a model takes; that of all models where it has not been looked at."""
        journal = self.plan.journal
        looks = [*journal.looks, *journal.lesson_looks]
        return Pace.of(looks, model) or Pace.of(looks) or journal.pace or Pace(0.0, 0.0, 0.0)
