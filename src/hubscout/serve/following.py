"""Lines of files that others are still writing."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hubscout.runs.files import parse_lines
from hubscout.runs.run_folder import GROWING
from hubscout.serve.served_folder import open_real, real_files

MOST_BYTES = 1 << 20
HEAD_BYTES = 96


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
