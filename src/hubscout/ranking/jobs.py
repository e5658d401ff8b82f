"""The work of a ranking as jobs of an engine: a model on its rows, or a slice of a model.

They are plain picklable values. A worker that performs them keeps the task open and the last model loaded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hubscout.engines.job_context import remembered, report
from hubscout.errors import NothingReadableError
from hubscout.ranking.assess import Assessment, Model, Settings, assess, resources
from hubscout.ranking.candidates import Candidate
from hubscout.runs.events import Advanced, Downloading, Event, Message, Started
from hubscout.runs.profiler import Profile, profiled, step

if TYPE_CHECKING:
    from hubscout.engines import Shared
    from hubscout.hubs import Backbone
    from hubscout.ranking.task_reference import TaskReference
    from hubscout.runs.events import Observer


@dataclass(frozen=True)
class Begun(Event):
    """A process has begun with a model, or with a slice of it."""


@dataclass(frozen=True)
class SentModel:
    """A candidate for workers: by name, or the backbone itself where the engine shares values."""

    identifier: str
    ranking: str
    """Which ranking it is sent for: a process that stays for the next one loads it anew, as it may have changed."""
    backbone: Shared[Backbone] | None = None

    def open(self, observer: Observer | None = None) -> Backbone:
        """The backbone, loaded once in each process; `observer` hears of its download."""
        return remembered("model", (self.ranking, self.identifier), lambda: self._load(observer))

    def _load(self, observer: Observer | None) -> Backbone:
        return Candidate(self.identifier, None if self.backbone is None else self.backbone.get()).open(observer)


@dataclass(frozen=True)
class AssessModel:
    """Runs a model over the train rows of all `increments` (None is all rows) and scores it.

    After slices the features are in the cache, and the progress has been told.
    """

    model: Model
    task: TaskReference
    settings: Settings
    increments: tuple[Shared[np.ndarray] | None, ...]
    after_slices: bool = False

    def __call__(self) -> Assessment:
        report(Begun(self.model.identifier))
        settings = replace(self.settings, observer=self._tell)
        increments = [None if rows is None else rows.get() for rows in self.increments]
        return assess(self.model, self.task.open(), settings, increments)

    def _tell(self, event: Event) -> None:
        if not self.after_slices or isinstance(event, Message | Downloading):
            report(replace(event, model=self.model.identifier))  # the name that the user gave


@dataclass(frozen=True)
class SliceResult:
    """What a slice cost and said; its features are in the cache."""

    seconds: float = 0.0
    from_cache: bool = False
    messages: tuple[str, ...] = ()
    profile: Profile | None = None


@dataclass(frozen=True)
class ExtractSlice:
    """Runs a model over some shards of an increment, into the cache of the settings."""

    model: SentModel
    task: TaskReference
    settings: Settings
    increment: Shared[np.ndarray] | None
    shards: tuple[int, ...]

    def __call__(self) -> SliceResult:
        with profiled(self.settings.profile) as profiler:
            found = self._run()
            return found if profiler is None else replace(found, profile=profiler.profile())

    def _run(self) -> SliceResult:
        from hubscout.features import extract

        report(Begun(self.model.identifier))
        with step("load"):
            backbone = self.model.open(self._tell)
        try:
            found = extract(
                backbone,
                self.task.open(),
                indices=None if self.increment is None else self.increment.get(),
                shards=self.shards,
                cache=self.settings.cache,
                statistics=False,
                keep_features=False,
                observer=self._tell,
                options=self.settings.extraction,
                **resources(self.settings),
            )
        except NothingReadableError:
            return SliceResult()  # another slice may have what can be read
        return SliceResult(found.seconds, found.from_cache, found.messages)

    def _tell(self, event: Event) -> None:
        """To a person a model runs once, however many slices it has."""
        if isinstance(event, Started):
            event = Advanced(event.model, event.rows_done)
        if isinstance(event, Message | Downloading | Advanced):
            report(replace(event, model=self.model.identifier))
