"""`Job`: a piece of work that can be sent elsewhere, and `JobResult`: what came back."""

from __future__ import annotations

import time
import traceback
from collections import Counter
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
    together: bool = False
    """Whether the group is of no use with one of its jobs missing: when this one fails, those of the group that have
    not started are given back as failed, with the same reason."""
    seconds_limit: float | None = None
    """Engines that run jobs in processes of their own end one that has neither finished nor reported anything for so
    long. None waits for ever."""


@dataclass(frozen=True)
class JobResult:
    """What a job gave: its value, or the exception that ended it, with the traceback as text."""

    key: str
    seconds: float
    value: Any = None
    error: Exception | None = None
    traceback: str = ""
    attempts: int = 1
    """How often it was started: more than once where its process died."""

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


@dataclass
class GivenUp:
    """Groups that lost a job they cannot do without, and why."""

    reasons: dict[str, Exception]

    def note(self, job: Job, result: JobResult) -> None:
        """Hear of a result."""
        if result.error is not None and job.together and job.group:
            self.reasons.setdefault(job.group, result.error)

    def result(self, job: Job) -> JobResult | None:
        """What becomes of a job that has not started; None if it should run."""
        error = self.reasons.get(job.group) if job.together and job.group else None
        return None if error is None else JobResult(job.key, 0.0, error=error, attempts=0)


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
    counts = Counter(job.key for job in jobs)
    if repeated := [key for key, count in counts.items() if count > 1]:
        raise InputError(f"The keys of jobs must differ; {sorted(repeated)[0]!r} is there more than once.")
    totals: dict[str, float] = {}
    for job in jobs:
        totals[job.group or job.key] = totals.get(job.group or job.key, 0.0) + job.cost
    return sorted(jobs, key=lambda job: (-totals[job.group or job.key], job.group or "", -job.cost))
