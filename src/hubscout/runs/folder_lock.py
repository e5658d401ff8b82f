"""One process at a time writes a run folder, and others are told which."""

from __future__ import annotations

import errno
import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from hubscout.errors import RunError

LOCK = ".lock"
NOTE = ".holder.json"
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})


class FolderLock:
    """A lock of the operating system on a folder: it ends with its process, however that ends.

    On a folder that several machines share it holds between them where the file system passes locks on, as NFS does.
    A file system without locks is not guarded.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = FileLock(folder / LOCK, thread_local=False)

    def take(self) -> None:
        """Take the folder, which is made if need be; a `RunError` says who has it."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
            mine = {"pid": os.getpid(), "host": platform.node(), "since": datetime.now(UTC).isoformat("T", "seconds")}
            (self._folder / NOTE).write_text(json.dumps(mine), encoding="utf-8")
        except Timeout:
            raise RunError(
                f"{self._folder} is being written by {self._holder()}. Wait until it is done, stop it, or choose "
                "another folder."
            ) from None
        except NotImplementedError:
            return  # how filelock says that the file system has no locks
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise RunError(f"The run folder {self._folder} cannot be written: {error.strerror}.") from error

    def release(self) -> None:
        """Let the folder go, if it is held."""
        if self._lock.is_locked:
            (self._folder / NOTE).unlink(missing_ok=True)
            self._lock.release()

    def _holder(self) -> str:
        try:
            note = json.loads((self._folder / NOTE).read_text(encoding="utf-8"))
            return f"process {int(note['pid'])} on {note['host']}, since {note['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"
