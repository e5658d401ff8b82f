"""What `hubscout rank --workers N` takes to start: time and memory, with workers from one process and each by itself.

    python benchmarks/workers.py
    python benchmarks/workers.py --workers 2 4 --repeats 3

Networks of timm with random weights rank a few images, so that starting is most of it. The two ways take turns, and the
best of each figure counts. Memory is the largest sum over all processes of a command, where what several share counts
once (the system's PSS); on Linux.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

NETWORKS = (
    *("mobilenetv2_100", "mobilenetv2_110d", "mobilenetv3_small_100", "tf_efficientnet_lite0", "tf_efficientnet_lite1"),
    *("resnet10t", "resnet14t", "resnet18"),
)
COMMAND = """
import sys
from hubscout.engines.nursery import Nursery
if sys.argv.pop(1) == "alone":
    Nursery.suits = staticmethod(lambda count: False)
from hubscout.cli import main
main()
"""


def processes(first: int) -> Iterator[int]:
    """A process and all that came from it."""
    yield first
    with suppress(OSError):
        for task in Path(f"/proc/{first}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from processes(int(child))


def memory(first: int) -> int:
    """Bytes of a process and all that came from it."""
    total = 0
    for process in processes(first):
        with suppress(OSError, StopIteration):
            report = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            total += 1024 * int(next(line for line in report if line.startswith("Pss:")).split()[1])
    return total


def run(way: str, images: Path, workers: int) -> tuple[float, int]:
    models = [word for name in NETWORKS for word in ("-m", f"timm/{name}?pretrained=False")]
    given = [sys.executable, "-c", COMMAND, way, "rank", str(images), *models, "--workers", str(workers)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began, most = time.perf_counter(), 0
    command = subprocess.Popen([*given, "--no-cache", "--quiet"], stdout=subprocess.DEVNULL, env=environment)
    while command.poll() is None:
        most = max(most, memory(command.pid))
        time.sleep(0.1)
    if command.returncode:
        sys.exit(f"{way}, {workers} workers: failed")
    return time.perf_counter() - began, most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--samples", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        from extraction import write_jpegs

        write_jpegs(Path(temporary), options.samples)
        for workers in options.workers:
            found: dict[str, list[tuple[float, int]]] = {"together": [], "alone": []}
            for _ in range(options.repeats):
                for way, measured in found.items():
                    measured.append(run(way, Path(temporary), workers))
            for way, measured in found.items():
                seconds, most = (min(column) for column in zip(*measured, strict=True))
                print(f"{workers} workers, {way:9} {seconds:6.2f} s {most / (1 << 20):7.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
