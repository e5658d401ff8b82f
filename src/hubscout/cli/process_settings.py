"""What OpenMP and OpenBLAS read from the environment when they are loaded: set for commands, unless the user has."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path

PROCESSORS = Path("/proc/cpuinfo")
ZEN_5 = 26
"""The family of AMD's processors that OpenBLAS does not know before its release of autumn 2026, and those after it."""
SKYLAKE_X = {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}
"""The instructions of OpenBLAS's kernels of that name, which it takes for earlier processors of AMD that have them."""


def set_process(environment: MutableMapping[str, str] = os.environ, processors: Path = PROCESSORS) -> None:
    """Tell OpenMP how long threads spin, and OpenBLAS what the processor can do where it does not know.

    Threads of torch that wait for each other spin, by default for milliseconds, a hundred times in a pass. While other
    work has a core, the thread that is waited for cannot have that of the one that spins (benchmarks/busy_cores.py).

    The OpenBLAS of NumPy and SciPy takes a Zen 5 for a Haswell, and multiplies at 58% of the rate of its AVX-512
    kernels (its issue 6029).

    Args:
        environment: that is changed.
        processors: the file in which Linux describes them.

    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & environment.keys():
        environment["GOMP_SPINCOUNT"] = "3000"
    if "OPENBLAS_CORETYPE" not in environment and is_unknown_to_openblas(processors):
        environment["OPENBLAS_CORETYPE"] = "SkylakeX"


def is_unknown_to_openblas(processors: Path) -> bool:
    """Whether this is a processor of AMD with AVX-512 that OpenBLAS takes for one without."""
    facts: dict[str, str] = {}
    with suppress(OSError), processors.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if not line.strip():  # the first processor stands for all
                break
            name, _, value = line.partition(":")
            facts[name.strip()] = value.strip()
    family = facts.get("cpu family", "")
    is_new = facts.get("vendor_id") == "AuthenticAMD" and family.isdigit() and int(family) >= ZEN_5
    return is_new and set(facts.get("flags", "").split()) >= SKYLAKE_X
