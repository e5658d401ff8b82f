"""Every architecture of timm that fits into memory, with random weights, against its own features.

    make sweep                                         # all: some hours on one core, minutes on a GPU
    python tests/sweep/sweep.py --out sweep.jsonl      # goes on where it was stopped
    python tests/sweep/sweep.py --one-per-family

One line of JSON per architecture goes to `--out`. The smallest of each family come first. Architectures run in
processes of their own, a few each, so that one that is killed loses itself alone. The exit status is 1 if anything
failed that `known.py` does not list, or works that it lists.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path

MOST_PARAMS = 375_000_000
"""1.5 GB in float32."""
AT_ONCE = 12
"""Architectures per process."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("sweep.jsonl"))
    parser.add_argument("--one-per-family", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--names", nargs="*", help="only these; run in this process")
    arguments = parser.parse_args()
    if arguments.names:
        return run(arguments.names, arguments.out)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    listed = arguments.out.with_suffix(".plan.json")
    if not listed.is_file():
        listed.write_text(json.dumps(plan()))
    names = json.loads(listed.read_text())["families" if arguments.one_per_family else "all"]
    left = [name for name in names if name not in names_done(arguments.out)]
    end = time.monotonic() + 60 * arguments.minutes

    def run_apart(chunk: list[str]) -> None:
        """In a process of its own, and in another one what is left when that one was killed."""
        while chunk and time.monotonic() < end:
            command = [sys.executable, "-W", "ignore", __file__, "--out", str(arguments.out), "--names", *chunk]
            status = subprocess.run(command, env={**os.environ, "HF_HUB_OFFLINE": "1"}, check=False).returncode
            chunk = [name for name in chunk if name not in names_done(arguments.out)]
            if chunk and status:
                write(arguments.out, {"name": chunk.pop(0), "error": f"the process ended with {status}"})

    with ThreadPoolExecutor(arguments.workers) as pool:
        list(pool.map(run_apart, [left[start : start + AT_ONCE] for start in range(0, len(left), AT_ONCE)]))
    return report(read(arguments.out), len(names))


def plan() -> dict[str, list[str]]:
    """A small one of each family first, then the others from small to large."""
    import timm_models

    names = sorted(timm_models.timm.list_models(), key=timm_models.guess_size)
    first = list({timm_models.family(name): name for name in reversed(names)}.values())
    first.sort(key=names.index)
    print(f"{len(names)} architectures, {len(first)} families", flush=True)
    return {"families": first, "all": first + [name for name in names if name not in set(first)]}


def run(names: list[str], out: Path) -> int:
    import timm_models

    for name in names:
        began = time.monotonic()
        try:
            params = timm_models.count_params(name)
            if params and params > MOST_PARAMS:
                line = {"name": name, "params": params, "too_large": True}
            else:
                line = timm_models.check(name)
        except Exception as error:
            line = {"name": name, "error": f"{type(error).__name__}: {error}"[:500]}
        write(out, {"family": timm_models.family(name), **line, "seconds": round(time.monotonic() - began, 2)})
    return 0


def report(lines: list[dict], planned: int) -> int:
    import known

    lines = [line for line in lines if "too_large" not in line]
    failed = {line["name"]: line.get("error") or "; ".join(line["wrong"]) for line in lines if not passed(line)}
    uncounted = [line["name"] for line in lines if "error" not in line and line["flops"] is None]
    print(f"{planned} architectures, {len(lines)} fit into memory and were tried, {len(lines) - len(failed)} passed.")
    print(f"FLOPs could not be counted for: {', '.join(uncounted) or 'none'}.")
    for reason, count in Counter(failed.values()).most_common():
        print(f"{count:5d}  {reason}")
    gaps = {
        line["name"]: next((gap for pattern, gap in known.TIMM.items() if fnmatch(line["name"], pattern)), None)
        for line in lines
    }
    unknown = [name for name, what in failed.items() if not (gaps[name] and gaps[name].symptom in what)]
    working = [line["name"] for line in lines if gaps[line["name"]] and passed(line)]
    for name in unknown:
        print(f"UNKNOWN  {name}: {failed[name]}")
    for name in working:
        print(f"WORKS  {name}, though known.py says that it does not")
    return int(bool(unknown or working))


def passed(line: dict) -> bool:
    return "error" not in line and not line["wrong"]


def names_done(path: Path) -> set[str]:
    return {line["name"] for line in read(path)}


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def write(path: Path, line: dict) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
