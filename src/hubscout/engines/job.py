"""`Job`: a piece of work that can be sent elsewhere, and `JobResult`: what came back."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hubscout.errors import InputError


@dataclass(frozen=True)
class Job:
    """A piece of work that depends on no other.

    `work` takes no arguments; to be sent to another process it must be picklable: a function of a module, a
    `functools.partial` of one, or an instance of a dataclass with `__call__`. Data goes by reference, not inside it.
    """

    key: str
    work: Callable[[], Any]
    cpus: float = 1.0
    gpus: float = 0.0
    """May be a fraction: several small models share a GPU."""
    cost: float = 0.0
    """How long it will take compared with the others, in any unit; the longest are started first."""
    group: str = ""
    """Jobs of one group share what is dear to set up, such as a loaded model, and follow one another."""


@dataclass(frozen=True)
class JobResult:
    """What a job gave: its value, or the exception that ended it, with the traceback as text."""

    key: str
    seconds: float
    value: Any = None
    error: Exception | None = None
    traceback: str = ""

    @property
    def failed(self) -> bool:
        """Whether the job ended in an exception."""
        return self.error is not None

    @property
    def reason(self) -> str:
        """Why it failed, in one line; empty if it did not."""
        if self.error is None:
            return ""
        return " ".join(str(self.error).split()) or type(self.error).__name__


def perform(job: Job) -> JobResult:
    """Run a job here. An exception becomes its result; Ctrl-C does not.

    >>> perform(Job("seven", lambda: 7)).value, perform(Job("bad", lambda: 1 / 0)).reason
    (7, 'division by zero')
    """
    started = time.perf_counter()
    try:
        value = job.work()
    except Exception as error:
        return JobResult(job.key, time.perf_counter() - started, error=error, traceback=traceback.format_exc())
    return JobResult(job.key, time.perf_counter() - started, value=value)


def in_order(jobs: list[Job]) -> list[Job]:
    """The costliest groups first, the jobs of a group together. Keys must differ.

    >>> [job.key for job in in_order([Job("a", str, cost=1), Job("b", str, cost=3), Job("c", str, cost=2)])]
    ['b', 'c', 'a']
    """
    keys = [job.key for job in jobs]
    if repeated := {key for key in keys if keys.count(key) > 1}:
        raise InputError(f"The keys of jobs must differ; {sorted(repeated)[0]!r} is there more than once.")
    totals: dict[str, float] = {}
    for job in jobs:
        totals[job.group or job.key] = totals.get(job.group or job.key, 0.0) + job.cost
    return sorted(jobs, key=lambda job: (-totals[job.group or job.key], job.group or "", -job.cost))
