"""What `hubscout rank` does before the first batch of the first model, and which libraries it imports for that.

    python benchmarks/startup.py
    python benchmarks/startup.py --data flowers/ --model timm/resnet50.a1_in1k --repeats 5 --json

Each repeat is a process of its own that imports the command, opens the data and ranks one model; the best of each
figure counts. Modules are compiled once and read from there, as those of an installed package are, also where the
environment says otherwise. Processor seconds beside wall seconds tell what a machine that is busy with other things
hides. The libraries are those of one more run with `-X importtime`: seconds are spent in a library's own modules,
without those that it imports, and are larger than without the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

REASONS = {
    "torch": "runs the network",
    "timm": "builds the network",
    "torchvision": "timm imports it",
    "sympy": "torch imports it to count operations",
    "mpmath": "sympy imports it",
    "numpy": "arrays",
    "scipy": "error bars and P(best)",
    "huggingface_hub": "timm imports it",
    "transformers": "builds the encoder and its tokenizer",
    "PIL": "decodes images",
    "rich": "tables and progress",
    "typer": "the command line",
    "pydantic": "typer's",
    "hubscout": "this",
}
STEPS = ("command imported", "data opened", "model opened", "first batch through", "ranking made")
CHILD = """
import json, sys, time
clock = lambda: [time.perf_counter() - began, time.process_time()]
began = time.perf_counter()
from hubscout.cli.app import app
from hubscout.cli import rank as command
from hubscout.light_imports import import_lightly
import_lightly()  # as the command does
from hubscout.ranking import rank
times = {"command imported": clock()}
from hubscout.runs.events import Advanced, Started
from hubscout.tasks import open_task
task = open_task(sys.argv[1])
task = task.subset(min(64, len(task.train)), seed=0)
times["data opened"] = clock()
def hear(event):
    if isinstance(event, Started):
        times.setdefault("model opened", clock())
    if isinstance(event, Advanced):
        times.setdefault("first batch through", clock())
ranking = rank(task, [sys.argv[2]], cache=False, measure_latency=False, observer=hear)
assert len(ranking) == 1, ranking.failures
times["ranking made"] = clock()
print(json.dumps({"times": times, "modules": sorted({name.partition(".")[0] for name in sys.modules})}))
"""


def run_child(data: str, model: str, *flags: str) -> tuple[dict[str, Any], str]:
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, *flags, "-c", CHILD, data, model]
    done = subprocess.run(command, capture_output=True, text=True, env=compiled)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.strip().splitlines()[-1]), done.stderr


def own_seconds(report: str) -> Counter[str]:
    """Seconds in the modules of each library, out of what `-X importtime` prints."""
    found: Counter[str] = Counter()
    for own, name in re.findall(r"^import time:\s+(\d+) \|\s+\d+ \| *(\S+)", report, re.MULTILINE):
        found[name.partition(".")[0]] += int(own) / 1e6
    return found


def measure(data: str, model: str, repeats: int) -> dict[str, Any]:
    run_child(data, model)  # warms the caches of the disk
    runs = [run_child(data, model)[0]["times"] for _ in range(repeats)]
    last, report = run_child(data, model, "-X", "importtime")
    return {
        "model": model,
        "seconds": {step: min(run[step][0] for run in runs) for step in STEPS},
        "cpu_seconds": {step: min(run[step][1] for run in runs) for step in STEPS},
        "imports": dict(own_seconds(report).most_common(16)),
        "modules": last["modules"],
    }


def lines(found: dict[str, Any]) -> list[str]:
    text = [f"{found['model']}, since the start of the process:", f"{'':24}{'processor s':>12}{'wall s':>9}"]
    text += [f"{step:24}{found['cpu_seconds'][step]:12.2f}{found['seconds'][step]:9.2f}" for step in STEPS]
    text += ["", "imported, seconds in the modules of each:"]
    text += [f"{name:24}{seconds:12.2f}   {REASONS.get(name, '')}" for name, seconds in found["imports"].items()]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="an image folder; a few images of our own if not given")
    parser.add_argument("--model", default="pypi/efficientnet-lite0")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        if options.data is None:
            from extraction import write_jpegs

            write_jpegs(Path(temporary), 110)
        found = measure(options.data or temporary, options.model, options.repeats)
    print(json.dumps(found, indent=1) if options.json else "\n".join(lines(found)))


if __name__ == "__main__":
    main()
