"""Weights that are a file in memory, page by page: those that nobody needs for now need not stay in the process."""

from __future__ import annotations

import ctypes
import mmap
import re
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

_DONTNEED = 4
_FILE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ [1-9]", re.MULTILINE)
"""A mapping of a file in the short report: from and to."""
_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ (\d+) .*\n((?:\w+:.*\n)*)", re.MULTILINE)
"""A mapping as the system reports it: from, to, the number of its file or 0, and lines of facts."""
_OWN = re.compile(r"^(?:Anonymous|Private_Hugetlb|Swap): +[1-9]", re.MULTILINE)
"""Pages that are not the file's: in memory or, written to and then moved to disk, in swap."""


class MappedFiles:
    """The files in memory that tensors are parts of and to which nothing was written; on Linux.

    Make it right before its use: what is written to a tensor in between is lost when its pages are let go of.
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._places: list[tuple[int, int]] = []
        starts = sorted({tensor.data_ptr() for tensor in tensors if tensor.device.type == "cpu"})

        def holds_any(start: int, end: int) -> bool:
            position = bisect_left(starts, start)
            return position < len(starts) and starts[position] < end

        if sys.platform != "linux":
            return
        with suppress(OSError):
            # For the long report the system looks at every page of the process: some 20 ms for one of a gigabyte.
            files = _FILE.findall(Path("/proc/self/maps").read_text())
            if any(holds_any(int(start, 16), int(end, 16)) for start, end in files):
                report = Path("/proc/self/smaps").read_text()
                self._places = [place for place in unchanged_files(report) if holds_any(*place)]
        self._advise = ctypes.CDLL(None).madvise

    def let_go(self, tensor: Tensor) -> None:
        """Take the pages of a tensor out of the process, if it is part of such a file.

        They stay in the system's cache and come back when they are used, at some milliseconds for 100 MB.
        """
        if not self._places or tensor.device.type != "cpu":
            return
        start = tensor.data_ptr()
        end = start + tensor.nbytes
        if any(first <= start and end <= last for first, last in self._places):
            start -= start % mmap.PAGESIZE
            self._advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DONTNEED)


def let_go_of_pages(module: nn.Module | None) -> None:
    """Take the pages of all weights out of the process that are a file's; see `MappedFiles`."""
    if module is not None:
        tensors = (*module.parameters(), *module.buffers())
        files = MappedFiles(tensors)
        for tensor in tensors:
            files.let_go(tensor)


def unchanged_files(report: str) -> Iterator[tuple[int, int]]:
    """Where files are in memory of which the process has no page of its own, by the system's report."""
    for start, end, inode, facts in _MAPPING.findall(report):
        if inode != "0" and "Anonymous:" in facts and not _OWN.search(facts):
            yield int(start, 16), int(end, 16)
