"""Processes of this machine that perform jobs, one after the other, and stay for the next."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from hubscout.engines.engine import Follow, Observer
from hubscout.engines.job import Job, JobQueue, JobResult, died, hung, listen, perform_sent
from hubscout.engines.nursery import Fork, Nursery
from hubscout.interrupts import starting_processes

_SECONDS_BETWEEN_LOOKS = 0.25


@dataclass
class Worker:
    """One process, and the job that it has."""

    process: Any
    connection: Connection
    job: Job | None = None
    since: float = 0.0
    heard: float = 0.0

    @property
    def unborn(self) -> bool:
        """Whether it is to be forked, and was not heard of yet."""
        return isinstance(self.process, Fork) and self.process.pid is None


class WorkerPool:
    """So many processes. One that dies costs its own job an attempt and nobody else anything."""

    def __init__(self, size: int, attempts: int, *, import_main: bool = False) -> None:
        self._size = size
        self._import_main = import_main
        self._attempts = attempts
        self._workers: list[Worker] = []
        self._nursery: Nursery | None = None
        atexit.register(self.close)  # processes that wait would keep the interpreter from its end

    def prepare(self, work: Callable[[], object]) -> None:
        """Start the workers as forks of one process that has done `work`, where there are none yet."""
        if not self._workers and self._nursery is None and not self._import_main and Nursery.suits(self._size):
            with (
                starting_processes()
            ):  # or nobody would know of a process that has just started, and wait for it at the end
                self._nursery = Nursery(self._size, _serve, work, self._environment())
                self._workers += [Worker(fork, connection) for fork, connection in self._nursery.workers]

    def run(self, waiting: JobQueue, observer: Observer | None, then: Follow | None) -> Iterator[JobResult]:
        """One result per job, in the order in which they finish."""
        started: Counter[str] = Counter()
        try:
            while waiting or any(worker.job is not None for worker in self._workers):
                results = self._hand_out(waiting, started)
                busy = {worker.connection: worker for worker in self._workers if worker.job is not None}
                ready = wait(list(busy), timeout=_SECONDS_BETWEEN_LOOKS) if busy and not results else []
                for connection in ready:
                    results += self._listen(busy[connection], waiting, started, observer)  # type: ignore[index]
                for worker in [worker for worker in self._workers if _is_overdue(worker)]:
                    results += self._end(worker, waiting, started)
                for result in results:
                    if then is not None:
                        waiting.add(then(result))
                    yield replace(result, attempts=started[result.key])
        finally:
            for worker in list(self._workers):
                if worker.job is not None:
                    self._dismiss(worker)

    def close(self) -> None:
        """End the processes, all at once: one that holds a GPU takes a while."""
        for worker in self._workers:
            worker.process.terminate()
        for worker in list(self._workers):
            self._dismiss(worker)
        if self._nursery is not None:
            self._nursery.close()
            self._nursery = None
        atexit.unregister(self.close)

    def _hand_out(self, waiting: JobQueue, started: Counter[str]) -> list[JobResult]:
        """Give waiting jobs to free workers; the results are of jobs that cannot be sent."""
        import cloudpickle

        failed = []
        while waiting and (worker := self._free()) is not None:
            job = waiting.popleft()
            try:
                sent = cloudpickle.dumps(job)
            except Exception as error:
                failed.append(JobResult(job.key, 0.0, error=error))
                continue
            started[job.key] += 1
            worker.job, worker.since, worker.heard = job, time.monotonic(), time.monotonic()
            try:
                worker.connection.send((job.key, sent))
            except OSError:  # it died while it had nothing to do
                self._dismiss(worker)
                started[job.key] -= 1
                waiting.appendleft(job)
        return failed

    def _environment(self) -> dict[str, str]:
        cores = str(max(1, (os.cpu_count() or 1) // self._size))
        return {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", cores)}

    def _free(self) -> Worker | None:
        free = next((worker for worker in self._workers if worker.job is None), None)
        if free is None and len(self._workers) < self._size:
            from loky.backend.process import LokyProcess

            here, there = Pipe()
            # Not forked: a fork of a process that has run torch's threads may hang. And not spawned, which runs the
            # caller's script again, whether it is written for that or not.
            process = LokyProcess(
                target=_serve, args=(there,), env=self._environment(), init_main_module=self._import_main
            )
            with starting_processes():
                process.start()
                there.close()
                free = Worker(process, here)
                self._workers.append(free)
        return free

    def _listen(
        self, worker: Worker, waiting: JobQueue, started: Counter[str], observer: Observer | None
    ) -> list[JobResult]:
        """What a worker has to say: events, then perhaps its result. Silence of a dead one puts its job back."""
        job = worker.job
        assert job is not None
        try:
            while worker.connection.poll():
                worker.heard = time.monotonic()
                what, value = worker.connection.recv()
                if what == "born":
                    worker.process.born(value)
                elif what == "result":
                    worker.job = None
                    return [pickle.loads(value)]
                elif observer is not None:
                    observer(value)
        except (EOFError, OSError):
            self._dismiss(worker)
            if worker.unborn:
                started[job.key] -= 1
            if started[job.key] < self._attempts:
                waiting.appendleft(job)
                return []
            return [JobResult(job.key, time.monotonic() - worker.since, error=died(started[job.key]))]
        return []

    def _end(self, worker: Worker, waiting: JobQueue, started: Counter[str]) -> list[JobResult]:
        """Stop a job that has been silent for too long; one that no worker has begun with is put back."""
        self._dismiss(worker)
        job = worker.job
        assert job is not None
        if worker.unborn:
            started[job.key] -= 1
            waiting.appendleft(job)
            return []
        return [JobResult(job.key, time.monotonic() - worker.since, error=hung(job.seconds_limit or 0.0))]

    def _dismiss(self, worker: Worker) -> None:
        self._workers.remove(worker)
        worker.process.terminate()
        worker.process.join()
        worker.connection.close()


def _is_overdue(worker: Worker) -> bool:
    limit = None if worker.job is None else worker.job.seconds_limit
    return limit is not None and time.monotonic() - worker.heard > limit


def _serve(connection: Connection) -> None:
    """In a worker process: perform what comes until nobody is there any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits, which ends this one
    multiprocessing.set_start_method(None, force=True)  # loky's own is not for those that a job starts, as torch does
    lock = threading.Lock()

    def send(what: str, value: Any) -> None:
        with lock:
            connection.send((what, value))

    listen(lambda event: send("event", event))
    while True:
        try:
            key, sent = connection.recv()
            send("result", perform_sent(key, sent))
        except (EOFError, OSError):
            return
