"""Weights that are a file in memory, page by page: those that nobody needs for now need not stay in the process."""

from __future__ import annotations

import ctypes
import re
import sys
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

_DONTNEED = 4
_FILE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ [1-9]", re.MULTILINE)
"""A mapping of a file in the short report: from and to."""
_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ (\d+) .*\n((?:\w+:.*\n)*)", re.MULTILINE)
"""A mapping as the system reports it: from, to, the number of its file or 0, and lines of facts."""
_OWN = re.compile(r"^(?:Anonymous|Private_Hugetlb|Swap): +[1-9]", re.MULTILINE)
"""Pages that are not the file's: in memory or, written to and then moved to disk, in swap."""


def let_go_of_pages(module: nn.Module | None) -> None:
    """Take the pages of weights out of the process that are a file's, as transformers opens them; on Linux.

    They stay in the system's cache and come back when they are used, at some milliseconds for 100 MB. A digest of a
    text encoder looks at all of its table of words, half of a small one, and a pass at a few rows of it. A mapping of
    which any page was written to is left alone.
    """
    if module is None or sys.platform != "linux":
        return
    tensors = (*module.parameters(), *module.buffers())
    places = sorted({tensor.data_ptr() for tensor in tensors if tensor.device.type == "cpu"})

    def holds_weights(start: int, end: int) -> bool:
        position = bisect_left(places, start)
        return position < len(places) and places[position] < end

    try:
        # For the long report the system looks at every page of the process: some 20 ms for one that has a gigabyte.
        files = _FILE.findall(Path("/proc/self/maps").read_text())
        if not any(holds_weights(int(start, 16), int(end, 16)) for start, end in files):
            return
        report = Path("/proc/self/smaps").read_text()
    except OSError:
        return
    advise = ctypes.CDLL(None).madvise
    for start, end in unchanged_files(report):
        if holds_weights(start, end):
            advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DONTNEED)


def unchanged_files(report: str) -> Iterator[tuple[int, int]]:
    """Where files are in memory of which the process has no page of its own, by the system's report."""
    for start, end, inode, facts in _MAPPING.findall(report):
        if inode != "0" and "Anonymous:" in facts and not _OWN.search(facts):
            yield int(start, 16), int(end, 16)
