"""One `run` of the engine `ray`: jobs as Ray tasks, which Ray places, retries and ends, and what its workers run."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hubscout.credentials import strip_credentials
from hubscout.engines.engine import Follow, Observer
from hubscout.engines.job import Job, JobQueue, JobResult, died, hung, listen, perform_sent
from hubscout.errors import EngineError

if TYPE_CHECKING:
    from hubscout.engines.ray_engine import RayEngine

_SECONDS_BETWEEN_LOOKS = 0.25
_SECONDS_BETWEEN_LOOKS_FOR_ROOM = 1.0
_SECONDS_TO_WAIT_FOR_ROOM = 30.0
_SECONDS_TO_ASK = 10.0
_SECONDS_BETWEEN_EVENTS = 0.2
_OUR_SETTINGS = ("HUBSCOUT_", "HF_", "TRANSFORMERS_", "TORCH_HOME", "TOKENIZERS_PARALLELISM")


@dataclass(frozen=True)
class Surroundings:
    """What a worker takes over from the process that started it: relative paths and offline modes mean the same."""

    folder: str
    import_path: tuple[str, ...]
    environment: Mapping[str, str]

    @classmethod
    def here(cls) -> Surroundings:
        """Those of this process."""
        chosen = {name: value for name, value in os.environ.items() if name.startswith(_OUR_SETTINGS)}
        return cls(os.getcwd(), tuple(path for path in sys.path if path), chosen)

    def take_over(self) -> None:
        """Make them those of this process, as far as the machine allows."""
        for name, value in self.environment.items():
            os.environ.setdefault(name, value)
        if os.path.isdir(self.folder):
            os.chdir(self.folder)
        sys.path += [path for path in self.import_path if path not in sys.path and os.path.isdir(path)]


@dataclass(frozen=True)
class Begun:
    """A job has been started: where."""

    pid: int
    node: str


def perform_on_ray(surroundings: Surroundings, events: Any, key: str, sent: bytes) -> bytes:
    """Run a pickled job. Becomes a remote function; Ray runs it again where its process or machine was lost."""
    import ray

    surroundings.take_over()
    with _Sender(events, key, Begun(os.getpid(), ray.get_runtime_context().get_node_id())):
        return perform_sent(key, sent)


class _Sender:
    """Sends what a job reports a few times per second; all of it is sent before the job is done."""

    def __init__(self, queue: Any, key: str, begun: Begun) -> None:
        self._queue = queue
        self._key = key
        self._events: list[Any] = [begun]
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="hubscout-events", daemon=True)

    def __enter__(self) -> None:
        self._flush()  # before the job can crash the process
        self._thread.start()
        listen(self._put)

    def __exit__(self, *error: object) -> None:
        listen(None)
        self._done.set()
        self._thread.join()
        self._flush()

    def _put(self, event: Any) -> None:
        with self._lock:
            self._events.append(event)

    def _flush(self) -> None:
        import ray

        with self._lock:
            events, self._events = self._events, []
        try:
            if events:
                self._queue.put_nowait_batch([(self._key, event) for event in events])
        except ray.exceptions.RayError:  # nobody listens, or not at the moment
            with self._lock:
                self._events[:0] = events

    def _work(self) -> None:
        while not self._done.wait(_SECONDS_BETWEEN_EVENTS):
            self._flush()


def is_alive(pid: int) -> bool:
    """Whether there is such a process here. Becomes a remote function."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


class RayRun:
    """Everything that happens between the first job and the last result."""

    def __init__(self, engine: RayEngine, jobs: Iterable[Job], observer: Observer | None, then: Follow | None) -> None:
        import ray

        self._ray = ray
        self._engine = engine
        self._observer = observer
        self._then = then
        self._waiting = JobQueue(jobs)
        self._pending: dict[Any, Job] = {}
        self._starts: Counter[str] = Counter()
        self._begun: dict[str, Begun] = {}
        self._since: dict[str, float] = {}
        self._heard: dict[str, float] = {}
        self._no_room_since: dict[tuple[float, float], float] = {}
        self._last_look_for_room = 0.0
        self._task: Any = ray.remote(perform_on_ray)
        self._surroundings = ray.put(Surroundings.here())
        self._events = engine.events

    def results(self) -> Iterator[JobResult]:
        """One result per job."""
        while self._waiting or self._pending:
            found = self._submit()
            if self._pending:
                ready, _ = self._ray.wait(list(self._pending), timeout=_SECONDS_BETWEEN_LOOKS, fetch_local=False)
                self._read_events()
                self._look_for_room()
                found += [self._collect(reference) for reference in ready]
                found += [self._give_up(reference, job) for reference, job in list(self._pending.items())]
            for result in found:
                if result is None:
                    continue
                if self._then is not None:
                    self._waiting.add(self._then(result))
                yield replace(result, attempts=self._starts[result.key])

    def cancel(self) -> None:
        """End what is under way."""
        for reference in self._pending:
            self._ray.cancel(reference, force=True)
        self._pending = {}

    def _submit(self) -> list[JobResult | None]:
        """Give all waiting jobs to Ray; the results are of jobs that cannot be sent."""
        from ray import cloudpickle

        failed: list[JobResult | None] = []
        while self._waiting:
            job = self._waiting.popleft()
            try:
                sent = cloudpickle.dumps(job)
            except Exception as error:
                failed.append(JobResult(job.key, 0.0, error=error))
                continue
            task = self._task.options(
                name=strip_credentials(job.key),  # which Ray's dashboard shows
                num_cpus=job.cpus,
                num_gpus=job.gpus,
                max_retries=self._engine.attempts - 1,
            )
            self._pending[task.remote(self._surroundings, self._events, job.key, sent)] = job
        return failed

    def _collect(self, reference: Any) -> JobResult | None:
        """The result of a task that has ended, or why there is none; None where it is run again."""
        job = self._pending.pop(reference)
        exceptions = self._ray.exceptions
        try:
            return pickle.loads(self._ray.get(reference))
        except exceptions.OutOfMemoryError:  # Ray does not retry the last task of a machine, which may fit by now
            if self._starts[job.key] < self._engine.attempts:
                self._waiting.appendleft(job)
                return None
            return self._failed(job, died(self._starts[job.key], "out of memory"))
        except exceptions.RayTaskError as error:
            return self._failed(job, EngineError(f"the worker could not start the job: {error.cause or error}"))
        except exceptions.RayError:  # after all its retries
            self._starts[job.key] = self._engine.attempts
            return self._failed(job, died(self._engine.attempts))

    def _give_up(self, reference: Any, job: Job) -> JobResult | None:
        """Why a task is not waited for any longer; None if it is."""
        problem = self._problem(job)
        if problem is None:
            return None
        del self._pending[reference]
        self._ray.cancel(reference, force=True)
        return self._failed(job, problem)

    def _problem(self, job: Job) -> EngineError | None:
        now = time.monotonic()
        if job.key not in self._begun:
            if now - self._no_room_since.get((job.cpus, job.gpus), now) > _SECONDS_TO_WAIT_FOR_ROOM:
                return EngineError(
                    f"no machine of the cluster has room for a job of {job.cpus:g} CPUs and {job.gpus:g} GPUs"
                )
        elif self._starts[job.key] > self._engine.attempts:  # Ray does not count deaths for want of memory
            return died(self._engine.attempts)
        elif job.seconds_limit is not None and now - self._heard[job.key] > job.seconds_limit:
            silent_since = self._heard[job.key]
            running = self._is_running(self._begun[job.key])
            self._read_events()  # of all jobs, which have gone on while the machine was asked
            if self._heard[job.key] > silent_since:
                return None
            if running:
                return hung(job.seconds_limit)
            del self._begun[job.key]  # its process died, and Ray has it wait for another one
        return None

    def _look_for_room(self) -> None:
        """Note since when no machine could hold a job that waits; machines come and go."""
        now = time.monotonic()
        if now - self._last_look_for_room < _SECONDS_BETWEEN_LOOKS_FOR_ROOM:
            return
        self._last_look_for_room = now
        shapes = {(job.cpus, job.gpus) for job in self._pending.values() if job.key not in self._begun}
        full = [shape for shape in shapes if not self._engine.room(*shape)]
        self._no_room_since = {shape: self._no_room_since.get(shape, now) for shape in full}

    def _is_running(self, where: Begun) -> bool:
        """Whether a process is there; one whose machine is too busy to say so counts as there."""
        here = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(where.node, soft=False)
        ask = self._ray.remote(is_alive).options(num_cpus=0, max_retries=0, scheduling_strategy=here)
        try:
            return bool(self._ray.get(ask.remote(where.pid), timeout=_SECONDS_TO_ASK))
        except self._ray.exceptions.GetTimeoutError:
            return True
        except self._ray.exceptions.RayError:
            return False

    def _failed(self, job: Job, error: Exception) -> JobResult:
        now = time.monotonic()
        return JobResult(job.key, now - self._since.get(job.key, now), error=error)

    def _read_events(self) -> None:
        """Pass on what jobs have reported by now."""
        try:
            count = self._events.qsize()
            events = self._events.get_nowait_batch(count) if count else []
        except self._ray.exceptions.RayError:
            return  # progress is not worth failing for
        now = time.monotonic()
        for key, event in events:
            self._heard[key] = now
            if isinstance(event, Begun):
                self._starts[key] += 1
                self._begun[key] = event
                self._since.setdefault(key, now)
            elif self._observer is not None:
                self._observer(event)
