"""Ctrl-C, where it must wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Keep the first Ctrl-C until the end of the block, so that what it does is whole; a second one ends it at once.

    A Ctrl-C in the middle of a library's first import would leave that library broken, and with it every later try
    to save. It interrupts the main thread alone: elsewhere there is nothing to keep.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    held = []

    def hold(number: int, frame: object) -> None:
        held.append(number)
        signal.signal(number, before)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if held:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def starting_processes() -> Iterator[None]:
    """As `uninterrupted`, and processes that start in the block never hear of Ctrl-C: each would print where it was.

    This process ends them. That they inherit what this thread has blocked is not enough for this one itself: the
    system gives the signal to any other thread, and Python interrupts the main one.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        with uninterrupted():
            yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # it starts with them, and would take the mask away
    with uninterrupted():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
