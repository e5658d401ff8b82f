"""What passes and scores take while other work has a core, by how long threads spin where they wait for each other.

    python benchmarks/busy_cores.py
    python benchmarks/busy_cores.py --spins default 1000,14 3000,14 --repeats 3

Each line is a process of its own with as many threads as there are cores; "busy" is beside an endless loop in another
process. Milliseconds, medians, of an EfficientNet-Lite0 at 96 pixels, and of the score of 2,000 × 1,280 features and 37
classes; the best process of the repeats, and the worst. "default" leaves the choice to the libraries; otherwise the
first number is GOMP_SPINCOUNT, of GNU's OpenMP, which torch has, and the second OPENBLAS_THREAD_TIMEOUT, of NumPy's and
SciPy's OpenBLAS. The commands of hubscout take 3000,14.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

MODEL = "pypi/efficientnet-lite0?input_size=96"


def measured() -> dict[str, float]:
    """In a process of its own: one image, 16 images, and a step of training on 16."""
    import numpy as np
    import torch

    from hubscout.evidence import logme
    from hubscout.hubs import load

    torch.set_num_threads(os.cpu_count() or 1)
    module = load(MODEL).module
    assert module is not None
    one, some = (torch.randn(count, 3, 96, 96) for count in (1, 16))

    def milliseconds(work: Callable[[], object], count: int) -> float:
        times = []
        for _ in range(count + 1):
            began = time.perf_counter()
            work()
            times.append(1000 * (time.perf_counter() - began))
        return median(times[1:])

    module.eval()
    with torch.inference_mode():
        found = {"one": milliseconds(lambda: module(one), 20), "sixteen": milliseconds(lambda: module(some), 8)}
    module.train()
    found["step"] = milliseconds(lambda: module(some).sum().backward(), 5)
    generator = np.random.default_rng(0)
    features, labels = generator.normal(size=(2000, 1280)).astype(np.float32), generator.integers(0, 37, 2000)
    return {**found, "score": milliseconds(lambda: logme(features, labels), 5)}


def in_process(spins: str) -> dict[str, float]:
    """The same, with these numbers."""
    names = ("GOMP_SPINCOUNT", "OPENBLAS_THREAD_TIMEOUT")
    unset = (*names, "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_WAIT_POLICY")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {} if spins == "default" else dict(zip(names, spins.split(","), strict=True))
    command = [sys.executable, __file__, "--child"]
    return json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spins", nargs="+", default=["default", "3000,14"])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(measured()))
        return
    for name, neighbours in (("quiet", 0), ("busy", 1)):
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(neighbours)]
        try:
            rounds = [{spins: in_process(spins) for spins in given.spins} for _ in range(given.repeats)]
        finally:
            for other in others:
                other.kill()
        for spins in given.spins:
            best, worst = (
                {part: end(one[spins][part] for one in rounds) for part in rounds[0][spins]} for end in (min, max)
            )
            told = ", ".join(f"{part} {best[part]:.0f} to {worst[part]:.0f}" for part in best)
            print(f"{name:6}{spins:>8}   {told}", flush=True)


if __name__ == "__main__":
    main()
