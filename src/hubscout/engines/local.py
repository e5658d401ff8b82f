"""The engine `local`: this process, or a few more on this machine."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import queue
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from hubscout.engines import reporting
from hubscout.engines.engine import ENGINES, Follow, Observer
from hubscout.engines.job import GivenUp, Job, JobResult, in_order, perform
from hubscout.engines.shared import Held, Shared
from hubscout.errors import EngineError, InputError

T = TypeVar("T")

_SECONDS_BETWEEN_EVENTS = 0.2


@ENGINES.register("local")
class LocalEngine:
    """Runs jobs one by one in this process, or with `processes` in so many others.

    Other processes cost their start and a copy of what a job loads; they are for jobs that may crash their process
    or that use one core each. Limits of time are not kept here: a job cannot be ended from within its own process.
    """

    def __init__(self, processes: int = 0) -> None:
        if processes < 0:
            raise InputError(f"processes must be 0 (this one) or more, got {processes}.")
        self.processes = processes
        self.notes: tuple[str, ...] = ()
        self._pools: list[ProcessPoolExecutor] = []

    @property
    def elsewhere(self) -> bool:
        """Whether jobs run in other processes."""
        return self.processes > 0

    def run(
        self, jobs: Iterable[Job], *, observer: Observer | None = None, then: Follow | None = None
    ) -> Iterator[JobResult]:
        """Results in the order in which jobs finish, the costliest started first."""
        given_up = GivenUp({})
        waiting = in_order(list(jobs))
        seen = {job.key for job in waiting}
        while waiting:
            follow: list[Job] = []
            by_key = {job.key: job for job in waiting}
            for result in self._run(waiting, given_up, observer):
                given_up.note(by_key[result.key], result)
                if then is not None:
                    follow += then(result)
                yield result
            waiting = in_order(follow)
            if repeated := seen & {job.key for job in waiting}:
                raise InputError(f"The keys of jobs must differ; {sorted(repeated)[0]!r} is there more than once.")
            seen |= {job.key for job in waiting}

    def share(self, value: T) -> Shared[T]:
        """The value itself; other processes get a copy with each job."""
        return Held(value)

    def places(self, *, cpus: float = 1.0, gpus: float = 0.0) -> int:
        """One, or the number of processes."""
        return max(1, self.processes)

    def total(self, resource: str) -> float:
        """The cores of this machine; its GPUs are not shared out."""
        return float(os.cpu_count() or 1) if resource == "CPU" else 0.0

    def shares_files(self) -> bool:
        """This machine's files are there."""
        return True

    def close(self) -> None:
        """Stop the processes. Jobs that have not started are dropped."""
        for pool in self._pools:
            for process in list((getattr(pool, "_processes", None) or {}).values()):
                process.terminate()
            pool.shutdown(wait=True, cancel_futures=True)
        self._pools.clear()

    def _run(self, ordered: list[Job], given_up: GivenUp, observer: Observer | None) -> Iterator[JobResult]:
        if self.processes == 0:
            for job in ordered:
                if (lost := given_up.result(job)) is not None:
                    yield lost
                    continue
                with reporting.listening(observer):
                    result = perform(job)
                yield result
            return
        unfinished = {job.key: job for job in ordered}
        for result in self._run_in_pool(ordered, self.processes, given_up, observer):
            del unfinished[result.key]
            yield result
        # A process that died took the pool with it and nobody can say whose fault it was: one job at a time tells.
        for job in list(unfinished.values()):
            if (lost := given_up.result(job)) is not None:
                yield lost
                continue
            alone = list(self._run_in_pool([job], 1, given_up, observer))
            died = EngineError("the process that ran the job died (killed, out of memory, or crashed)")
            yield alone[0] if alone else JobResult(job.key, 0.0, error=died, attempts=2)

    def _run_in_pool(
        self, jobs: list[Job], processes: int, given_up: GivenUp, observer: Observer | None
    ) -> Iterator[JobResult]:
        """Results until all are in or a process dies."""
        # Spawned, not forked: a fork of a process that has run torch's threads may hang.
        context = multiprocessing.get_context("spawn")
        events: Any = context.Queue() if observer is not None else None
        pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_listen, initargs=(events,))
        self._pools.append(pool)
        try:
            pending: dict[Future[JobResult], Job] = {}
            for job in jobs:
                try:
                    sent = pickle.dumps(job)
                except Exception as error:
                    yield JobResult(job.key, 0.0, error=error)
                else:
                    pending[pool.submit(_perform_sent, job.key, sent)] = job
            while pending:
                timeout = None if events is None else _SECONDS_BETWEEN_EVENTS
                done = wait(pending, timeout=timeout, return_when=FIRST_COMPLETED).done
                _hand_on(events, observer)
                for future in done:
                    job = pending.pop(future)
                    try:
                        yield future.result()
                    except BrokenProcessPool:
                        return
                    except Exception as error:  # its value cannot be sent back
                        yield JobResult(job.key, 0.0, error=error)
                for future, job in list(pending.items()):
                    if (lost := given_up.result(job)) is not None and future.cancel():
                        del pending[future]
                        yield lost
        finally:
            self.close()
            if events is not None:
                events.close()


def _listen(events: Any) -> None:
    """In a new process: what jobs report goes into the queue."""
    if events is not None:
        reporting.listen(events.put)


def _hand_on(events: Any, observer: Observer | None) -> None:
    while observer is not None:
        try:
            observer(events.get_nowait())
        except queue.Empty:
            return


def _perform_sent(key: str, sent: bytes) -> JobResult:
    """Run a pickled job. Unpickled here rather than by the pool, which dies of a module that it cannot import."""
    try:
        job = pickle.loads(sent)
    except Exception as error:
        return JobResult(key, 0.0, error=error)
    return perform(job)
