"""Runs as processes: started in a group of their own, known again after a restart, stopped as by Ctrl-C.

A process number alone proves nothing, because numbers are used again: a process counts as the one that was noted
only if it began at the noted time.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hubscout.errors import RunError
from hubscout.optional import require
from hubscout.runs.files import parse_json
from hubscout.runs.record_types import in_version, record_of, write_record
from hubscout.serve.served_folder import NOTE, read_real

FORM, VERSION = "hubscout-serve", 1
LOG = "serve.log"
COMMANDS = ("rank", "race", "tune")
"""What can be started."""
CLOSE_SECONDS = 0.5
"""Process start times are told in ticks of a hundredth of a second; systems round them differently."""

_children: dict[int, subprocess.Popen[bytes]] = {}
_lock = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class Started:
    """A process that a server started: its number, when it began (seconds since 1970), where, and what was asked."""

    pid: int
    created: float
    host: str
    request: Mapping[str, Any] = field(default_factory=dict)

    @property
    def running(self) -> bool:
        """Whether that very process is still there."""
        return self.host == platform.node() and begins_at(self.pid, self.created)

    def stop(self, *, force: bool = False) -> bool:
        """Interrupt the process and its children as Ctrl-C does, or kill them; False if it is not running."""
        if not self.running or not _is_run(self.pid):
            return False
        try:
            os.killpg(self.pid, signal.SIGKILL if force else signal.SIGINT)
        except ProcessLookupError:
            return False
        return True


def start(command: Sequence[str], folder: Path, request: Mapping[str, Any]) -> Started:
    """Run `command` with its output in `folder`, in a session of its own so that it outlives this process."""
    if os.name != "posix":
        raise RunError("Starting a run from the page needs Linux or macOS; run `hubscout` in a terminal.")
    environment = {**os.environ, "TERM": "dumb", "PYTHONUNBUFFERED": "1"}
    environment.pop("HUBSCOUT_TOKEN", None)  # the token of the page is none of the models' business
    with open(folder / LOG, "wb") as log:
        child = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )
    with _lock:
        _children[child.pid] = child
    psutil = _psutil()
    started = Started(
        pid=child.pid, created=psutil.Process(child.pid).create_time(), host=platform.node(), request=dict(request)
    )
    write_record(folder / NOTE, FORM, VERSION, asdict(started), indent=1)
    return started


def read_note(folder: Path) -> Started | None:
    """What a server noted in a run folder; None where no server started the run, or the note makes no sense."""
    try:
        record = in_version(parse_json(read_real(folder / NOTE), origin=NOTE), FORM, VERSION, origin=NOTE)
        return record_of(Started, record, NOTE)
    except RunError:
        return None


def read_log(folder: Path, last_bytes: int) -> str:
    """The end of what the process of a run printed."""
    return read_real(folder / LOG, last_bytes=last_bytes).decode("utf-8", "replace").strip()


def begins_at(pid: int, created: float) -> bool:
    """Whether the process `pid` is running and began at that time."""
    began = _began(pid)
    return began is not None and abs(began - created) < CLOSE_SECONDS


def was_running_at(pid: int, moment: float) -> bool:
    """Whether the process `pid` is running and was already running at that moment."""
    began = _began(pid)
    return began is not None and began <= moment + CLOSE_SECONDS


def _began(pid: int) -> float | None:
    with _lock:
        child = _children.get(pid)
        if child is not None and child.poll() is not None:  # reaps it: nobody else waits for our children
            del _children[pid]
            return None
    if pid <= 1:
        return None
    psutil = _psutil()
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except (psutil.Error, OverflowError):
        return None


def _is_run(pid: int) -> bool:
    """Whether a process is one of ours: a note in a folder that came from elsewhere must not stop anything else."""
    psutil = _psutil()
    try:
        words = psutil.Process(pid).cmdline()
    except psutil.Error:
        return False
    return (
        any(command in words for command in COMMANDS)
        and any("hubscout" in word for word in words)
        and os.getpgid(pid) == pid
    )


def _psutil() -> Any:
    return require("psutil", extra="serve", purpose="hubscout serve")
