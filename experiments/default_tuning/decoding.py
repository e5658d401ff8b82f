"""What decoding costs a run of `tune`: each time, once, and once with the crops on the device.

    python experiments/default_tuning/decoding.py                          # 20 passes over Pets, on a GPU
    python experiments/default_tuning/decoding.py --rows 300 --epochs 5    # on a CPU

Seconds by the clock and of the processors, worker processes included. The first two see the same pixels and must end
alike.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import shared_hub  # noqa: E402
from data_sets import SETS  # noqa: E402

WAYS = {"each time": False, "once": None, "once, on the device": True}


def processor_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    from hubscout.tuning import tune

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mobilenetv2_coral_in1k")
    parser.add_argument("--set", default="pets")
    parser.add_argument("--pixels", type=int, default=96)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument(
        "--rows", type=int, default=None, help="At most so many of train, a third of that of the others."
    )
    parser.add_argument("--ways", nargs="*", default=list(WAYS))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for way in given.ways:
        task = SETS[given.set]()  # opened anew: nothing is known of it
        if given.rows is not None:
            few = {"train": given.rows}
            parts = {
                name: split.take(np.arange(min(few.get(name, given.rows // 3), len(split))))
                for name, split in task.splits.items()
            }
            task = replace(task, splits=parts, source=None)
        began, before = time.perf_counter(), processor_seconds()
        tuned = tune(
            task,
            shared_hub.identifier(given.model, given.pixels),
            method="fine-tune",
            epochs=given.epochs,
            linear_probe=True,
            data_in_memory=WAYS[way],
            bootstrap_resamples=2,
            progress=False,
        )
        print(
            f"decoded {way}: {time.perf_counter() - began:.1f} s, {processor_seconds() - before:.1f} of processors, "
            f"test {100 * tuned.metric('test').value:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
