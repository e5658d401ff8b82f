"""The engine `local`: this process, or a few more on this machine."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from hubscout.engines.engine import ENGINES
from hubscout.engines.job import Job, JobResult, in_order, perform
from hubscout.errors import EngineError, InputError


@ENGINES.register("local")
class LocalEngine:
    """Runs jobs one by one in this process, or with `processes` in so many others.

    Other processes cost their start and a copy of what a job loads; they are for jobs that may crash their process
    or that use one core each.
    """

    def __init__(self, processes: int = 0) -> None:
        if processes < 0:
            raise InputError(f"processes must be 0 (this one) or more, got {processes}.")
        self.processes = processes
        self._pools: list[ProcessPoolExecutor] = []

    def run(self, jobs: Iterable[Job]) -> Iterator[JobResult]:
        """Results in the order in which jobs finish, the costliest started first."""
        ordered = in_order(list(jobs))
        if self.processes == 0:
            for job in ordered:
                yield perform(job)
            return
        unfinished = {job.key: job for job in ordered}
        for result in self._run_in_pool(ordered, self.processes):
            del unfinished[result.key]
            yield result
        # A process that died took the pool with it and nobody can say whose fault it was: one job at a time tells.
        for job in list(unfinished.values()):
            alone = list(self._run_in_pool([job], 1))
            died = EngineError("the process that ran the job died (killed, out of memory, or crashed)")
            yield alone[0] if alone else JobResult(job.key, 0.0, error=died)

    def close(self) -> None:
        """Stop the processes. Jobs that have not started are dropped."""
        for pool in self._pools:
            for process in list((getattr(pool, "_processes", None) or {}).values()):
                process.terminate()
            pool.shutdown(wait=True, cancel_futures=True)
        self._pools.clear()

    def _run_in_pool(self, jobs: list[Job], processes: int) -> Iterator[JobResult]:
        """Results until all are in or a process dies."""
        # Spawned, not forked: a fork of a process that has run torch's threads may hang.
        pool = ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))
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
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    job = pending.pop(future)
                    try:
                        yield future.result()
                    except BrokenProcessPool:
                        return
                    except Exception as error:  # its value cannot be sent back
                        yield JobResult(job.key, 0.0, error=error)
        finally:
            self.close()


def _perform_sent(key: str, sent: bytes) -> JobResult:
    """Run a pickled job. Unpickled here rather than by the pool, which dies of a module that it cannot import."""
    try:
        job = pickle.loads(sent)
    except Exception as error:
        return JobResult(key, 0.0, error=error)
    return perform(job)
