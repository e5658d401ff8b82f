"""The pieces of work that a ranking sends out: a model on some shards of the data, and the score of a model.

They are plain picklable values. A process that performs them keeps the task open and the last model loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hubscout.engines.memory import remembered
from hubscout.engines.reporting import report
from hubscout.errors import NothingReadableError
from hubscout.features.parts import Part, pack, sums_are_smaller
from hubscout.hubs.backbone import check_modality
from hubscout.ranking.assess import Assessment, Settings, assess, features_are_needed, needs
from hubscout.ranking.candidates import Candidate

if TYPE_CHECKING:
    from hubscout.engines import Shared
    from hubscout.features.decoded import PreparedPool
    from hubscout.hubs import Backbone
    from hubscout.ranking.task_reference import TaskReference
    from hubscout.runs.events import Event, Observer


@dataclass(frozen=True)
class Told:
    """Something that a job tells of its model while it runs."""

    job: str
    event: Event


@dataclass(frozen=True)
class SentModel:
    """A candidate that can be sent: by name, or the backbone itself where the engine shares values."""

    identifier: str
    ranking: str
    """Which ranking it is sent for: a process that stays for the next one loads it anew, as it may have changed."""
    backbone: Shared[Backbone] | None = None

    def open(self, observer: Observer) -> Backbone:
        """The backbone, loaded once in each process; `observer` hears of its download."""
        return remembered("model", (self.ranking, self.identifier), lambda: self._load(observer))

    def _load(self, observer: Observer) -> Backbone:
        return Candidate(self.identifier, None if self.backbone is None else self.backbone.get()).open(observer)


@dataclass(frozen=True)
class ShardsJob:
    """Runs a model over shards of the train split, or of the rows `piece`.

    `rows_in_all` are those of the whole piece, `rows_a_part` those of one such job. With `to_cache` the features go
    into the cache of the settings and stay there; otherwise they, or their sums, are in the part.
    """

    key: str
    model: SentModel
    task: TaskReference
    settings: Settings
    piece: Shared[np.ndarray] | None
    shards: tuple[int, ...]
    rows_in_all: int
    rows_a_part: int
    to_cache: bool

    def __call__(self) -> Part:
        from hubscout.features import extract
        from hubscout.features.preparing import default_threads
        from hubscout.features.sharding import cut

        task, settings = self.task.open(), self.settings
        backbone = self.model.open(self._tell)
        check_modality(backbone.card, task.modality)
        piece = None if self.piece is None else self.piece.get()
        keep = features_are_needed(settings, task.kind, self.rows_in_all, backbone.card.feature_dim)
        sums = not keep and sums_are_smaller(self.rows_a_part, backbone.card.feature_dim, settings.extraction.blocks)
        wanted = "statistics" in needs(settings, task.kind)
        try:
            extraction = extract(
                backbone,
                task,
                split="train",
                indices=piece,
                shards=self.shards,
                cache=settings.cache,
                statistics=wanted and sums and not self.to_cache,
                keep_features=not sums and not self.to_cache,
                options=settings.extraction,
                prepared=prepared_inputs(settings),
                # Never processes: a machine has several of these workers, each with a share of its cores.
                workers=default_threads(),
                observer=self._tell,
            )
        except NothingReadableError:
            rows = np.arange(self.rows_in_all) if piece is None else piece
            shards = cut(self.rows_in_all)
            lost = np.concatenate([rows[shards[index].start : shards[index].stop] for index in self.shards])
            nothing = np.zeros(0, dtype=np.int64)
            return Part(backbone.card, ("",), nothing, tuple(int(row) for row in lost), 0.0)
        part = pack(
            extraction,
            arrays=not self.to_cache and not sums and (keep or wanted),
            statistics=not self.to_cache and sums and wanted,
        )
        if 0 in self.shards and settings.measure_latency and not self.to_cache:
            from hubscout.ranking.latency import measure_latency

            sample = task.train.inputs[int(extraction.rows[0])]
            latency = measure_latency(backbone, sample, device=extraction.device)
            part = replace(part, latency_seconds=latency.seconds, latency_busy=latency.busy)
        return part

    def _tell(self, event: Event) -> None:
        report(Told(self.key, event))


@dataclass(frozen=True)
class ScoreJob:
    """Scores a model whose features are in the cache; shards that are missing there are run."""

    key: str
    model: SentModel
    task: TaskReference
    settings: Settings
    pieces: tuple[Shared[np.ndarray] | None, ...]

    def __call__(self) -> Assessment:
        candidate = Candidate(self.model.identifier, self.model.open(self._tell))
        settings = replace(self.settings, observer=self._tell, prepared=prepared_inputs(self.settings))
        pieces: Sequence[np.ndarray | None] = [None if piece is None else piece.get() for piece in self.pieces]
        return assess(candidate, self.task.open(), settings, pieces)

    def _tell(self, event: Event) -> None:
        from hubscout.runs.events import Downloading, Message

        if isinstance(event, Message | Downloading):
            report(Told(self.key, event))


def prepared_inputs(settings: Settings) -> PreparedPool:
    """The inputs that this process has prepared for earlier models."""
    from hubscout.features.decoded import PreparedPool, default_limit_bytes

    return remembered("prepared", "inputs", lambda: PreparedPool(default_limit_bytes() // 4))
