"""Jobs over worker processes that stay: each opens its data once, and a job that fails is said and does not stop the
others."""

from __future__ import annotations

import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

JobType = TypeVar("JobType")
ResultType = TypeVar("ResultType")


def run_jobs(
    work: Callable[[JobType], ResultType], jobs: Sequence[JobType], workers: int
) -> Iterator[tuple[JobType, ResultType]]:
    """Results as they come, beginning the jobs in their order. With one worker they run in this process."""
    start = time.perf_counter()

    def said(job: JobType, outcome: str) -> None:
        print(f"{time.perf_counter() - start:5.0f} s  {job}: {outcome}", file=sys.stderr, flush=True)

    if workers == 1:
        for job in jobs:
            result, problem = attempt(work, job)
            said(job, problem or "done")
            if not problem:
                yield job, result  # type: ignore[misc]
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(attempt, work, job): job for job in jobs}
        for future in as_completed(futures):
            result, problem = future.result()
            said(futures[future], problem or "done")
            if not problem:
                yield futures[future], result  # type: ignore[misc]


def attempt(work: Callable[[JobType], ResultType], job: JobType) -> tuple[ResultType | None, str]:
    """The result, or what went wrong."""
    try:
        return work(job), ""
    except Exception:
        return None, traceback.format_exc()
