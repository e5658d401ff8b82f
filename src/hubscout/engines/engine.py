"""What an engine is, and the engines there are by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from hubscout.engines.job import Job, JobResult
from hubscout.errors import UnknownEngineError
from hubscout.registry import Registry


class Engine(Protocol):
    """Runs jobs somewhere."""

    def run(self, jobs: Iterable[Job]) -> Iterator[JobResult]:
        """Run independent jobs; results come as they finish, in any order, exactly one for each job.

        A job that fails gives a result that says why, and the rest goes on. Closing the iterator, or Ctrl-C while it
        is waited for, stops what is running; results that were given are the caller's to keep.
        """
        ...

    def close(self) -> None:
        """Let go of processes and connections."""
        ...


ENGINES: Registry[Callable[..., Engine]] = Registry("engine", UnknownEngineError, group="hubscout.engines")


def open_engine(name: str, **options: Any) -> Engine:
    """An engine by name.

    >>> [result.value for result in open_engine("local").run([Job("seven", lambda: 7)])]
    [7]
    """
    return ENGINES[name](**options)
