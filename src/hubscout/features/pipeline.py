"""Samples prepared and collated ahead of the model that takes them.

Queues are bounded, so memory does not grow with the data. A sample that cannot be read is named in the error.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from hubscout.errors import HubscoutError, ModelError
from hubscout.features.device_batches import HeldSamples
from hubscout.hubs.length_groups import group_ends
from hubscout.runs.profiler import step

if TYPE_CHECKING:
    from hubscout.features.preparing import Answer, Preparing
    from hubscout.hubs import Batch, Preprocessing

T = TypeVar("T")

_WAIT_SECONDS = 0.1
_BATCHES_AHEAD = 4
_MOST_WAITING = 4
_PER_BATCH = 16_384
"""Characters of padding that have to be saved for a batch to be cut in two, on every device."""


@dataclass(frozen=True)
class PlannedBatch:
    """Rows that will go through the model together. `part` is the place of their shard in the plan."""

    part: int
    rows: np.ndarray


@dataclass(frozen=True)
class PreparedBatch:
    """Samples ready for the model; `skipped` are the rows that could not be read and were left out."""

    part: int
    rows: np.ndarray
    skipped: tuple[int, ...]
    samples: Sequence[Any]
    batch: Batch | None


def plan(
    parts: Iterable[tuple[int, np.ndarray]], size: int, lengths: Callable[[int], int] | None
) -> Iterator[PlannedBatch]:
    """Cut the rows of each part into batches; with `lengths`, long inputs first and like with like.

    Sorting within a part saves most of the padding of text and lets memory run out early rather than late; a batch with
    a few texts that are far longer than its others becomes two. Where the cuts are depends on the rows and the size
    alone, not on what is free or who is quick: a forward pass in float32 rounds by the shape of its batch, and a model
    has the same features wherever it runs.
    """
    for part, rows in parts:
        ordered, found = rows, np.zeros(len(rows), dtype=np.int64)
        if lengths is not None:
            found = np.array([lengths(int(row)) for row in rows], dtype=np.int64)
            order = np.argsort(-found, kind="stable")
            ordered, found = rows[order], found[order]
        for start in range(0, len(ordered), size):
            batch, ends = ordered[start : start + size], group_ends(found[start : start + size], _PER_BATCH)
            for group in np.split(batch, ends[:-1]):
                yield PlannedBatch(part, group)


@dataclass
class Feed:
    """Prepared batches, made while the caller is busy with earlier ones.

    Use it as a context manager: leaving it, also by an exception, ends the preparing.
    """

    planned: Iterator[PlannedBatch]
    preparing: Preparing
    preprocessing: Preprocessing
    pin_memory: bool = False
    held: Callable[[np.ndarray], Batch | None] | None = None

    def __post_init__(self) -> None:
        self._ready: queue.Queue[PreparedBatch | BaseException | None] = queue.Queue(maxsize=2)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="hubscout-feed", daemon=True)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self.preparing.close()
        self._thread.join()

    def __iter__(self) -> Iterator[PreparedBatch]:
        while (item := self._next()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    def _next(self) -> PreparedBatch | BaseException | None:
        with step("decode"):  # waiting for it
            return self._ready.get()

    def _work(self) -> None:
        try:
            pending: deque[tuple[PlannedBatch, list[Answer] | Batch]] = deque()
            for planned in self.planned:
                pending.append((planned, self._submit(planned)))
                if len(pending) > _BATCHES_AHEAD and not self._put(self._gather(*pending.popleft())):
                    return
            while pending:
                if not self._put(self._gather(*pending.popleft())):
                    return
            self._put(None)
        except BaseException as error:
            self._put(error)

    def _submit(self, planned: PlannedBatch) -> list[Answer] | Batch:
        held = None if self.held is None else self.held(planned.rows)
        if held is not None:
            return held
        rows, size = [int(row) for row in planned.rows], self.preparing.chunk
        return [self.preparing.submit(rows[start : start + size]) for start in range(0, len(rows), size)]

    def _gather(self, planned: PlannedBatch, chunks: list[Answer] | Batch) -> PreparedBatch:
        if not isinstance(chunks, list):
            return PreparedBatch(planned.part, planned.rows, (), HeldSamples(chunks), chunks)
        samples = [sample for chunk in chunks for sample in chunk.result()]
        keep = np.array([sample is not None for sample in samples], dtype=bool)
        kept = [sample for sample in samples if sample is not None]
        batch = None
        if kept and not self._stop.is_set():
            with step("decode"):
                batch = collate(self.preprocessing, kept)
            if self.pin_memory:
                with step("transfer"):
                    batch = {name: value.pin_memory() for name, value in batch.items()}
        skipped = tuple(int(row) for row in planned.rows[~keep])
        return PreparedBatch(planned.part, planned.rows[keep], skipped, kept, batch)

    def _put(self, item: PreparedBatch | BaseException | None) -> bool:
        while not self._stop.is_set():
            try:
                self._ready.put(item, timeout=_WAIT_SECONDS)
            except queue.Full:
                continue
            return True
        return False


def collate(preprocessing: Preprocessing, samples: Sequence[Any]) -> Batch:
    """A batch of prepared samples; a failure is the model's."""
    if isinstance(samples, HeldSamples):
        return samples.batch
    try:
        return preprocessing.collate(samples)
    except (HubscoutError, MemoryError):
        raise
    except Exception as error:
        raise ModelError(
            f"The model's preprocessing cannot collate a batch: {type(error).__name__}: {error}"
        ) from error


class Background(Generic[T]):
    """One thread that handles items in order while the caller goes on; an exception in it comes out at the caller.

    Leaving the context waits until everything handed over is handled, so nothing that was finished is lost.
    """

    def __init__(self, handle: Callable[[T], None]) -> None:
        self._handle = handle
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="hubscout-collect")
        self._under_way: deque[Future[None]] = deque()

    def __enter__(self) -> Background[T]:
        return self

    def __exit__(self, kind: Any, error: object, trace: Any) -> None:
        self._pool.shutdown()
        while self._under_way and error is None:
            self._under_way.popleft().result()

    def put(self, item: T) -> None:
        """Hand over an item; waits while too many are under way."""
        while self._under_way and (self._under_way[0].done() or len(self._under_way) > _MOST_WAITING):
            self._under_way.popleft().result()
        self._under_way.append(self._pool.submit(self._handle, item))
