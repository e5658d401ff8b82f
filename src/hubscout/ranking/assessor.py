"""Assessing many models on an engine, one job per model; large ones in slices where workers would have nothing to do.

Slices need a cache that all workers see: they leave their features there, and the job that assesses the model finds
them. It is the same job as that of a model in one go.
"""

from __future__ import annotations

import math
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from hubscout.engines import Engine, Job, JobResult
from hubscout.features.extraction_plan import cut
from hubscout.ranking.assess import Settings
from hubscout.ranking.candidates import Candidate
from hubscout.ranking.jobs import (
    AssessModel,
    Begun,
    ExtractSlice,
    Needs,
    SentModel,
    SliceResult,
    TaskReference,
    guess_params,
    job_needs,
)
from hubscout.ranking.load_ahead import AheadModel, LoadAhead
from hubscout.ranking.score_beside import LaterRow, ScoreBeside
from hubscout.runs.events import Advanced, Event, Finished, Started
from hubscout.runs.profiler import together
from hubscout.runs.row import Row

if TYPE_CHECKING:
    from hubscout.engines import Shared
    from hubscout.tasks import Task

Outcome = Row | Exception

SLICES_PER_PLACE = 2
"""Fewer models than this for each worker are cut into slices, so that the last workers do not wait for one."""
LEAST_ROWS_PER_SLICE = 512
"""Measured in docs/scale.md: fewer rows take a fast model no longer than the bookkeeping of one more slice."""


class Assessor:
    """Assesses models on an engine.

    Args:
        engine: where the jobs run.
        task: the labelled data.
        settings: how models are assessed; their observer hears of progress.
        shared_cache: whether all workers see the cache of the settings.
        seconds_limit: how long a job may be silent.
        began: called with the name of each model when a process begins with it.
        load_ahead: open the next model while one runs, where they run in this process one after the other, for the
            device that is named.
        at_last: done beside the last models, where models are loaded ahead.

    """

    def __init__(
        self,
        engine: Engine,
        task: Task,
        settings: Settings,
        *,
        shared_cache: bool,
        seconds_limit: float | None,
        began: Callable[[str], None],
        load_ahead: str | None = None,
        at_last: Callable[[], None] | None = None,
    ) -> None:
        self._engine = engine
        self.elsewhere = engine.elsewhere
        """Whether models run in other processes."""
        self._rows = len(task.train)
        self._task = TaskReference.of(task, engine)
        self._observer = settings.observer
        self._settings = replace(settings, observer=None)
        if engine.elsewhere:
            device = settings.extraction.device
            if device.startswith("cuda") and engine.total("GPU"):
                device = "cuda"  # a job sees its own GPUs alone, so that each of them is the first
            self._settings = replace(
                self._settings,
                in_worker=True,
                prepared=None,
                cache=settings.cache if shared_cache else None,
                extraction=settings.extraction.replace(device=device),
            )
        self._seconds_limit = seconds_limit
        self._began = began
        self._load_ahead = None if engine.elsewhere else load_ahead
        self._at_last = at_last
        self._name = uuid.uuid4().hex
        self._known: dict[str, tuple[Candidate | SentModel, Needs]] = {}
        self._begun: set[str] = set()
        self._rows_left: dict[str, int] = {}
        """Of models in slices: what has not gone through yet."""
        self._unsettled: deque[tuple[Candidate, Outcome | LaterRow]] = deque()

    def assess(
        self, candidates: Sequence[Candidate], increments: Sequence[np.ndarray | None], *, beside: bool = False
    ) -> Generator[tuple[Candidate, Outcome], None, None]:
        """Each candidate once, in the order in which they are finished: its assessment, or what was wrong with it.

        `beside` lets a GPU run the next model while one is scored, which then is there one model later.
        """
        with ExitStack() as stack:
            models, device = (candidates, self._load_ahead) if self._load_ahead else ((), "cpu")
            ahead = stack.enter_context(LoadAhead(models, self._tell, self._at_last, device))
            thread = None
            if beside and self._load_ahead and ScoreBeside.suits(device, self._settings, self._task.open()):
                thread = stack.enter_context(ScoreBeside(device))
            yield from self._assess(candidates, increments, ahead, thread)

    def settled(self, *, but: int = 0) -> Iterator[tuple[Candidate, Outcome]]:
        """What models came to whose scores had to be waited for, all `but` so many."""
        while len(self._unsettled) > but:
            candidate, outcome = self._unsettled[0]
            if isinstance(outcome, LaterRow):
                try:
                    outcome = outcome.result()
                except Exception as error:
                    outcome = error
            self._unsettled.popleft()  # not before: who interrupts the wait is given what was waited for
            yield candidate, outcome

    def _assess(
        self,
        candidates: Sequence[Candidate],
        increments: Sequence[np.ndarray | None],
        ahead: LoadAhead,
        beside: ScoreBeside | None,
    ) -> Generator[tuple[Candidate, Outcome], None, None]:
        sent = tuple(None if rows is None else self._engine.share(rows) for rows in increments)
        last = self._rows if increments[-1] is None else len(increments[-1])
        models = {one.identifier: self._prepare(one, sent, last, len(candidates), ahead, beside) for one in candidates}
        of_slice = {job.key: model for model in models.values() for job in model.slices}
        self._begun = set()
        self._rows_left = {name: last for name, model in models.items() if model.slices}

        def follow(result: JobResult) -> list[Job]:
            return of_slice[result.key].after(result) if result.key in of_slice else []

        jobs = [job for model in models.values() for job in model.slices or [model.job]]
        for result in self._engine.run(jobs, observer=self._hear, then=follow):
            model = of_slice[result.key] if result.key in of_slice else models[result.key]
            outcome = model.outcome(result)
            if outcome is None:
                continue
            if isinstance(outcome, Row) and model.slices:
                self._tell(Finished(model.candidate.identifier, outcome.seconds or 0.0))
            self._unsettled.append((model.candidate, outcome))
            yield from self.settled(but=isinstance(outcome, LaterRow))
        yield from self.settled()

    def _prepare(
        self,
        candidate: Candidate,
        increments: tuple[Shared[np.ndarray] | None, ...],
        rows: int,
        company: int,
        ahead: LoadAhead,
        beside: ScoreBeside | None,
    ) -> _Model:
        """The jobs of a model, of which `rows` are to be run; there are `company` models."""
        name = candidate.identifier
        if name not in self._known:
            self._known[name] = self._send(candidate)
        model, needs = self._known[name]

        def job(key: str, work: AssessModel | ExtractSlice, cost: float) -> Job:
            return Job(key, work, cpus=needs.cpus, gpus=needs.gpus, cost=cost, seconds_limit=self._seconds_limit)

        slices: list[Job] = []
        count = self._slice_count(needs, rows, company)
        if count > 1 and isinstance(model, SentModel):
            shards = np.array_split(np.arange(len(cut(rows))), count)
            for number, part in enumerate(shards, start=1):
                work = ExtractSlice(model, self._task, self._settings, increments[-1], tuple(part.tolist()))
                slices.append(job(f"{name} {number}/{count}", work, needs.cost / count))
        opened = AheadModel(candidate, ahead) if self._load_ahead else model
        whole = AssessModel(opened, self._task, self._settings, increments, bool(slices), beside)
        return _Model(candidate, job(name, whole, needs.cost), slices)

    def _send(self, candidate: Candidate) -> tuple[Candidate | SentModel, Needs]:
        if not self._engine.elsewhere:
            return candidate, Needs(1.0, 0.0, 0.0)
        ready = candidate.ready()
        shared = None if ready is None else self._engine.share(ready)
        needs = job_needs(guess_params(candidate), self._rows, self._engine, self._settings.extraction.device)
        return SentModel(candidate.identifier, self._name, shared), needs

    def _slice_count(self, needs: Needs, rows: int, models: int) -> int:
        places = self._engine.places(cpus=needs.cpus, gpus=needs.gpus)
        if places == 1 or self._settings.cache is None or not self._engine.elsewhere:
            return 1
        return max(1, min(math.ceil(SLICES_PER_PLACE * places / models), rows // LEAST_ROWS_PER_SLICE))

    def _hear(self, event: Event) -> None:
        """Something that a job reported. A slice that is run again is not counted twice."""
        if isinstance(event, Begun):
            if event.model not in self._begun:
                self._begun.add(event.model)
                self._began(event.model)
                if event.model in self._rows_left:
                    self._tell(Started(event.model, self._rows_left[event.model]))
            return
        if isinstance(event, Advanced) and event.model in self._rows_left:
            event = Advanced(event.model, min(event.rows, self._rows_left[event.model]))
            self._rows_left[event.model] -= event.rows
            if not event.rows:
                return
        self._tell(event)

    def _tell(self, event: Event) -> None:
        if self._observer is not None:
            self._observer(event)


@dataclass
class _Model:
    """A model under way: the job that assesses it, and the slices that go before."""

    candidate: Candidate
    job: Job
    slices: list[Job]
    done: list[SliceResult] = field(default_factory=list)
    failed: bool = False

    def after(self, result: JobResult) -> list[Job]:
        """Count a slice in; the job to be run once all of them are there."""
        if result.error is None:
            self.done.append(result.value)
        return [self.job] if len(self.done) == len(self.slices) else []

    def outcome(self, result: JobResult) -> Outcome | LaterRow | None:
        """What became of the model; None where that is not known yet, or known already."""
        if result.error is not None:
            known, self.failed = self.failed, True
            return None if known else result.error
        if result.key != self.job.key or isinstance(result.value, LaterRow):
            return result.value if result.key == self.job.key else None
        return self._complete(result.value)

    def _complete(self, row: Row) -> Row:
        """The row with what its slices had cost and said."""
        said = [text for part in self.done for text in part.messages]
        return replace(
            row,
            seconds=(row.seconds or 0.0) + sum(part.seconds for part in self.done),
            from_cache=row.from_cache and all(part.from_cache for part in self.done),
            profile=together([row.profile, *(part.profile for part in self.done)]),
            notes=tuple(dict.fromkeys([*said, *row.notes])),
        )
