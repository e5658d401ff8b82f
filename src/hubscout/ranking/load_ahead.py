"""Models that are opened ahead of their turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hubscout.features.decoded import free_bytes
from hubscout.features.feature_keys import digest_ahead
from hubscout.features.precision import is_out_of_memory, wait_until_warm
from hubscout.runs.profiler import step

if TYPE_CHECKING:
    from hubscout.hubs import Backbone
    from hubscout.ranking.candidates import Candidate
    from hubscout.runs.events import Event, Observer

_LEAST_BYTES = 1 << 29
_COPIES = 3
"""While a model is opened there are its file, its weights and the network."""
_SHARE, _LEAST_PLACED = 64, 1 << 26
"""A network goes to a GPU ahead that has so many times its bytes free: twelve of them are a fifth of it at most."""
_AHEAD = 12
"""Fewer are not enough before large models: opening one takes as long as running several small ones before it."""


class LoadAhead:
    """Opens the next twelve models in the order in which they will run, one after the other, in a thread.

    On a GPU most of a small model's time is reading its weights. A model that cannot be opened fails when its turn
    comes. Where memory may not hold the next model beside this one, it is opened when its turn comes too. Leaving the
    context waits for the one that is being opened.

    Args:
        candidates: the models in the order in which they will run.
        observer: hears of downloads.
        at_last: done in the thread as well, once the last model is opened or about to run.
        device: what the models will run on. Small ones are brought to a GPU ahead as well.

    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        observer: Observer | None = None,
        at_last: Callable[[], None] | None = None,
        device: str = "cpu",
    ) -> None:
        self._candidates = list(candidates)
        self._observer = observer
        self._at_last = at_last
        self._device = device
        self._place: PlaceAhead | None = None
        self._largest = _LEAST_BYTES
        self._opening: dict[str, Future[Backbone]] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hubscout-load-ahead")

    def __enter__(self) -> LoadAhead:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._opening.clear()

    def open(self, candidate: Candidate, observer: Observer | None = None) -> Backbone:
        """The backbone, which may be there already; then those after it are begun with."""
        opening = self._opening.pop(candidate.identifier, None)
        backbone = candidate.open(observer) if opening is None else opening.result()
        self._largest = max(self._largest, backbone.card.bytes)
        if self._place is None and self._device.startswith("cuda"):
            self._place = PlaceAhead(self._device)
        names = [one.identifier for one in self._candidates]
        place = names.index(candidate.identifier) + 1 if candidate.identifier in names else len(names)
        for following in self._candidates[place : place + _AHEAD]:
            if following.backbone is None and following.identifier not in self._opening and self._has_room():
                self._opening[following.identifier] = self._thread.submit(self._open_ahead, following)
        if self._at_last is not None and place + _AHEAD >= len(names):
            self._thread.submit(self._at_last)
            self._at_last = None
        return backbone

    def _has_room(self) -> bool:
        """Whether one more model, as large as the largest so far, fits beside those that are being opened."""
        free, coming = free_bytes(), sum(not opening.done() for opening in self._opening.values())
        return free is not None and free >= (_COPIES + coming) * self._largest

    def _open_ahead(self, candidate: Candidate) -> Backbone:
        def tell(event: Event) -> None:
            if self._observer is not None:
                self._observer(replace(event, model=candidate.identifier))

        with step("load"):
            backbone = candidate.open(tell)
            if self._place is None or not self._place(backbone):
                digest_ahead(backbone)
            return backbone


class PlaceAhead:
    """Brings networks to a GPU while it runs another, on a stream of its own: nothing waits for what the other does.

    Made in the thread that will run them.
    """

    def __init__(self, device: str) -> None:
        import torch

        wait_until_warm(device)
        self._runs_on = torch.cuda.current_stream(device)
        self._device = str(self._runs_on.device)  # with its number: every thread has a current device of its own
        self._stream = torch.cuda.Stream(self._device)

    def __call__(self, backbone: Backbone) -> bool:
        """Bring a network there that takes a small part of what is free, and work out its digest; whether it did.

        What runs meanwhile needs the rest.
        """
        import torch

        module, size = backbone.module, max(backbone.card.bytes, _LEAST_PLACED)
        if module is None or _SHARE * size > torch.cuda.mem_get_info(self._device)[0]:
            return False
        try:
            with torch.cuda.stream(self._stream):
                backbone.to(self._device)
                digest_ahead(backbone, self._device)
                self._stream.synchronize()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            backbone.to("cpu")  # what runs makes room for it when its turn comes
            return False
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_cuda:
                tensor.record_stream(self._runs_on)  # its memory is not given away before that is done with it
        return True


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
