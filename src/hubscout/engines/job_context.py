"""What a job has in its process: values shared by all jobs, what earlier jobs have loaded, somebody who listens."""

from __future__ import annotations

import pickle
import uuid
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Shared(Protocol[T_co]):
    """A picklable reference to a value that an engine holds."""

    def get(self) -> T_co:
        """The value. It is shared: nobody may change it.

        Returns:
            The value.

        """
        ...


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
