"""What an engine is, the engines there are by name, and `local`: this process, or a few more on this machine."""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from hubscout.engines.job import Held, InFile, Job, JobQueue, JobResult, Shared, listening, perform
from hubscout.errors import UnknownEngineError, check_keywords, check_least
from hubscout.registry import Registry

if TYPE_CHECKING:
    from hubscout.engines.worker_pool import WorkerPool

T = TypeVar("T")
Observer = Callable[[Any], None]
Follow = Callable[[JobResult], Iterable[Job]]


class Engine(Protocol):
    """Runs jobs somewhere."""

    @property
    def elsewhere(self) -> bool:
        """Whether jobs run in other processes than this one, and so must be picklable."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know, such as the address of a dashboard."""

    def run(
        self, jobs: Iterable[Job], *, observer: Observer | None = None, then: Follow | None = None
    ) -> Iterator[JobResult]:
        """Run independent jobs; results come as they finish, in any order, exactly one for each job.

        A job that fails gives a result that says why, and the rest goes on. Closing the iterator, or Ctrl-C while it
        is waited for, stops what is running; results that were given are the caller's to keep.

        Args:
            jobs: what is to be run.
            observer: hears what jobs tell with `hubscout.engines.report`, in this thread.
            then: called with every result before it is given back; the jobs that it returns are run as well.

        Returns:
            An iterator over the results.

        """

    def share(self, value: T) -> Shared[T]:
        """Make a value available to all jobs; it travels once to each machine, not with each job.

        Args:
            value: any value that can be pickled.

        Returns:
            A reference to it, small enough to be part of a job; its `get` gives the value.

        """

    def places(self, *, cpus: float = 1.0, gpus: float = 0.0) -> int:
        """How many jobs of this size can run at the same time, at least 1.

        Args:
            cpus: how many cores one job needs.
            gpus: how many GPUs one job needs; a fraction shares one.

        Returns:
            The number of jobs.

        """

    def total(self, resource: str) -> float:
        """How many "CPU" or "GPU" there are in all.

        Args:
            resource: "CPU" or "GPU".

        Returns:
            The number; 0 where there are none.

        """

    def shares_files(self) -> bool:
        """Whether all jobs see the files of this machine for certain.

        Returns:
            True where a path means the same file to every job.

        """

    def close(self) -> None:
        """Let go of processes and connections."""


ENGINES: Registry[Callable[..., Engine]] = Registry("engine", UnknownEngineError, group="hubscout.engines")


def open_engine(name: str, **options: Any) -> Engine:
    """An engine by name; `close` it when it is no longer needed.

    Args:
        name: "local", "ray", or one that a plug-in brings.
        options: of the engine, such as `workers=4` for "local" or `address="auto"` for "ray".

    Returns:
        The engine.

    Raises:
        UnknownEngineError: there is no engine of this name.
        UnknownNameError: it has no such option.
        EngineError: it cannot be started or reached.
        MissingDependencyError: the package that it needs is not installed.

    Example:
        >>> [result.value for result in open_engine("local").run([Job("seven", lambda: 7)])]
        [7]

    """
    check_engine(name, options)
    return ENGINES[name](**options)


def check_engine(name: str, options: Iterable[str] = ()) -> None:
    """Raise for an engine that there is not, or for options that it does not have; nothing is started."""
    parameters = inspect.signature(ENGINES[name]).parameters
    if not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        check_keywords(options, parameters, context=f"for the engine {name!r}")


@contextmanager
def running_engine(engine: str | Engine, options: Mapping[str, Any] | None = None) -> Iterator[Engine]:
    """An engine for the time of a block: one by name, which is closed after it, or one that is open and stays so."""
    if not isinstance(engine, str):
        yield engine
        return
    opened = open_engine(engine, **(options or {}))
    try:
        yield opened
    finally:
        opened.close()


@ENGINES.register("local")
class LocalEngine:
    """Runs jobs one by one in this process, or with `workers` in so many others, each with its share of the cores.

    Worker processes cost their start and a copy of what a job loads. A job whose worker died is run again, `attempts`
    times in all. Limits of time are kept by workers alone: a job cannot be ended from within its own process.

    Args:
        workers: how many processes; 0 is this one.
        attempts: how often a job is started before the death of its process counts as its fault.
        import_main: whether workers import the script that was started, as those of multiprocessing do: for jobs that
            share what the script's own functions remember. It must then guard its main part.

    Raises:
        InputError: `workers` is below 0 or `attempts` below 1.

    Example:
        >>> engine = LocalEngine()
        >>> [result.value for result in engine.run([Job("a", lambda: 1), Job("b", lambda: 2)])]
        [1, 2]
        >>> engine.close()

    """

    def __init__(self, workers: int = 0, *, attempts: int = 3, import_main: bool = False) -> None:
        check_least("workers", workers, 0)
        check_least("attempts", attempts)
        self.workers = workers
        self.notes: tuple[str, ...] = ()
        self._pool: WorkerPool | None = None
        if workers:
            from hubscout.engines.worker_pool import WorkerPool

            self._pool = WorkerPool(workers, attempts, import_main=import_main)
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def elsewhere(self) -> bool:
        """Whether jobs run in other processes."""
        return self.workers > 0

    def prepare(self, work: Callable[[], object]) -> None:
        """Have workers, if there are none yet, begin with what they have in common: imports, which take long.

        On Linux they are forks of one process that has done `work`, a function that can be pickled. What fails there is
        left to the jobs. It starts at once and is not waited for.
        """
        if self._pool is not None:
            self._pool.prepare(work)

    def run(
        self, jobs: Iterable[Job], *, observer: Observer | None = None, then: Follow | None = None
    ) -> Iterator[JobResult]:
        """Results in the order in which jobs finish, the costliest started first."""
        waiting = JobQueue(jobs)
        if self._pool is not None:
            yield from self._pool.run(waiting, observer, then)
            return
        while waiting:
            with listening(observer):
                result = perform(waiting.popleft())
            if then is not None:
                waiting.add(then(result))
            yield result

    def share(self, value: T) -> Shared[T]:
        """The value itself, or a file that every worker reads."""
        if not self.workers:
            return Held(value)
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="hubscout-")
        return InFile.of(value, Path(self._folder.name))

    def places(self, *, cpus: float = 1.0, gpus: float = 0.0) -> int:
        """One, or the number of workers."""
        return max(1, self.workers)

    def total(self, resource: str) -> float:
        """The cores of this machine; its GPUs are not shared out."""
        return float(os.cpu_count() or 1) if resource == "CPU" else 0.0

    def shares_files(self) -> bool:
        """This machine's files are there."""
        return True

    def close(self) -> None:
        """End the workers, and remove what was shared with them."""
        if self._pool is not None:
            self._pool.close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
