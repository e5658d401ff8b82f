"""Files that are there as a whole or not at all, and why one could not be written."""

from __future__ import annotations

import errno
import os
import re
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TEMPORARY = ".tmp"
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def write_atomically(path: Path, content: str | bytes | Callable[[Path], object]) -> None:
    """Give `path` new content: readers see the old file or the new one, never a part.

    Args:
        path: the file; its folder is made if need be.
        content: a text, bytes, or a function that fills the temporary file whose path it gets.

    Raises:
        OSError: as the system raised it. The old file is as it was, and no temporary file is left.

    """
    with temporary_file(path) as temporary:
        if isinstance(content, str):
            temporary.write_text(content, encoding="utf-8")
        elif isinstance(content, bytes):
            temporary.write_bytes(content)
        else:
            content(temporary)
        os.replace(temporary, path)


@contextmanager
def temporary_file(path: Path) -> Iterator[Path]:
    """The path of a hidden file beside `path`, to be filled and renamed; it is removed where that does not happen."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}{TEMPORARY}")
    try:
        yield temporary
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Keep the first Ctrl-C until the end of the block, so that what it saves is whole; a second one ends it at once.

    A Ctrl-C in the middle of a library's first import would leave that library broken, and with it every later try
    to save. Signals come to the main thread alone: elsewhere there is nothing to keep.
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


def why_not_written(error: BaseException) -> str:
    """The reason of a failed write in a few words; a full disk is called that, whichever library met it.

    >>> why_not_written(OSError(errno.ENOSPC, "No space left on device"))
    'no room on the disk (No space left on device)'
    >>> why_not_written(PermissionError(errno.EACCES, "Permission denied"))
    'Permission denied'
    """
    if is_full(error):
        return f"no room on the disk ({os.strerror(_number(error))})"
    told = error.strerror if isinstance(error, OSError) else None
    return told or " ".join(str(error).split()) or type(error).__name__


def is_full(error: BaseException) -> bool:
    """Whether a write failed because the disk, a quota or the largest file size is exhausted."""
    return _number(error) in _NO_ROOM


def _number(error: BaseException | None) -> int:
    """The system's number of an error; torch hides it in the context, safetensors in the text."""
    while error is not None:
        told = getattr(error, "errno", None) or next(iter(re.findall(r"os error (\d+)", str(error))), None)
        if told is not None:
            return int(told)
        error = error.__context__
    return 0
