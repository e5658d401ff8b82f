"""How a job tells those who wait for it how far it is, wherever it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Listener = Callable[[Any], None]

_listener: Listener | None = None


def report(event: Any) -> None:
    """Called inside a job: sends a picklable value to the observer of the engine's `run`. Nobody need listen."""
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
