"""What an engine is, and the engines there are by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

from hubscout.engines.job import Job, JobResult
from hubscout.engines.job_context import Shared
from hubscout.errors import UnknownEngineError
from hubscout.registry import Registry

T = TypeVar("T")
Observer = Callable[[Any], None]
Follow = Callable[[JobResult], Iterable[Job]]


class Engine(Protocol):
    """Runs jobs somewhere."""

    @property
    def elsewhere(self) -> bool:
        """Whether jobs run in other processes than this one, and so must be picklable."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know, such as the address of a dashboard."""
        ...

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

        """
        ...

    def share(self, value: T) -> Shared[T]:
        """Make a value available to all jobs; it travels once to each machine, not with each job."""
        ...

    def places(self, *, cpus: float = 1.0, gpus: float = 0.0) -> int:
        """How many jobs of this size can run at the same time, at least 1."""
        ...

    def total(self, resource: str) -> float:
        """How many "CPU" or "GPU" there are in all."""
        ...

    def shares_files(self) -> bool:
        """Whether all jobs see the files of this machine for certain."""
        ...

    def close(self) -> None:
        """Let go of processes and connections."""
        ...


ENGINES: Registry[Callable[..., Engine]] = Registry("engine", UnknownEngineError, group="hubscout.engines")


def open_engine(name: str, **options: Any) -> Engine:
    """An engine by name; `close` it when it is no longer needed.

    Args:
        name: "local", "ray", or one that a plug-in brings.
        options: of the engine, such as `workers=4` for "local" or `address="auto"` for "ray".

    Raises:
        UnknownEngineError: there is no engine of this name.
        EngineError: it cannot be started or reached.
        MissingDependencyError: the package that it needs is not installed.

    Example:
        >>> [result.value for result in open_engine("local").run([Job("seven", lambda: 7)])]
        [7]

    """
    return ENGINES[name](**options)
