"""Every architecture of timm that fits into memory, with random weights, against its own features.

    make sweep                                         # all: some hours on one core
    python tests/sweep/sweep.py --out sweep.jsonl      # goes on where it was stopped
    python tests/sweep/sweep.py --one-per-family

One line of JSON per architecture goes to `--out`. The smallest of each family come first. Architectures run in
processes of their own, a few each, so that one that is killed loses itself alone. The exit status is 1 if anything
failed that `known.py` does not list.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

MOST_PARAMS = 375_000_000
"""1.5 GB in float32."""
AT_ONCE = 12
"""Architectures per process."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("sweep.jsonl"))
    parser.add_argument("--one-per-family", action="store_true")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--names", nargs="*", help="only these; run in this process")
    arguments = parser.parse_args()
    if arguments.names:
        return run(arguments.names, arguments.out)
    end = time.monotonic() + 60 * arguments.minutes
    listed = arguments.out.with_suffix(".plan.json")
    if not listed.is_file():
        listed.write_text(json.dumps(plan()))
    names = json.loads(listed.read_text())["families" if arguments.one_per_family else "all"]
    while time.monotonic() < end:
        done = {line["name"] for line in read(arguments.out)}
        left = [name for name in names if name not in done][:AT_ONCE]
        if not left:
            break
        command = [sys.executable, __file__, "--out", str(arguments.out), "--names", *left]
        finished = subprocess.run(command, env={**os.environ, "HF_HUB_OFFLINE": "1"}, check=False)
        done = {line["name"] for line in read(arguments.out)}
        if finished.returncode and (lost := [name for name in left if name not in done]):
            write(arguments.out, {"name": lost[0], "error": f"the process ended with {finished.returncode}"})
    return report(read(arguments.out), len(names))


def plan() -> dict[str, list[str]]:
    """The smallest of each family first, then the others from small to large. Takes two minutes, and so is kept."""
    import timm_models

    sizes = {name: timm_models.count_params(name) for name in timm_models.timm.list_models()}
    fit = [name for name, params in sizes.items() if params is None or params <= MOST_PARAMS]
    fit.sort(key=lambda name: (sizes[name] or 0) * timm_models.input_size(name) ** 2)
    first = list({timm_models.family(name): name for name in reversed(fit)}.values())
    print(f"{len(sizes)} architectures, {len(fit)} fit into memory, {len(first)} families", flush=True)
    first.sort(key=fit.index)
    return {"families": first, "all": first + [name for name in fit if name not in set(first)]}


def run(names: list[str], out: Path) -> int:
    import timm_models

    for name in names:
        began = time.monotonic()
        try:
            line = timm_models.check(name)
        except Exception as error:
            line = {"name": name, "error": f"{type(error).__name__}: {error}"[:500]}
        write(out, {"family": timm_models.family(name), **line, "seconds": round(time.monotonic() - began, 2)})
    return 0


def report(lines: list[dict], planned: int) -> int:
    import known

    failed = {line["name"]: line.get("error") or "; ".join(line["wrong"]) for line in lines if not passed(line)}
    uncounted = [line["name"] for line in lines if "error" not in line and line["flops"] is None]
    print(f"{len(lines)} of {planned} tried, {len(lines) - len(failed)} passed, without FLOPs: {uncounted or 'none'}")
    for reason, count in Counter(failed.values()).most_common():
        print(f"{count:5d}  {reason}")
    unknown = {name: reason for name, reason in failed.items() if not known.is_known(name)}
    for name, reason in unknown.items():
        print(f"UNKNOWN  {name}: {reason}")
    return int(bool(unknown))


def passed(line: dict) -> bool:
    return "error" not in line and not line["wrong"]


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def write(path: Path, line: dict) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
