"""What runs in the processes of a Ray cluster: the worker that performs jobs, and the mailbox of their events."""

from __future__ import annotations

import builtins
import os
import pickle
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from hubscout.engines import reporting
from hubscout.engines.job import JobResult, perform
from hubscout.errors import EngineError, HubscoutError

_SECONDS_BETWEEN_EVENTS = 0.2
_SECONDS_TO_WAIT_FOR_MAIL = 20.0
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
class Greeting:
    """Where a worker is."""

    pid: int
    node: str


class Mailbox:
    """Takes events from all workers, each with the key of its job, until they are fetched. Becomes an actor."""

    def __init__(self) -> None:
        self._events: list[Any] = []

    def put(self, events: Sequence[Any]) -> None:
        """Take events."""
        self._events.extend(events)

    def fetch(self) -> list[Any]:
        """All events since the last time."""
        events, self._events = self._events, []
        return events


class Worker:
    """Performs one job after the other and keeps what they share loaded. Becomes an actor."""

    def __init__(self, surroundings: Surroundings, mailbox: Any) -> None:
        surroundings.take_over()
        self._sender = _Sender(mailbox) if mailbox is not None else None
        reporting.listen(None if self._sender is None else self._sender.put)

    def greet(self) -> Greeting:
        """Say where this is."""
        import ray

        return Greeting(os.getpid(), ray.get_runtime_context().get_node_id())

    def perform(self, sent: bytes) -> JobResult:
        """Run a pickled job."""
        from ray import cloudpickle

        job = None
        try:
            job = cloudpickle.loads(sent)
        except Exception as error:
            return JobResult("", 0.0, error=sendable(error))
        if self._sender is not None:
            self._sender.job = job.key
        result = perform(job)
        if self._sender is not None:
            self._sender.flush(wait=True)  # what a job tells is heard before it is done
        return result if result.error is None else replace(result, error=sendable(result.error))


class _Sender:
    """Collects events, and sends them a few times a second from a thread of its own."""

    def __init__(self, mailbox: Any) -> None:
        self._mailbox = mailbox
        self.job = ""
        self._events: list[tuple[str, Any]] = []
        self._some = threading.Event()
        self._lock = threading.Lock()
        threading.Thread(target=self._work, name="hubscout-events", daemon=True).start()

    def put(self, event: Any) -> None:
        with self._lock:
            self._events.append((self.job, event))
        self._some.set()

    def flush(self, *, wait: bool = False) -> None:
        import ray

        with self._lock:
            events, self._events = self._events, []
            self._some.clear()
        sent = self._mailbox.put.remote(events)
        if wait:
            with suppress(ray.exceptions.RayError):  # nobody listens any more
                ray.get(sent, timeout=_SECONDS_TO_WAIT_FOR_MAIL)

    def _work(self) -> None:
        while self._some.wait():
            self.flush()
            time.sleep(_SECONDS_BETWEEN_EVENTS)


def sendable(error: Exception) -> Exception:
    """An exception that survives the way back: one whose class is not known there, or that does not come out of a
    pickle as it went in, becomes the nearest one of ours that does, with the same words.

    >>> from hubscout.errors import MissingDependencyError
    >>> type(sendable(MissingDependencyError("ray", "ray", "This"))).__name__, type(sendable(KeyError("a"))).__name__
    ('HubscoutError', 'KeyError')
    """
    kind = type(error)
    if isinstance(error, HubscoutError) or getattr(builtins, kind.__name__, None) is kind:
        try:
            back = pickle.loads(pickle.dumps(error))
            if type(back) is kind and str(back) == str(error):
                return error
        except Exception:
            pass
        for base in kind.__mro__[1:]:
            if issubclass(base, HubscoutError) and base.__init__ is HubscoutError.__init__:
                return base(str(error))
    return EngineError(f"{kind.__name__}: {error}")
