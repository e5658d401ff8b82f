"""Memory that was freed: kept by the allocator while a model runs, and given back for work of another shape."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEEP_BYTES = 1 << 30
# What glibc's own adjustment arrives at in a process that frees large blocks.
_USUAL_TRIM_BYTES, _USUAL_MMAP_BYTES = 64 << 20, 32 << 20
_ENVIRONMENT = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD")
_lock = threading.Lock()
_users = 0


def release_memory(device: str) -> None:
    """Give what the allocator keeps back to the device, so that a smaller batch finds room."""
    import torch

    gc.collect()
    kind = device.partition(":")[0]
    if kind == "cuda":
        torch.cuda.empty_cache()
    elif kind == "mps":
        torch.mps.empty_cache()


@contextmanager
def memory_kept() -> Iterator[None]:
    """Let the allocator keep freed blocks of up to 1 GiB while the block runs, and give them back at its end.

    What was freed before, such as the file that a tokenizer was made of, goes back first: the blocks of a pass seldom
    fit where it was.

    A forward pass on the CPU allocates and frees each activation. By default blocks over 32 MiB come from the system,
    page by page and zeroed: for a ResNet-50 with 32 images a third of the time goes there. Does nothing without
    glibc, or where the user has set the allocator up.
    """
    library = _glibc()
    if library is None:
        yield
        return
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            library.malloc_trim(0)
            library.mallopt(_TRIM_THRESHOLD, _KEEP_BYTES)
            library.mallopt(_MMAP_THRESHOLD, _KEEP_BYTES)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                library.mallopt(_TRIM_THRESHOLD, _USUAL_TRIM_BYTES)
                library.mallopt(_MMAP_THRESHOLD, _USUAL_MMAP_BYTES)
                library.malloc_trim(0)


def give_back_freed() -> None:
    """Hand freed memory to the system that the allocator keeps between blocks in use, for work of another shape."""
    if (library := _glibc()) is not None:
        library.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return None
    if any(os.environ.get(name) for name in _ENVIRONMENT):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
