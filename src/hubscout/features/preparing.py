"""Samples read and prepared beside the model: in threads, or in processes where threads would starve an accelerator.

Decoding an image is half Python, and one lock serves all Python of a process: however many cores there are, threads
prepare a few thousand small images a second, while a GPU takes ten times as many. Processes do not share that lock;
they cost seconds to start, so they are used for many samples alone.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.errors import HubscoutError, ModelError, TaskError
from hubscout.features.decoded import free_bytes
from hubscout.features.freed_memory import memory_kept
from hubscout.features.process_pool import process_pool
from hubscout.features.shared_memory import SharedMemory, Slot, Written, write
from hubscout.runs.profiler import step

if TYPE_CHECKING:
    from hubscout.features.decoded import PreparedSamples

_THREAD_CHUNK, _PROCESS_CHUNK = 8, 64
_MOST_THREADS, _MOST_PROCESSES = 8, 16
_CORES_FOR_OTHERS = 2
_FEWEST_CORES = 4
_FEWEST_SAMPLES = 20_000
"""Fewer are prepared by threads before as many processes have started."""
_FEWEST_DECODED, _DECODED_PER_PROCESS = 1_000, 500
"""Where they decode alone: such processes start while torch and timm are imported here."""
_PROCESS_BYTES = 1 << 29
"""What one of them has with torch and timm; together they take half of what is free at most."""
_SHARE_FOR_COPIES = 0.25
"""Of the free memory, for the copies of the inputs: every process has one."""
_HEAVY = ("image", "audio")


def default_threads(*, decode_alone: bool = False) -> int:
    """How many threads prepare samples unless somebody says otherwise.

    Two to `decode_alone`, small images whose pixels a GPU takes as they are: that is mostly Python, and more of them
    take the interpreter from each other and from the thread that gives the GPU its work.
    """
    return min(2 if decode_alone else _MOST_THREADS, os.cpu_count() or 1)


def default_processes(device: str, modality: str, samples: int, *, decode_alone: bool = False) -> int:
    """How many processes shall prepare so many samples for a device; 0 is for threads.

    `decode_alone` is as in `default_threads`.

    >>> default_processes("cpu", "image", 50_000)
    0
    """
    fewest = _FEWEST_DECODED if decode_alone else _FEWEST_SAMPLES
    if not device.startswith("cuda") or modality not in _HEAVY or samples < fewest:
        return 0
    from loky import cpu_count

    cores = cpu_count()  # what this process may use, also in a container
    if cores < _FEWEST_CORES:
        return 0
    memory = free_bytes() or _MOST_PROCESSES * _PROCESS_BYTES
    most = min(_MOST_PROCESSES, cores - _CORES_FOR_OTHERS, memory // 2 // _PROCESS_BYTES)
    return most if samples >= _FEWEST_SAMPLES else min(most, samples // _DECODED_PER_PROCESS)


@dataclass(frozen=True)
class Reader:
    """From a row number to a prepared sample, or None where the sample is bad and may be left out."""

    inputs: Sequence[Any]
    preprocessing: Callable[[Any], Any]
    place: str
    skip_bad: bool = False
    prepared: PreparedSamples | None = None
    keeps: bool = True
    """Whether what it prepares stays with `prepared`."""

    def __call__(self, row: int) -> Any:
        if (known := self.known(row)) is not None:
            return known
        try:
            raw = self.inputs[row]
        except Exception as error:
            if self.skip_bad:
                return None
            raise self._unreadable(row, error) from error
        try:
            sample = self.preprocessing(raw)
        except HubscoutError:
            raise
        except Exception as error:
            raise ModelError(
                f"The model's preprocessing fails on sample {row} of {self.place}: {type(error).__name__}: {error}"
            ) from error
        self.keep(row, sample)
        return sample

    def known(self, row: int) -> Any | None:
        """The sample, if it is there prepared."""
        return None if self.prepared is None else self.prepared.get(row)

    def keep(self, row: int, sample: Any) -> None:
        """For the next model that prepares samples alike."""
        if self.keeps and self.prepared is not None and sample is not None:
            self.prepared.put(row, sample)

    def _unreadable(self, row: int, error: Exception) -> TaskError:
        reason = str(error) if isinstance(error, HubscoutError) else f"{type(error).__name__}: {error}"
        return TaskError(
            f"Sample {row} of {self.place} cannot be read: {reason} "
            "(skip_bad=True leaves such samples out, for every model alike)"
        )


class InThreads:
    """Prepares rows in threads of this process, while the caller goes on."""

    chunk = _THREAD_CHUNK
    """Rows that are best given at once."""

    def __init__(self, reader: Reader, workers: int) -> None:
        self._reader = reader
        self._stopped = False
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="hubscout-decode")

    def submit(self, rows: list[int]) -> Future[list[Any]]:
        """Begin with these rows; the samples come in their order."""
        return self._pool.submit(self._read, rows)

    def _read(self, rows: list[int]) -> list[Any]:
        with step("decode"):
            return [None if self._stopped else self._reader(row) for row in rows]

    def close(self) -> None:
        """Drop what has not begun, and end."""
        self._stopped = True
        self._pool.shutdown(wait=True, cancel_futures=True)


class InProcesses:
    """Prepares rows in processes, which stay for a minute so that the next model finds them.

    Threads do the work until they have started, which takes seconds, and hand over then what they have not begun with;
    and where processes cannot: a module that only this process finds is missing there, or one of them was killed.

    Raises:
        ValueError: the inputs are too large to be sent, or cannot be sent at all.

    """

    chunk = _PROCESS_CHUNK

    def __init__(self, reader: Reader, workers: int, threads: int | None = None) -> None:
        import cloudpickle

        try:
            sent = cloudpickle.dumps(replace(reader, prepared=None))
        except Exception as error:  # whatever a user's own inputs raise
            raise ValueError(f"{type(error).__name__}: {error}") from error
        free = free_bytes()
        if free is not None:
            workers = min(workers, int(_SHARE_FOR_COPIES * free / len(sent)))
        if workers < 2:
            raise ValueError(f"{len(sent) / 1e9:.1f} GB for each of them")
        self.reader = reader
        self._threads = InThreads(reader, threads or default_threads())
        self._folder = tempfile.TemporaryDirectory(prefix="hubscout-")
        self._file = Path(self._folder.name) / "reader"
        self._file.write_bytes(sent)
        self._pool = process_pool(workers)
        self._begun: list[Future[Prepared]] = []
        self._early: list[_Early] = []
        self._memory: SharedMemory | None = None
        self.ready: Future[Prepared] = self._pool.submit(_prepare, str(self._file), [], None)
        """Done when the first process has started."""

    def submit(self, rows: list[int]) -> Answer:
        missing = [row for row in rows if self.reader.known(row) is None] if self.reader.prepared else rows
        if missing and not self.ready.done():
            early = _Early(self, rows, self._threads.submit(rows))
            # What is done cannot be handed over, and would stay here with its samples where no process ever starts.
            self._early = [other for other in self._early if not other.answer.done()] + [early]
            return early
        if not missing or self.ready.exception() is not None:
            return self._threads.submit(rows)
        slot = None if self._memory is None else self._memory.take()
        try:
            future = self._pool.submit(_prepare, str(self._file), missing, slot)
        except BrokenProcessPool:  # one was killed, and all end with it
            return self._threads.submit(rows)
        self._begun = [other for other in self._begun if not other.done()] + [future]
        return _Sent(self, rows, missing, future, slot)

    def hand_over(self) -> None:
        """Once there are processes, give them what the threads have not begun with."""
        if not self._early or not self.ready.done():
            return
        early, self._early = self._early, []
        if self.ready.exception() is None:
            for one in early:
                if one.answer.cancel():
                    one.answer = self.submit(one.rows)

    def receive(self, prepared: Prepared, slot: Slot | None) -> list[Any] | np.ndarray:
        """The samples of a chunk, out of its slot where they lie in one."""
        if isinstance(prepared, Written):
            assert self._memory is not None
            assert slot is not None
            return self._memory.read(slot, prepared)
        if self._memory is None and isinstance(prepared, np.ndarray) and len(prepared) == self.chunk:
            self._memory = SharedMemory.of(prepared.nbytes)
        elif slot is not None and self._memory is not None:
            self._memory.release(slot)
        return prepared

    def close(self) -> None:
        for future in (self.ready, *self._begun):
            future.cancel()
        self._threads.close()
        self._folder.cleanup()
        if self._memory is not None:
            self._memory.close()


@dataclass(frozen=True)
class _Sent:
    """Rows of which some are known and the others are being prepared in a process."""

    processes: InProcesses
    rows: list[int]
    missing: list[int]
    future: Future[Prepared]
    slot: Slot | None

    def result(self) -> list[Any]:
        reader = self.processes.reader
        try:
            received = self.processes.receive(self.future.result(), self.slot)
            if self.missing is self.rows and not (reader.keeps and reader.prepared is not None):
                return list(received)
            fresh = dict(zip(self.missing, received, strict=True))
        except BrokenProcessPool:  # a process was killed: its rows are prepared here
            fresh = {row: reader(row) for row in self.missing}
        for row, sample in fresh.items():
            reader.keep(row, sample)
        return [fresh[row] if row in fresh else reader(row) for row in self.rows]


@dataclass
class _Early:
    """Rows that came before there were processes: a thread prepares them, or a process if that is there first."""

    processes: InProcesses
    rows: list[int]
    answer: Any

    def result(self) -> list[Any]:
        self.processes.hand_over()
        return self.answer.result()


Answer = Future[list[Any]] | _Sent | _Early
"""Samples that are being prepared; `result` waits for them."""
Preparing = InThreads | InProcesses


Prepared = list[Any] | np.ndarray | Written
"""Samples as they come from a process: one array where they are arrays of one shape, or where it is."""

_for_good = ExitStack()


def _prepare(file: str, rows: list[int], slot: Slot | None) -> Prepared:
    """In a process: the samples, in the slot where they fit into it."""
    reader = _open_reader(file)
    samples = [reader(row) for row in rows]
    shapes = {(sample.shape, sample.dtype) if isinstance(sample, np.ndarray) else None for sample in samples}
    if len(shapes) != 1 or None in shapes:
        return samples
    written = None if slot is None else write(samples, slot)
    return np.stack(samples) if written is None else written


@lru_cache(maxsize=1)
def _open_reader(file: str) -> Reader:
    import cloudpickle

    _for_good.enter_context(memory_kept())
    return cloudpickle.loads(Path(file).read_bytes())
