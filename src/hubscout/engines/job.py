"""`Job`: a piece of work that can be sent elsewhere, what it has in its process, and `JobResult`: what came back."""

from __future__ import annotations

import builtins
import pickle
import time
import traceback
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from hubscout.errors import EngineError, HubscoutError, InputError, one_line


@dataclass(frozen=True)
class Job:
    """A piece of work that depends on no other.

    `work` takes no arguments; to be sent to another process it must be picklable: a function of a module, a
    `functools.partial` of one, or an instance of a dataclass with `__call__`. Data goes by reference, not inside it.

    Example:
        >>> Job("seven", lambda: 7, cost=2.0).cpus
        1.0

    """

    key: str
    """Its name in the results; no two jobs of a run have the same."""
    work: Callable[[], Any]
    cpus: float = 1.0
    """How many cores it needs."""
    gpus: float = 0.0
    """May be a fraction: several small models share a GPU."""
    cost: float = 0.0
    """How long it will take compared with the others, in any unit; the longest are started first."""
    seconds_limit: float | None = None
    """Engines that run jobs in processes of their own end one that has neither finished nor reported anything for so
    long. None waits for ever."""


@dataclass(frozen=True)
class JobResult:
    """What a job gave: its value, or the exception that ended it, with the traceback as text."""

    key: str
    """That of the job."""
    seconds: float
    """How long it ran."""
    value: Any = None
    error: Exception | None = None
    """The exception that ended it; None where it gave a value."""
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
        return "" if self.error is None else one_line(self.error)


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


def perform_sent(key: str, sent: bytes) -> bytes:
    """Run a pickled job in another process than the one that waits for it, and pickle its result.

    Job and result are pickled by hand: what cannot be read or sent is the failure of this job alone.
    """
    import cloudpickle

    try:
        job = pickle.loads(sent)
    except Exception as error:
        return cloudpickle.dumps(JobResult(key, 0.0, error=sendable(error)))
    result = perform(job)
    try:
        return cloudpickle.dumps(result if result.error is None else replace(result, error=sendable(result.error)))
    except Exception as error:
        return cloudpickle.dumps(JobResult(key, result.seconds, error=sendable(error)))


class JobQueue(deque[Job]):
    """Jobs that wait, the costliest first. Keys must differ from all that were ever in it.

    >>> [job.key for job in JobQueue([Job("a", str, cost=1), Job("b", str, cost=3), Job("c", str, cost=2)])]
    ['b', 'c', 'a']
    """

    def __init__(self, jobs: Iterable[Job] = ()) -> None:
        super().__init__()
        self._keys: set[str] = set()
        self.add(jobs)

    def add(self, jobs: Iterable[Job]) -> None:
        """Enter new jobs."""
        for job in sorted(jobs, key=lambda job: -job.cost):
            if job.key in self._keys:
                raise InputError(f"The keys of jobs must differ; {job.key!r} is there more than once.")
            self._keys.add(job.key)
            self.append(job)


def died(attempts: int, reason: str = "killed, out of memory, or crashed") -> EngineError:
    """Why a job has no result whose process was gone each time that it was started."""
    return EngineError(f"the process that ran it died {'once' if attempts == 1 else f'{attempts} times'} ({reason})")


def hung(seconds: float) -> EngineError:
    """Why a job has no result that was ended for its silence."""
    return EngineError(f"it gave no sign of life for {seconds:g} seconds, its limit, and was ended")


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


T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Shared(Protocol[T_co]):
    """A picklable reference to a value that an engine holds."""

    def get(self) -> T_co:
        """The value. It is shared: nobody may change it.

        Returns:
            The value.

        """


@dataclass(frozen=True)
class Held(Generic[T]):
    """The reference of engines that run in this process: the value itself."""

    value: T

    def get(self) -> T:
        """The value."""
        return self.value


@dataclass(frozen=True)
class InFile:
    """The reference of engines with several processes on this machine."""

    path: Path

    @classmethod
    def of(cls, value: object, folder: Path) -> InFile:
        """Write a value into a file of its own."""
        import cloudpickle

        path = folder / uuid.uuid4().hex
        path.write_bytes(cloudpickle.dumps(value))
        return cls(path)

    def get(self) -> Any:
        """The value, read anew."""
        return pickle.loads(self.path.read_bytes())


_kept: dict[str, OrderedDict[Hashable, object]] = {}
"""A job runs in whichever process is free; the next of the same group finds what the one before has loaded."""


def remembered(kind: str, key: Hashable, make: Callable[[], T], *, most: int = 1) -> T:
    """A value that is made once per process and found again by later jobs of it: a loaded model, an opened task.

    Args:
        kind: what sort of value it is; each sort has a room of its own.
        key: which one.
        make: makes it, where it is not there.
        most: how many of this kind are kept; those that were used longest ago go.

    Returns:
        The value. Others may use it too: nobody may change it.

    Example:
        >>> remembered("example", "a", lambda: 1), remembered("example", "a", lambda: 2)
        (1, 1)

    """
    values = _kept.setdefault(kind, OrderedDict())
    if key not in values:
        while len(values) >= most:  # before the new one is made: two large models may not fit
            values.popitem(last=False)
        values[key] = make()
    values.move_to_end(key)
    return values[key]  # type: ignore[return-value]


def forget(kind: str | None = None) -> None:
    """Let everything go, or everything of a kind."""
    if kind is None:
        _kept.clear()
    else:
        _kept.pop(kind, None)


Listener = Callable[[Any], None]

_listener: Listener | None = None


def report(event: Any) -> None:
    """Tell those who wait for a job how far it is, from inside the job.

    Args:
        event: any picklable value; the observer of the engine's `run` gets it. Where nobody listens nothing happens.

    Example:
        >>> report({"rows": 100})  # nobody listens here

    """
    if _listener is not None:
        _listener(event)


def listen(listener: Listener | None) -> None:
    """From now on, what jobs report in this process goes to `listener`."""
    global _listener
    _listener = listener


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """What jobs report in this process goes to `listener` meanwhile.

    >>> heard = []
    >>> with listening(heard.append):
    ...     report("half way")
    >>> heard
    ['half way']
    """
    before = _listener
    listen(listener)
    try:
        yield
    finally:
        listen(before)
