"""A race under way: who goes on, what is kept, and when the time is over."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, cast

from hubscout.engines import JobResult
from hubscout.errors import EngineError, TuningError
from hubscout.racing.arms import Arm, Climb, Look, failed_look
from hubscout.racing.elimination import broken_by_rate, chances, finalists, one_rate_each, pooled, survivors
from hubscout.racing.held_out_samples import other_fold
from hubscout.racing.race_journal import BEST, drop_checkpoints, put_in_place
from hubscout.racing.race_plan import RacePlan
from hubscout.racing.rungs import Pace, Rung, work_after
from hubscout.ranking.jobs import TaskReference
from hubscout.runs.race_display import called
from hubscout.runs.run_folder import RACE_WINNER
from hubscout.runs.texts import counted
from hubscout.tuning.trials import trial_job


@dataclass(frozen=True)
class Contest:
    """The rungs of a race: what is finished is on disk at once."""

    plan: RacePlan

    def leaders(self) -> list[Arm]:
        """Climb all rungs; the arms that are left, the best first: none where only the probe can be used."""
        plan = self.plan
        arms = leaders = plan.arms
        models = len({arm.model for arm in arms})
        for rung, width in zip(plan.rungs, plan.widths, strict=False):
            if not width:
                continue
            arms = arms[:width]
            # Looks come as they end, and those of an earlier run first: the order so far is that of the arms.
            places = {arm: place for place, arm in enumerate(arms)}
            looks = sorted(self.climb(arms, rung), key=lambda look: places[look.arm])
            self._tell_missed(rung, len(arms), len(looks))
            looks += self.climb(self._instead(looks), rung)
            if not looks:
                break
            share = rung.steps / plan.steps
            # A budget was granted to be used, and the order of all is worth something too.
            fewest = len(looks) if plan.clock.seconds is not None else math.ceil(models / 3)
            leaders = survivors(looks, plan.evidence, share, len(looks), plan.asked.seed, fewest)
            if not leaders:
                reasons = "; ".join(f"{called(look.arm, plan.journal.record)}: {look.failure}" for look in looks[:3])
                if plan.journal.record.probed:
                    plan.note(f"no arm could be trained: {reasons}")
                    return []
                raise TuningError(f"No arm could be trained: {reasons}")
            arms = one_rate_each(leaders)
            room = next((later for later in plan.widths[rung.number + 1 : len(plan.rungs)] if later), 1)
            self._rung_over(rung, looks, arms[:room])
            if len(arms) == 1:
                break
        return self._cross_fitted(leaders) if plan.folds > 1 else leaders

    def _instead(self, looks: Sequence[Look]) -> list[Arm]:
        """The other rates of models that have become worse, with more steps, than they had been at those."""
        before = {look.arm: look for look in self.plan.journal.looks if looks and look.rung < looks[0].rung}
        return [
            arm
            for look in looks
            for arm, earlier in before.items()
            if arm.model == look.arm.model and arm != look.arm and broken_by_rate(look, earlier)
        ]

    def _rung_over(self, rung: Rung, looks: list[Look], going_on: list[Arm]) -> None:
        plan = self.plan
        chance = chances(looks, plan.evidence, rung.steps / plan.steps, plan.asked.seed)
        p_best = {look.arm: float(one) for look, one in zip(looks, chance, strict=True)}
        plan.journal.rung(rung, going_on, p_best)
        staying = {arm.model for arm in going_on}  # both rates of a model: they are compared again if it wins
        for arm in (one for one in plan.arms if one.model not in staying):
            drop_checkpoints(plan.runner(arm).folder)

    def _cross_fitted(self, leaders: list[Arm]) -> list[Arm]:
        """The leaders in the order of what all folds say, where the last rung could not tell them apart."""
        plan = self.plan
        last = max((look.rung for look in plan.journal.looks if look.rung < len(plan.rungs)), default=-1)
        here = [look for look in plan.journal.looks if look.rung == last]
        chosen = finalists(here, plan.evidence, self.shares.get(last, 1.0), plan.asked.seed)
        if len(chosen) < 2:
            return leaders
        rung = plan.rungs[last]
        told = {look.arm: {0: look} for look in here if look.arm in chosen}
        for fold in range(1, plan.folds):
            task = other_fold(plan.task, fold, plan.asked.seed)
            if not len(task.validation):
                plan.notes.append(f"there are too few groups for more than {counted(fold, 'fold')}")
                break
            looks = list(self.climb(chosen, rung, fold=fold, task=TaskReference.of(task, plan.engine)))
            self._tell_missed(rung, len(chosen), len(looks))
            for look in looks:
                if not look.failure:
                    told[look.arm][fold] = look
        together = pooled(told, len(plan.rungs))
        known = {look.arm for look in plan.journal.looks if look.rung == len(plan.rungs)}
        for look in (one for one in together if one.arm not in known):
            plan.journal.look(look)
        order = survivors(together, plan.evidence, self.shares[len(plan.rungs)], len(together), plan.asked.seed)
        self._rung_over(Rung(len(plan.rungs), rung.stable, rung.steps), together, order)
        return [*order, *(arm for arm in leaders if arm not in order)]

    @property
    def shares(self) -> dict[int, float]:
        """Rung → its share of the steps; the folds of the finalists count as one more."""
        found = {rung.number: rung.steps / self.plan.steps for rung in self.plan.rungs}
        return {**found, len(found): found[max(found)]} if found else {}

    def climb(
        self, arms: list[Arm], rung: Rung, fold: int | None = None, task: TaskReference | None = None
    ) -> Iterator[Look]:
        """Looks at the arms on a rung: those of an earlier run, then new ones while there is time."""
        plan = self.plan
        seen = plan.journal.looks if fold is None else plan.journal.record.folds.get(fold, ())
        done = {look.arm: look for look in seen if look.rung == rung.number}
        yield from (done[arm] for arm in arms if arm in done)
        waiting = [arm for arm in arms if arm not in done]
        trained = {look.arm: plan.rungs[look.rung].stable for look in seen if look.rung < rung.number}
        before = min((trained.get(arm, 0) for arm in waiting), default=0)
        if not waiting or not self._has_time(rung, len(done) + 1, before):
            return
        jobs = [self._work(arm, rung, place, fold, task) for place, arm in enumerate(waiting)]
        with closing(cast(Generator[JobResult], plan.engine.run(jobs, observer=plan.observer))) as results:
            for count, result in enumerate(results, start=1):
                look: Look | None = result.value
                if isinstance(result.error, EngineError):  # the process died under it, more than once
                    arm = next(one for one in waiting if str(one) == result.key)
                    look = failed_look(arm, rung, result.seconds, result.error)
                elif result.error is not None:
                    raise result.error
                if look is not None:
                    self._keep(look, fold)
                    yield look
                if count < len(jobs) and not self._has_time(rung, len(done) + count + 1, before):
                    return

    def _tell_missed(self, rung: Rung, arms: int, seen: int) -> None:
        """Say where there was no time for all arms of a rung, in this call or in an earlier one."""
        if 0 < seen < arms:
            told = "1 arm was" if arms - seen == 1 else f"{arms - seen} arms were"
            self.plan.notes.append(f"time was short: {told} not looked at after {rung.steps} steps")

    def _work(self, arm: Arm, rung: Rung, place: int, fold: int | None, task: TaskReference | None) -> Any:
        plan = self.plan
        best = [look.metric for look in plan.journal.looks if look.rung == rung.number and look.metric is not None]
        rows = rung.rows(plan.base.batch_size)
        if (earlier := plan.journal.record.ended) and earlier[-1][2] is not None:
            # The winner of a shorter race was measured on all held-out samples, and stays unless all are looked at.
            best.append(earlier[-1][2] if rows >= len(plan.task.validation) else math.inf)
        runner = plan.runner(arm, task=task, folder=None if fold is None else plan.folder / "folds" / str(fold))
        above = max(best, default=-math.inf) if fold is None else math.inf
        probe = plan.floor.on_first(plan.task, rows) if plan.floor is not None and fold is None else None
        climb = Climb(runner, rung, rows, keep_above=above, probe=probe, seconds=self._most(rung))
        return replace(trial_job(str(arm), climb, plan.engine, plan.asked.device), cost=-float(place))

    def _keep(self, look: Look, fold: int | None) -> None:
        """Write a look down at once; the best so far becomes the model that can be used."""
        plan = self.plan
        if fold is not None:
            plan.journal.look(look, "fold", fold=fold)
            return
        before = [one.metric for one in plan.journal.looks if one.rung >= look.rung and one.metric is not None]
        plan.journal.look(look)
        if look.saved and look.metric is not None and look.metric > max(before, default=-math.inf):
            put_in_place(plan.runner(look.arm).folder / BEST, plan.folder / RACE_WINNER)

    def _has_time(self, rung: Rung, arms: int, before: int) -> bool:
        """Whether a look at an arm after `before` steps leaves enough for later rungs of so many, and for the end."""
        left, pace = self.plan.clock.left, self.plan.journal.usual_pace
        if left is None or pace is None:
            return True
        return left > (pace.look + pace.step * (rung.steps - before)) + self._reserve(pace, rung, arms)

    def _reserve(self, pace: Pace, rung: Rung, arms: int) -> float:
        """Seconds for the later rungs of so many arms, and for what comes after the rungs."""
        plan = self.plan
        later = [min(width, arms) if number > rung.number else width for number, width in enumerate(plan.widths)]
        steps, end = work_after(later, plan.rungs, plan.steps, rung.number)
        looks = sum(later[rung.number + 1 : len(plan.rungs)])
        in_rungs = (pace.step * steps + pace.look * looks) / plan.engine.places()
        measuring = pace.row * plan.ends * plan.samples_measured
        return in_rungs + pace.step * (end + (plan.ends - 1) * plan.steps) + measuring + pace.look

    def _most(self, rung: Rung) -> float | None:
        """Seconds that a look may take at most."""
        left, pace = self.plan.clock.left, self.plan.journal.usual_pace
        return None if left is None or pace is None else left - self._reserve(pace, rung, 1) / 2
