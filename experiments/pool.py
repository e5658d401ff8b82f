"""Jobs over worker processes that stay: each opens its data once, and a job that fails is said and does not stop the
others."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TypeVar

from hubscout.engines import Job, LocalEngine

JobType = TypeVar("JobType")
ResultType = TypeVar("ResultType")


def run_jobs(
    work: Callable[[JobType], ResultType], jobs: Sequence[JobType], workers: int
) -> Iterator[tuple[JobType, ResultType]]:
    """Results as they come, beginning the jobs in their order. With one worker they run in this process."""
    start = time.perf_counter()
    named = {str(place): job for place, job in enumerate(jobs)}
    with closing(LocalEngine(0 if workers == 1 else workers, import_main=True)) as engine:
        for result in engine.run([Job(key, partial(work, job)) for key, job in named.items()]):
            job = named[result.key]
            outcome = result.traceback or result.reason or "done"
            print(f"{time.perf_counter() - start:5.0f} s  {job}: {outcome}", file=sys.stderr, flush=True)
            if not result.failed:
                yield job, result.value


def attempt(work: Callable[[JobType], ResultType], job: JobType) -> tuple[ResultType | None, str]:
    """The result, or what went wrong."""
    try:
        return work(job), ""
    except Exception:
        return None, traceback.format_exc()
