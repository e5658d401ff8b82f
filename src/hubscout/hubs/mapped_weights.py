"""Weights that are a file in memory, page by page: those that nobody needs for now need not stay in the process."""

from __future__ import annotations

import ctypes
import mmap
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

_DONTNEED = 4
_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ (\d+) .*\n((?:\w+:.*\n)*)", re.MULTILINE)
"""A mapping as the system reports it: from, to, the number of its file or 0, and lines of facts."""
_OWN = re.compile(r"^(?:Anonymous|Private_Hugetlb|Swap): +[1-9]", re.MULTILINE)
"""Pages that are not the file's: in memory or, written to and then moved to disk, in swap."""


class MappedFiles:
    """The files that are in memory now and to which nothing was written, as transformers opens weights; on Linux.

    Make it right before its use: what is written to a tensor in between is lost when its pages are let go of.
    """

    def __init__(self) -> None:
        try:
            report = Path("/proc/self/smaps").read_text() if sys.platform == "linux" else ""
        except OSError:
            report = ""
        self._places = list(unchanged_files(report))
        self._advise = ctypes.CDLL(None).madvise if self._places else None

    def let_go(self, tensor: Tensor) -> None:
        """Take the pages of a tensor out of the process, if it is part of such a file.

        They stay in the system's cache and come back when they are used, at some milliseconds for 100 MB.
        """
        if self._advise is None or tensor.device.type != "cpu":
            return
        start = tensor.data_ptr()
        end = start + tensor.nbytes
        if any(first <= start and end <= last for first, last in self._places):
            start -= start % mmap.PAGESIZE
            self._advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DONTNEED)


def let_go_of_pages(module: nn.Module | None) -> None:
    """Take the pages of all weights out of the process that are a file's; see `MappedFiles`."""
    if module is not None:
        files = MappedFiles()
        for tensor in (*module.parameters(), *module.buffers()):
            files.let_go(tensor)


def unchanged_files(report: str) -> Iterator[tuple[int, int]]:
    """Where files are in memory of which the process has no page of its own, by the system's report."""
    for start, end, inode, facts in _MAPPING.findall(report):
        if inode != "0" and "Anonymous:" in facts and not _OWN.search(facts):
            yield int(start, 16), int(end, 16)
