"""Workers that come from one process, which has imported what they need: that takes longer than running a small model.

A fork of it is a worker at once. It has no threads, and none of the caller's, so that it may be forked; and it has not
run the caller's script, which may not be written for that.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

_SECONDS_BETWEEN_LOOKS = 0.005
_MOST_SECONDS = 10.0
"""For the process to end its workers and itself; it has never taken one."""
Serve = Callable[[Connection], None]
Prepare = Callable[[], object]

_ASK_DRIVER = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""Has torch look for GPUs without starting their driver, which no fork could use afterwards."""
_OF_DRIVERS = {"/dev/nvidia-uvm", "/dev/kfd", "/dev/dxg"}
"""Open where the driver of NVIDIA's or AMD's GPUs runs, or either under Windows."""


class Nursery:
    """So many workers, as soon as the imports are done; what is sent to them before waits.

    Where the process cannot be forked after all, their connections end, as those of workers that died.

    Args:
        count: how many workers.
        serve: what each of them does with its connection.
        prepare: what the process does before they are forked. What fails there is left to those who need it.
        env: variables of the environment.

    """

    def __init__(self, count: int, serve: Serve, prepare: Prepare, env: dict[str, str]) -> None:
        from loky.backend.process import LokyProcess

        pipes = [Pipe() for _ in range(count)]
        self.workers = [(Fork(here), here) for here, _ in pipes]
        self._alive, there = Pipe()
        ours = {name: value for name, value in _ASK_DRIVER.items() if name not in os.environ}
        given = (there, [theirs for _, theirs in pipes], serve, prepare, tuple(ours))
        self._process = LokyProcess(target=_bring_up, args=given, env=env | ours)
        self._process.start()
        for end in (there, *(theirs for _, theirs in pipes)):
            end.close()

    @staticmethod
    def suits(count: int) -> bool:
        """Whether there is something to share, on a system on which processes with large libraries can be forked."""
        return count > 1 and sys.platform == "linux"

    def close(self) -> None:
        """End the process, and the workers with it."""
        self._process.terminate()
        self._process.join(_MOST_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._alive.close()  # without which workers end as well


@dataclass
class Fork:
    """A worker, in the words of a process."""

    connection: Connection
    pid: int | None = None
    """Known once it has said it."""
    _since: str = ""

    def born(self, pid: int) -> None:
        """It has said its number."""
        self.pid, self._since = pid, _state(pid)[1]

    def terminate(self) -> None:
        """End it. One that is not there yet finds its connection closed."""
        with suppress(EOFError, OSError):
            while self.pid is None and self.connection.poll():
                what, value = self.connection.recv()
                if what == "born":
                    self.born(value)
        if self.pid is not None and self._runs():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def join(self) -> None:
        """Wait for its end; not for that of its connection, which a process that it has forked may hold."""
        while self._runs():
            time.sleep(_SECONDS_BETWEEN_LOOKS)

    def _runs(self) -> bool:
        if self.pid is None:
            return False
        state, since = _state(self.pid)
        return state not in ("", "Z", "X") and since == self._since


def _state(pid: int) -> tuple[str, str]:
    """The state of a process, and since when it has been there: another one may have its number later."""
    with suppress(OSError):
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return told[0], told[19]
    return "", ""


def _bring_up(
    alive: Connection, connections: Sequence[Connection], serve: Serve, prepare: Prepare, ours: Sequence[str]
) -> None:
    """In the process: prepare, fork the workers, and keep their names until nobody needs them any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits, which ends this one
    with suppress(Exception):
        prepare()
    if threading.active_count() > 1 or _holds_gpu():
        for connection in connections:  # at once: this process may have threads that go on
            connection.close()
        return
    gc.collect()
    gc.freeze()  # or looking for garbage would write to all pages, which workers share as long as nobody does
    _flush()  # or each would say it once more
    children: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        for connection in connections:
            try:
                child = _fork()
            except OSError:  # no more than these; others take the place of the rest
                break
            if child == 0:
                others = [alive, *(other for other in connections if other is not connection)]
                _be_worker(connection, others, serve, ours)
            children.append(child)
        for connection in connections:
            connection.close()
        with suppress(EOFError, OSError):
            alive.recv()
    finally:
        for child in children:
            os.kill(child, signal.SIGTERM)  # nobody waited for it before, so its number is still its own
        for child in children:
            os.waitpid(child, 0)
        _flush()
        os._exit(0)  # at once: the process that waits for this one has no use for libraries that are taken apart


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads that are a library's, such as OpenBLAS's
        return os.fork()


def _be_worker(connection: Connection, others: Sequence[Connection], serve: Serve, ours: Sequence[str]) -> None:
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for other in others:
            other.close()  # or nobody would notice the end of that worker
        for name in ours:
            os.environ.pop(name, None)
        if (random := sys.modules.get("numpy.random")) is not None:
            random.seed()  # or all would draw the same
        with suppress(EOFError, OSError):
            connection.send(("born", os.getpid()))
            serve(connection)
    except BaseException:  # which ends a process, and is told
        traceback.print_exc()
    finally:
        _flush()
        os._exit(0)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


def _holds_gpu() -> bool:
    """Whether something that was imported has started the driver of a GPU."""
    with suppress(OSError):
        return any(_target(entry) in _OF_DRIVERS for entry in Path("/proc/self/fd").iterdir())
    return False


def _target(link: Path) -> str:
    with suppress(OSError):
        return os.readlink(link)
    return ""
