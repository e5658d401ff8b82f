"""The processes that prepare samples: they stay for a minute, so that the next model finds them."""

from __future__ import annotations

import importlib
import threading
import warnings
from contextlib import suppress
from functools import cache
from typing import Any

from hubscout.interrupts import starting_processes

_IDLE_SECONDS = 60
_latest: Any = None


def process_pool(count: int) -> Any:
    """So many processes, those that are there or new ones, as an executor; they are started, and not waited for."""
    global _latest
    from loky import get_reusable_executor

    # The executor does not run the caller's script again in its processes, as those of multiprocessing would.
    _latest = get_reusable_executor(max_workers=count, timeout=_IDLE_SECONDS, initializer=_import_decoder)
    with starting_processes():
        _latest.submit(int)  # which starts them all
    _end_at_exit()
    return _latest


@cache
def _end_at_exit() -> None:
    """End them with this process, before loky, whose hook is older, waits until they have started and are idle."""
    register = getattr(threading, "_register_atexit", None)  # `atexit` is too late
    if register is not None:
        register(end_processes)


def end_processes() -> None:
    """End them at once, where there are any: to wait for them takes a command that is done up to two seconds."""
    if _latest is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it cannot look for their children without pgrep
            _latest.shutdown(wait=True, kill_workers=True)


def _import_decoder() -> None:
    """In a process, before it has anything to do: import what decoding images takes."""
    with suppress(ImportError):  # where it is needed, it is said
        for name in ("hubscout.hubs.device_resizing", "hubscout.tasks.images", "PIL.Image"):
            importlib.import_module(name)
