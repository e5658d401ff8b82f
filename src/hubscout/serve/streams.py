"""A run as it goes on: the lines that others are still writing, as server-sent events for programs and for our page."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.runs.files import finite, parse_lines
from hubscout.runs.run_folder import GROWING
from hubscout.serve.progress import Progress
from hubscout.serve.run_processes import read_log
from hubscout.serve.served_folder import NotHereError, open_real, real_files

if TYPE_CHECKING:
    from hubscout.serve.server import Site

MOST_BYTES = 1 << 20
HEAD_BYTES = 96
POLL_SECONDS = 0.3
CLOCK_SECONDS = 2.0
"""How often the panel of a run is sent again although nothing was written: it shows passing time."""
LINE_BYTES = 1000
"""Of the log, for its last line."""
SILENCE_SECONDS = 15.0
"""A comment goes out so often, so that a client that went away is noticed."""


@dataclass
class Follower:
    """Reads what was added to a file since the last look; knows when the file was begun anew."""

    path: Path
    offset: int = 0
    inode: int = 0
    head: bytes = b""

    def look(self) -> tuple[bool, list[dict[str, Any]]]:
        """Whether everything before is void, and the whole new lines. A line that is half written comes next time."""
        try:
            descriptor = open_real(self.path)
        except OSError:
            return self._again(), []
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            head = file.read(HEAD_BYTES)
            anew = False
            if self.offset and (
                status.st_ino != self.inode or status.st_size < self.offset or not head.startswith(self.head)
            ):
                anew = self._again()
            self.inode = status.st_ino
            file.seek(self.offset)
            data = file.read(MOST_BYTES)
        end = data.rfind(b"\n") + 1
        if end == 0 and len(data) == MOST_BYTES:
            end = len(data)  # no line of ours is a megabyte long: pass over it
        self.offset += end
        self.head = head[: min(self.offset, HEAD_BYTES)]
        return anew, parse_lines(data[:end])

    def _again(self) -> bool:
        again = self.offset > 0
        self.offset, self.head = 0, b""
        return again


@dataclass
class RunFollower:
    """Follows all the growing files of a run folder, also those that appear later."""

    folder: Path
    files: dict[str, Follower] = field(default_factory=dict)

    def look(self) -> tuple[bool, list[tuple[str, dict[str, Any]]]]:
        """Whether everything before is void, and new lines with the name of their file inside the run folder.

        Where one file was begun anew, all are read again from their beginnings.
        """
        for path in real_files(self.folder):
            if path.name in GROWING:
                self.files.setdefault(path.relative_to(self.folder).as_posix(), Follower(path))
        anew, lines = self._once()
        if anew:
            self.files = {name: Follower(follower.path) for name, follower in self.files.items()}
            _, lines = self._once()
        return anew, lines

    def _once(self) -> tuple[bool, list[tuple[str, dict[str, Any]]]]:
        anew, lines = False, []
        for name, follower in self.files.items():
            again, found = follower.look()
            anew = anew or again
            lines += [(name, line) for line in found]
        return anew, lines


def message(event: str, data: Any) -> str:
    """One event as it goes over the wire.

    >>> message("end", {"state": "finished"})
    'event: end\\ndata: {"state": "finished"}\\n\\n'
    """
    return f"event: {event}\ndata: {strict_json(data)}\n\n"


async def lines_stream(site: Site, name: str) -> AsyncIterator[str]:
    """Every line of the run, old ones first, until the run is over."""
    follower = RunFollower(site.library.find(name))
    spoken = time.monotonic()
    while not site.closing:
        # The state is asked for before the lines: what a run wrote last is then read even if it ended just now.
        state = await asyncio.to_thread(_state, site, name)
        anew, lines = await asyncio.to_thread(follower.look)
        if anew:
            yield message("reset", {})
        for file, line in lines:
            yield message("line", {"file": file, "line": line})
        if lines:
            spoken = time.monotonic()
            continue  # a long file comes in pieces
        if state != "running":
            yield message("end", {"state": state})
            return
        if time.monotonic() - spoken > SILENCE_SECONDS:
            spoken = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(POLL_SECONDS)


async def panel_stream(site: Site, name: str) -> AsyncIterator[str]:
    """The panel of the run's page, again whenever it changes, until the run is over."""
    follower = RunFollower(site.library.find(name))
    progress = Progress()
    shown, sent = "", 0.0
    while not site.closing:
        state = await asyncio.to_thread(_state, site, name)
        anew, lines = await asyncio.to_thread(follower.look)
        if anew:
            progress = Progress()
        for file, line in lines:
            progress.take(file, line)
        if lines or time.monotonic() - sent > CLOCK_SECONDS:
            progress.printed = read_log(follower.folder, LINE_BYTES).rpartition("\n")[2]
            markup = await asyncio.to_thread(progress.markup)
            if markup != shown:
                yield message("panel", {"html": str(markup), "status": progress.status})
                shown = markup
            else:
                yield ": still here\n\n"
            sent = time.monotonic()
        if state != "running" and not lines:
            yield message("end", {"state": state})
            return
        await asyncio.sleep(POLL_SECONDS)


def _state(site: Site, name: str) -> str:
    try:
        return site.library.summary(name).state
    except (NotHereError, OSError):
        return "gone"


def strict_json(value: Any) -> str:
    """JSON that every reader takes: Python's knows NaN and half characters, JSON does not."""
    return json.dumps(finite(value), allow_nan=False, default=str)
