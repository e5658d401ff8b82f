"""The next model is opened while this one runs: on a GPU most of a small model's time is reading its weights."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import TracebackType
from typing import TYPE_CHECKING

from hubscout.features.decoded import free_bytes
from hubscout.ranking.candidates import Candidate
from hubscout.runs.profiler import step

if TYPE_CHECKING:
    from hubscout.hubs import Backbone
    from hubscout.runs.events import Event, Observer

_LEAST_BYTES = 1 << 29
_COPIES = 3
"""While a model is opened there are its file, its weights and the network."""


class LoadAhead:
    """Opens models one ahead, in the order in which they will run, in a thread.

    A model that cannot be opened fails when its turn comes. Where memory may not hold the next model beside this one,
    it is opened when its turn comes too. Leaving the context waits for the thread.

    Args:
        candidates: the models in the order in which they will run.
        observer: hears of downloads.

    """

    def __init__(self, candidates: Sequence[Candidate], observer: Observer | None = None) -> None:
        self._following = {one.identifier: two for one, two in pairwise(candidates)}
        self._observer = observer
        self._largest = _LEAST_BYTES
        self._opening: _Opening | None = None

    def __enter__(self) -> LoadAhead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opening is not None:
            self._opening.thread.join()
            self._opening = None

    def open(self, candidate: Candidate, observer: Observer | None = None) -> Backbone:
        """The backbone, which may be there already; then the next one is begun with."""
        opening, self._opening = self._opening, None
        if opening is not None and opening.candidate == candidate:
            backbone = opening.result()
        else:
            backbone = candidate.open(observer)
        self._largest = max(self._largest, backbone.card.bytes)
        following = self._following.get(candidate.identifier)
        if following is not None and following.backbone is None and self._fits():
            self._opening = _Opening(following, self._observer)
        return backbone

    def _fits(self) -> bool:
        """Whether a model as large as the largest so far can be opened now."""
        free = free_bytes()
        return free is not None and free >= _COPIES * self._largest


@dataclass(frozen=True)
class AheadModel:
    """A candidate that is opened through `LoadAhead`."""

    candidate: Candidate
    ahead: LoadAhead

    @property
    def identifier(self) -> str:
        return self.candidate.identifier

    def open(self, observer: Observer | None = None) -> Backbone:
        return self.ahead.open(self.candidate, observer)


class _Opening:
    """A candidate that is being opened."""

    def __init__(self, candidate: Candidate, observer: Observer | None) -> None:
        self.candidate = candidate
        self._observer = observer
        self._backbone: Backbone | None = None
        self._error: BaseException | None = None
        self.thread = threading.Thread(target=self._work, name="hubscout-load-ahead", daemon=True)
        self.thread.start()

    def result(self) -> Backbone:
        self.thread.join()
        if self._error is not None:
            raise self._error
        assert self._backbone is not None
        return self._backbone

    def _work(self) -> None:
        try:
            with step("load"):
                self._backbone = self.candidate.open(self._tell)
        except BaseException as error:  # it is raised where the model is asked for
            self._error = error

    def _tell(self, event: Event) -> None:
        if self._observer is not None:
            self._observer(replace(event, model=self.candidate.identifier))
