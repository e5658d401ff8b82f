"""Assessing many models at once on an engine: (model, shards) jobs go out, what comes back is merged and scored.

With a cache that all workers see, features are written there and a model is scored by a worker. Without, features or
sums come back, whichever is smaller, and the driver merges them in a fixed order and scores.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from hubscout.engines import Engine, Job, JobResult
from hubscout.features.parts import Merger, Part
from hubscout.features.sharding import cut
from hubscout.ranking.assess import Assessment, Settings, assess_extractions, features_are_needed
from hubscout.ranking.candidates import Candidate
from hubscout.ranking.jobs import ScoreJob, SentModel, ShardsJob, Told
from hubscout.ranking.needs import Needs, guess_params, job_needs
from hubscout.ranking.task_reference import TaskReference
from hubscout.runs.events import Advanced, Downloading, Event, Finished, Message, Started

if TYPE_CHECKING:
    from hubscout.engines import Shared
    from hubscout.runs.events import Observer
    from hubscout.tasks import Task

Outcome = Assessment | Exception

_LEAST_PARTS = 4
"""A model is cut into so many jobs at least: a worker that dies loses a quarter of it at most."""


class Spread:
    """Assesses models on an engine. `shared_cache` says that all workers see the cache of the settings."""

    def __init__(
        self,
        engine: Engine,
        task: Task,
        settings: Settings,
        *,
        shared_cache: bool,
        seconds_limit: float | None = None,
    ) -> None:
        self._engine = engine
        self._task = task
        self._observer = settings.observer
        self._to_cache = settings.cache is not None and shared_cache
        device = settings.extraction.device
        options = settings.extraction.replace(device="cuda" if device.startswith("cuda") else device)
        cache = settings.cache if self._to_cache else None
        # Ray shows a worker only its own GPUs, so that each of them is the first.
        self._settings = replace(settings, observer=None, prepared=None, extraction=options, cache=cache)
        self._reference = TaskReference.of(task, engine)
        self._seconds_limit = seconds_limit
        self._name = uuid.uuid4().hex
        self._models: dict[str, SentModel] = {}
        self._needs: dict[str, Needs] = {}

    def assess(
        self, candidates: Sequence[Candidate], pieces: Sequence[np.ndarray | None]
    ) -> Generator[tuple[Candidate, Outcome], None, None]:
        """Each candidate once, in the order in which they are finished: its assessment, or what was wrong with it."""
        sent = tuple(None if piece is None else self._engine.share(piece) for piece in pieces)
        under_way = {candidate.identifier: self._begin(candidate, pieces, sent, candidates) for candidate in candidates}
        model_of = {job.key: name for name, model in under_way.items() for job in model.jobs}
        jobs = [job for model in under_way.values() for job in model.jobs]
        progress = _Progress(self._observer, {name: model.rows for name, model in under_way.items()}, model_of)

        def follow(result: JobResult) -> list[Job]:
            model = under_way[model_of.setdefault(result.key, result.key.removesuffix(_SCORE))]
            model.take(result)
            if self._to_cache and model.ready_to_score and result.key != model.score_job.key:
                return [model.score_job]
            return []

        for result in self._engine.run(jobs, observer=progress.hear, then=follow):
            model = under_way[model_of[result.key]]
            if model.told or (model.error is None and not model.ready_to_score):
                continue
            outcome = model.outcome()
            if outcome is None:
                continue
            model.told = True
            if isinstance(outcome, Assessment):
                progress.finish(model.candidate.identifier, outcome.row.seconds or 0.0)
            yield model.candidate, outcome

    def _begin(
        self,
        candidate: Candidate,
        pieces: Sequence[np.ndarray | None],
        sent: Sequence[Shared[np.ndarray] | None],
        company: Sequence[Candidate],
    ) -> _Model:
        name = candidate.identifier
        if name not in self._models:
            ready = candidate.ready()
            shared = None if ready is None else self._engine.share(ready)
            self._models[name] = SentModel(name, self._name, shared)
            self._needs[name] = job_needs(
                guess_params(candidate), len(self._task.train), self._engine, self._settings.extraction.device
            )
        needs = self._needs[name]
        score_job = ScoreJob(name + _SCORE, self._models[name], self._reference, self._settings, tuple(sent))
        model = _Model(
            candidate,
            self._task,
            self._settings,
            self._to_cache,
            self._job(score_job.key, name, score_job, needs, 0.0),
        )
        # Earlier pieces were run for smaller subsets, and are in the cache.
        first = len(pieces) - 1 if self._to_cache else 0
        places = self._engine.places(cpus=needs.cpus, gpus=needs.gpus)
        for number in range(first, len(pieces)):
            piece = pieces[number]
            rows = np.arange(len(self._task.train)) if piece is None else piece
            shards = cut(len(rows))
            count = min(len(shards), max(_LEAST_PARTS, -(-4 * places // len(company))))
            groups = [tuple(int(index) for index in part) for part in np.array_split(np.arange(len(shards)), count)]
            model.pieces.append(_Piece(rows, len(groups)))
            for part, indices in enumerate(groups):
                key = f"{name} {number}:{part}"
                work = ShardsJob(
                    key,
                    self._models[name],
                    self._reference,
                    self._settings,
                    sent[number],
                    indices,
                    len(rows),
                    -(-len(rows) // count),
                    self._to_cache,
                )
                share = sum(len(shards[index]) for index in indices) / len(self._task.train)
                model.add(self._job(key, name, work, needs, needs.cost * share), len(model.pieces) - 1, part)
        return model

    def _job(self, key: str, group: str, work: ShardsJob | ScoreJob, needs: Needs, cost: float) -> Job:
        return Job(
            key,
            work,
            cpus=needs.cpus,
            gpus=needs.gpus,
            cost=cost,
            group=group,
            together=True,
            seconds_limit=self._seconds_limit,
        )


_SCORE = " score"


@dataclass
class _Piece:
    """The rows of one piece, and what is known of the parts that are in."""

    rows: np.ndarray
    parts: int
    found: list[Part] = field(default_factory=list)
    merger: Merger | None = None


@dataclass
class _Model:
    """A model under way: which parts are in, and what became of it."""

    candidate: Candidate
    task: Task
    settings: Settings
    to_cache: bool
    score_job: Job
    pieces: list[_Piece] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    assessment: Assessment | None = None
    error: Exception | None = None
    told: bool = False

    @property
    def rows(self) -> int:
        return sum(len(piece.rows) for piece in self.pieces)

    @property
    def ready_to_score(self) -> bool:
        return self.error is None and not self.missing

    def add(self, job: Job, piece: int, part: int) -> None:
        self.jobs.append(job)
        self.places[job.key] = (piece, part)
        self.missing.add(job.key)

    def take(self, result: JobResult) -> None:
        """Count a result in; each part counts once."""
        if result.error is not None:
            self.error = self.error or result.error
        elif result.key in self.places:
            self.missing.remove(result.key)
            number, part = self.places[result.key]
            self._fold(self.pieces[number], part, result.value)
        else:
            self.assessment = result.value

    def outcome(self) -> Outcome | None:
        """What became of it; None while it is being scored elsewhere."""
        if self.error is not None:
            return self.error
        if self.to_cache:
            return None if self.assessment is None else self._complete(self.assessment)
        try:
            extractions = [piece.merger.extraction() for piece in self.pieces if piece.merger is not None]
            latency = next((part.latency_seconds for part in self.pieces[0].found if part.latency_seconds), None)
            return assess_extractions(self.candidate, extractions, self.task, self.settings, latency=latency)
        except Exception as error:
            return error

    def _fold(self, piece: _Piece, number: int, part: Part) -> None:
        if not self.to_cache:
            if piece.merger is None:
                keep = features_are_needed(self.settings, self.task.kind, len(piece.rows), part.card.feature_dim)
                piece.merger = Merger(
                    self.task, "train", piece.rows, parts=piece.parts, blocks=self.settings.extraction.blocks, keep=keep
                )
            piece.merger.add(number, part)
        piece.found.append(replace(part, arrays={}, statistics={}))

    def _complete(self, found: Assessment) -> Assessment:
        """A row that was scored from the cache, with what making the features had cost and said."""
        parts = [part for piece in self.pieces for part in piece.found]
        row = replace(
            found.row,
            seconds=(found.row.seconds or 0.0) + sum(part.seconds for part in parts),
            from_cache=all(part.from_cache for part in parts),
            notes=tuple(dict.fromkeys([*(text for part in parts for text in part.messages), *found.row.notes])),
        )
        return replace(found, row=row)


class _Progress:
    """Turns what many jobs tell into the story of each model. A part that is run again is not counted twice."""

    def __init__(self, observer: Observer | None, rows: Mapping[str, int], model_of: Mapping[str, str]) -> None:
        self._observer = observer
        self._rows = rows
        self._model_of = model_of
        self._started: set[str] = set()
        self._finished: set[str] = set()
        self._of_job: dict[str, int] = {}
        self._shown: dict[str, int] = {}
        self._done: dict[str, int] = {}

    def hear(self, told: Told) -> None:
        """Something that a job reported."""
        name = self._model_of.get(told.job, told.job.removesuffix(_SCORE))
        if name in self._finished:
            return
        if isinstance(told.event, Message):
            self._tell(Message(name, told.event.text))
        elif isinstance(told.event, Downloading):
            self._tell(Downloading(name, told.event.bytes_done, told.event.bytes_total))
        elif isinstance(told.event, Started):
            if name not in self._started:
                self._started.add(name)
                self._tell(Started(name, self._rows[name]))
            self._count(name, told.job, told.event.rows_done - self._of_job.get(told.job, 0))
        elif isinstance(told.event, Advanced):
            self._count(name, told.job, told.event.rows)

    def finish(self, name: str, seconds: float) -> None:
        """A model is done."""
        self._finished.add(name)
        self._tell(Finished(name, seconds))

    def _count(self, name: str, job: str, rows: int) -> None:
        self._of_job[job] = self._of_job.get(job, 0) + rows
        self._done[name] = self._done.get(name, 0) + rows
        news = min(self._done[name], self._rows[name]) - self._shown.get(name, 0)
        if news > 0:
            self._shown[name] = self._shown.get(name, 0) + news
            self._tell(Advanced(name, news))

    def _tell(self, event: Event) -> None:
        if self._observer is not None:
            self._observer(event)
