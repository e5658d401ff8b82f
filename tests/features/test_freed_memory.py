from __future__ import annotations

import platform
from pathlib import Path

import pytest

from hubscout.features.freed_memory import give_back_freed


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="an allocator of another kind")
def test_memory_that_is_free_between_blocks_in_use_goes_back_to_the_system() -> None:
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    blocks = [bytearray(b"x" * (1 << 16)) for _ in range(1024)]
    kept = blocks[::2]
    before = resident_bytes()
    del blocks
    give_back_freed()
    assert before - resident_bytes() > 16 << 20  # of 32 MiB
    assert all(block[-1] == ord("x") for block in kept)
