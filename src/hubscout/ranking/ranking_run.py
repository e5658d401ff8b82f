"""A ranking under way: which model runs next on which rows, and what becomes of what goes wrong."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.errors import (
    InterruptedRunError,
    ModalityError,
    OtherRunError,
    OverLimitError,
    RunError,
    TaskError,
    one_line,
)
from hubscout.ranking.assess import Settings
from hubscout.ranking.candidates import Candidate, still_holds
from hubscout.ranking.journal import Journal
from hubscout.ranking.latency import same_machine, with_better_latency
from hubscout.ranking.limits import over_by_its_hub
from hubscout.runs.profiler import Profiler, together
from hubscout.runs.ranking import Ranking, Stage, TaskSummary
from hubscout.runs.ranking_storage import check_row
from hubscout.runs.row import BUDGET_SPENT, Failure, Row, cause_of
from hubscout.runs.run_folder import describe_environment

if TYPE_CHECKING:
    from hubscout.ranking.assessor import Assessor
    from hubscout.tasks import Task


@dataclass
class RankingRun:
    """The state of a ranking under way. `task` is what is ranked on, `whole` the same before `limit` cut it."""

    task: Task
    whole: Task
    candidates: tuple[Candidate, ...]
    settings: Settings
    configuration: Mapping[str, Any]
    cache_folder: str | None
    journal: Journal
    started: float
    notes: tuple[str, ...]
    seed: int
    profiler: Profiler | None = None
    """Measures what goes on between the models, where that was asked for."""
    assessor: Assessor = field(init=False)
    """Set once there is something to be run."""
    rows: dict[str, Row] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    """Models that a pattern matched and that read other inputs than those of the task."""
    unopened: set[str] = field(default_factory=set)
    """Models that cost too much by what their hubs say."""
    stages: list[Stage] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    timed: dict[str, Row] = field(default_factory=dict)
    """Rows that were there before, whose latency counts where it is the better one."""
    profiled_seconds: float = 0.0
    """Of the models that ran in this process one after the other."""
    seconds_before: float = 0.0
    """Spent by earlier runs on what is in the folder."""
    over: bool = False
    """Whether the folder holds all that this run can find out."""

    def begin(self, overwrite: bool) -> None:
        """Open the run folder and take over what is in it: models that are there already stay."""
        self.environment = describe_environment(device=self.settings.extraction.device)
        if self.cache_folder is not None:
            self.environment["cache"] = self.cache_folder
        earlier = self.journal.open(task=self.whole.fingerprint, settings=self.configuration, overwrite=overwrite)
        before = self.journal.there()
        if before is not None and same_machine(before.environment, self.environment):
            self.timed = {str(row.identifier): row for row in before.rows}
        wanted = {candidate.identifier for candidate in self.candidates}
        there: dict[str, Row] = {}
        if earlier is not None:
            self.seconds_before = earlier.seconds
            there = self._holding(earlier)
            if not self.configuration["progressive"]:
                self.rows = there
                self.failures = {f.identifier: f for f in earlier.failures if f.identifier not in wanted}
            elif earlier.complete and there and wanted <= {*there, *(failed := self._not_again(earlier))}:
                self.rows, self.stages, self.failures = there, list(earlier.stages), failed
            elif others := sorted(set(there) - wanted):
                raise OtherRunError(
                    f"{self.journal.folder} holds a ranking on growing subsets, in which models are given up by "
                    f"comparison with each other: name those that are there as well ({', '.join(others)}), choose "
                    "another folder, or overwrite it (overwrite=True, --overwrite)."
                )
        self.journal.begin(tuple(there.values()))
        self.journal.note(
            "started",
            models=sorted(wanted),
            taken_over=sorted(self.rows),
            task=self.whole.name,
            pid=os.getpid(),
            host=platform.node(),
        )
        self._leave_unopened()
        self.over = wanted <= {*self.rows, *self.failures}
        if self.rows and self.settings.observer is not None:
            from hubscout.runs.events import Message

            told = f"{len(self.rows)} finished {'model is' if len(self.rows) == 1 else 'models are'} there already"
            self.settings.observer(Message(str(self.journal.folder), told))

    def _not_again(self, earlier: Ranking) -> dict[str, Failure]:
        """Failures of a finished ranking on growing subsets that stay.

        Budget and limits are the same, or the folder were refused: what was not reached, or was too costly, would be
        so now. Where no model is given up for another, one that failed does not make the others be scored again.
        """
        same = (BUDGET_SPENT, OverLimitError.__name__)
        stay = [one for one in earlier.failures if one.error in same or not self.configuration["drop"]]
        return {one.identifier: one for one in stay}

    def _holding(self, earlier: Ranking) -> dict[str, Row]:
        """The rows of the folder that stay: all but those of wanted models that have changed since."""
        wanted = {candidate.identifier: candidate for candidate in self.candidates}
        found: dict[str, Row] = {}
        for row in earlier.rows:
            candidate = wanted.get(row.identifier)
            if candidate is None:
                found[row.identifier] = row
            elif still_holds(row, candidate):
                # By the name as it was given now: the user has said it, not the file.
                found[candidate.identifier] = replace(row, identifier=candidate.identifier)
        return found

    def _leave_unopened(self) -> None:
        """Fail models that are far over the limits by what their hubs say, before anything is downloaded."""
        for candidate in self.missing:
            if reason := over_by_its_hub(candidate, self.settings.limits):
                self.fail(candidate, OverLimitError.__name__, reason)
                self.unopened.add(candidate.identifier)

    @property
    def missing(self) -> list[Candidate]:
        """The models that are still to be run."""
        done = {*self.rows, *self.unopened}
        return [candidate for candidate in self.candidates if candidate.identifier not in done]

    def at_once(self) -> None:
        """Every model on all the rows."""
        for _, found in self.attempts(self.missing, [None], beside=True):
            if found is not None:
                self.take(found)
            self.journal.keep(self.ranking(complete=False), more_to_come=True)

    def attempts(
        self,
        candidates: Sequence[Candidate],
        increments: Sequence[np.ndarray | None],
        deadline: float | None = None,
        fewest: int = 0,
        ahead: float = 0.0,
        *,
        beside: bool = False,
    ) -> Iterator[tuple[Candidate, Row | None]]:
        """Assess models, wherever the engine runs them, while `ahead` more end by the deadline, and `fewest` anyway."""
        if not fewest and deadline is not None and time.perf_counter() > deadline:
            return
        began, done = time.perf_counter(), 0
        with closing(self.assessor.assess(candidates, increments, beside=beside)) as outcomes:
            for candidate, outcome in outcomes:
                found = self.check(candidate, outcome)
                done += found is not None
                yield candidate, found
                now = time.perf_counter()
                if deadline is not None and done >= fewest and now + ahead * (now - began) / max(done, 1) > deadline:
                    return

    def check(self, candidate: Candidate, found: Row | Exception) -> Row | None:
        """Note what became of a model; what is wrong with the data is raised."""
        if isinstance(found, TaskError):
            raise found
        if isinstance(found, Row):
            try:
                check_row(found)
            except RunError as error:
                found = error
        if isinstance(found, ModalityError) and candidate.by_pattern:
            self.skipped.append(candidate.identifier)
            self.journal.note("model-skipped", model=candidate.identifier, reason=str(found))
            return None
        if isinstance(found, Exception):
            self.fail(candidate, type(found).__name__, one_line(found))
            return None
        self.journal.note("model-finished", model=found.identifier, score=found.score, n=found.n, seconds=found.seconds)
        return found

    def take(self, found: Row) -> None:
        """Count an assessed model in. Its latency is the best that was ever measured here."""
        row = with_better_latency(found, self.timed.get(found.identifier))
        self.timed[row.identifier] = row
        before = self.rows.get(row.identifier)  # on a smaller subset
        profile = together([row.profile, before.profile if before is not None else None])
        if row.profile is not None and not self.assessor.elsewhere:
            self.profiled_seconds += row.profile.seconds
        self.rows[row.identifier] = replace(row, profile=profile)

    def fail(self, candidate: Candidate, error: str, reason: str) -> None:
        """Note that a model could not be ranked."""
        self.rows.pop(candidate.identifier, None)
        reason = reason.removeprefix(f"{candidate.identifier} failed: ")  # its name stands beside the reason
        self.failures[candidate.identifier] = Failure(identifier=candidate.identifier, error=error, reason=reason)
        self.journal.note("model-failed", model=candidate.identifier, error=error, reason=reason)
        if self.settings.observer is not None:
            from hubscout.runs.events import Finished

            self.settings.observer(Finished(candidate.identifier, 0.0, error=reason, cause=cause_of(error)))

    def ranking(self, *, complete: bool) -> Ranking:
        """What is known so far."""
        return Ranking(
            task=summarise(self.whole, self.notes, self.skipped),
            metrics=self.settings.metrics,
            rows=tuple(self._with_zoo_scores()),
            failures=tuple(self.failures.values()),
            stages=tuple(self.stages),
            settings=self.configuration,
            environment=self.environment,
            seconds=self.seconds_before + time.perf_counter() - self.started,
            complete=complete,
            seed=self.seed,
        )

    def _with_zoo_scores(self) -> list[Row]:
        from hubscout.metrics import combine_zoo

        rows = dict(self.rows)
        for name in self.settings.metrics:
            # Models that were dropped ran on other data, so they have no place in the zoo's comparison.
            parts = {m: row.parts[name] for m, row in rows.items() if name in row.parts and row.dropped is None}
            if not parts:
                continue
            for model, score in combine_zoo(name, parts).items():
                row = rows[model]
                value = score.signed_value if name == self.settings.metrics[0] else row.score
                rows[model] = replace(row, score=value, scores={**row.scores, name: score.value})
        return list(rows.values())

    def interrupted(self) -> InterruptedRunError:
        """The error that says what was kept, with the ranking so far in its `ranking`."""
        for candidate, outcome in self.assessor.settled():
            if (found := self.check(candidate, outcome)) is not None:
                self.take(found)
        ranking = self.ranking(complete=False)
        self.journal.note("interrupted")
        self.journal.keep(ranking)
        done = f"{len(self.candidates) - len(self.missing)} of {len(self.candidates)} models are finished"
        if self.journal.problem is not None:
            where = f" but not saved in {self.journal.folder}: {self.journal.problem}."
        elif self.journal.folder is not None:
            where = f" and saved in {self.journal.folder}; make the same call again to resume."
        else:
            where = "; give out= (--out) to have them saved."
        error = InterruptedRunError(done + where)
        error.ranking = ranking  # type: ignore[attr-defined]
        return error

    def finish(self) -> Ranking:
        """The ranking, saved."""
        if self.profiler is not None:
            self.environment["profile"] = asdict(self.profiler.profile().less(self.profiled_seconds))
        ranking = self.ranking(complete=True)
        self.journal.keep(ranking)
        if self.journal.problem is not None:
            said = f"not saved in {self.journal.folder}: {self.journal.problem}"
            return replace(ranking, environment={**ranking.environment, "not_saved": said})
        self.journal.note("finished", seconds=ranking.seconds, failed=len(ranking.failures))
        return ranking


def summarise(task: Task, notes: Sequence[str], skipped: Sequence[str]) -> TaskSummary:
    """The task in plain values, with further notes; `skipped` are models of patterns that read other inputs."""
    said = [*task.notes, *notes]
    if skipped:
        listed = ", ".join(skipped[:3]) + (" …" if len(skipped) > 3 else "")
        said.append(f"models of a pattern that read other inputs are left out ({len(skipped)}): {listed}")
    return TaskSummary(**{**task.summary(), "target_names": tuple(task.target_names), "notes": tuple(said)})
