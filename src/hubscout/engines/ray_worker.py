"""What runs in the processes of a Ray cluster: a job, and a thread that sends what it reports."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from hubscout.engines import job_context
from hubscout.engines.job import perform_sent

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
        job_context.listen(self._put)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        job_context.listen(None)
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
