"""Kill random processes during rank, cache and tune, over and over; what comes out must be what comes out undisturbed.

    make soak                                   # ten minutes
    python tests/soak/soak.py --minutes 3 --seed 7

Each round takes one activity, starts its command, kills (SIGKILL) the command or one of its processes after a random
time, starts the same command again, and so on, until it is left alone to finish. Then its result is compared with
that of a run that nobody disturbed: the same n, scores and jackknife values for rankings, the same metrics to the last
digit for tuning. Between two starts the cache is damaged now and then. The last round runs everything once more.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

NETWORKS = '''
import time
import torch
from torch import nn


class Small(nn.Module):
    """Convolutions with fixed weights; slow enough to be killed half way."""

    pretrained_cfg = {"input_size": (3, 32, 32), "mean": (0.5,) * 3, "std": (0.25,) * 3, "crop_pct": 1.0}

    def __init__(self, seed, width):
        super().__init__()
        torch.manual_seed(seed)
        self.num_features = 2 * width
        self.body = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU())

    def forward(self, images):
        if not self.training:
            time.sleep(0.04)
        return self.body(images).mean((2, 3))


def small(seed, width=16):
    return Small(seed, width)
'''  # noqa: E501

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "RAY_USAGE_STATS_ENABLED": "0"}


@dataclass
class Soak:
    """The folder of the test, its data and models, and what has happened so far."""

    folder: Path
    random: random.Random
    kills: int = 0
    damages: int = 0
    rounds: dict[str, int] = field(default_factory=dict)

    def prepare(self) -> None:
        """The handwritten digits of scikit-learn as image files, and a file of networks."""
        from PIL import Image
        from sklearn.datasets import load_digits

        digits = load_digits()
        for number, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
            place = self.folder / "digits" / str(label)
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray((pixels * 15).astype("uint8")).resize((32, 32)).convert("RGB").save(place / f"{number}.png")
        (self.folder / "networks.py").write_text(NETWORKS)

    @property
    def models(self) -> list[str]:
        return [f"python:{self.folder}/networks.py:small?seed={seed}" for seed in range(3)]

    def rank(self, out: Path, cache: Path, *more: str) -> list[str]:
        models = [part for model in self.models for part in ("-m", model)]
        return [
            "rank",
            str(self.folder / "digits"),
            *models,
            "--out",
            str(out),
            "--cache",
            str(cache),
            "--quiet",
            *more,
        ]

    def tune(self, out: Path) -> list[str]:
        target, teacher, _ = self.models
        settings = ("checkpoint_every_steps=5", "workers=0", "bootstrap_resamples=1")
        return [
            "tune",
            str(self.folder / "digits"),
            "--model",
            target,
            "--teachers",
            teacher,
            "--method",
            "b-tuning",
            "--epochs",
            "2",
            "--batch-size",
            "64",
            "--learning-rate",
            "0.001",
            "--trade-off",
            "0.1",
            "--out",
            str(out),
            "--quiet",
            "--json",
            *(part for setting in settings for part in ("--set", setting)),
        ]

    def run(self, command: list[str], most_seconds: float | None = None) -> subprocess.CompletedProcess[str] | None:
        """Run a command to its end; or, with `most_seconds`, kill it or a part of it before. None if it was killed."""
        full = [sys.executable, "-m", "hubscout", *command]
        process = subprocess.Popen(full, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            output, errors = process.communicate(timeout=most_seconds)
        except subprocess.TimeoutExpired:
            self._kill_one(process)
            # A part may be gone and the command goes on without it; it has as long again, and is killed then.
            try:
                output, errors = process.communicate(timeout=most_seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                self.kills += 1
                process.communicate()
                return None
            return None if process.returncode < 0 else self._checked(process, command, output, errors)
        return self._checked(process, command, output, errors)

    def _checked(
        self, process: subprocess.Popen[str], command: list[str], output: str, errors: str
    ) -> subprocess.CompletedProcess[str]:
        if process.returncode != 0:
            raise SystemExit(f"FAILED: {' '.join(command)} ended with {process.returncode}\n{errors[-3000:]}")
        return subprocess.CompletedProcess(command, 0, output, errors)

    def _kill_one(self, process: subprocess.Popen[str]) -> None:
        """The command itself, or one of the processes that work for it."""
        try:
            family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
            # Ray's own servers are not ours to promise for; its workers are.
            ours = [one for one in family if one.pid == process.pid or "ray::" in " ".join(one.cmdline())]
            victim = self.random.choice(ours)
            victim.send_signal(signal.SIGKILL)
            self.kills += 1
        except psutil.NoSuchProcess:
            pass

    def damage(self, cache: Path) -> None:
        """Cut a file of the cache short, or change a byte of it."""
        files = sorted(path for path in cache.rglob("*") if path.is_file() and ".locks" not in path.parts)
        if not files or self.random.random() < 0.5:
            return
        victim = self.random.choice(files)
        content = bytearray(victim.read_bytes())
        if not content:
            return
        if self.random.random() < 0.5:
            del content[self.random.randrange(len(content)) :]
        else:
            content[self.random.randrange(len(content))] ^= 0xFF
        victim.write_bytes(bytes(content))
        self.damages += 1

    def until_done(self, command: list[str], seconds: float, between: Callable[[], None]) -> Any:
        """Start, kill, start again; the last time it is left alone."""
        for _ in range(self.random.randint(1, 4)):
            done = self.run(command, most_seconds=self.random.uniform(0.5, seconds))
            if done is not None:
                return done
            between()
        return self.run(command)


def facts(out: Path) -> dict[str, Any]:
    """What a ranking must agree on."""
    content = json.loads((out / "ranking.json").read_text())
    assert content["complete"], "the ranking is not complete"
    assert not content["failures"], content["failures"]
    wanted = ("n", "score", "block_scores", "block_sizes", "per_target")
    return {row["identifier"]: [row[name] for name in wanted] for row in content["rows"]}


def agrees(found: Any, expected: Any) -> bool:
    """Equal, numbers to twelve digits: sums may be taken in pieces of another size."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(agrees(found[name], expected[name]) for name in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(agrees, found, expected))
    return abs(found - expected) <= 1e-12 * max(1.0, abs(expected))


def metrics(output: str) -> Any:
    record = json.loads(output)
    return {name: record[name] for name in ("metrics",) if name in record} or record


def activity(soak: Soak, name: str, number: int, expected: dict[str, Any]) -> None:
    """One round."""
    out, cache = soak.folder / f"{name}-{number}", soak.folder / f"{name}-{number}-cache"
    more = ("--engine", "ray", "--address", "local", "--time-limit", "2min") if name == "ray" else ()
    if name == "tune":
        done = soak.until_done(soak.tune(out), 14.0, lambda: None)
        found, wanted = metrics(done.stdout), expected["tune"]
        same = found == wanted
    else:
        if name == "cache":  # a cache that was filled, then damaged, under a new ranking
            cache = soak.folder / "common-cache"
            soak.damage(cache)
        seconds = 25.0 if name == "ray" else 8.0
        soak.until_done(soak.rank(out, cache, *more), seconds, lambda: soak.damage(cache))
        found, wanted = facts(out), expected["rank"]
        same = agrees(found, wanted)
    if not same:
        raise SystemExit(f"FAILED: {name}, round {number}, gave\n{found}\nundisturbed it is\n{wanted}")
    soak.rounds[name] = soak.rounds.get(name, 0) + 1
    shutil.rmtree(out, ignore_errors=True)
    if name != "cache":
        shutil.rmtree(cache, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--activities", default="rank,cache,tune,ray")
    arguments = parser.parse_args()
    names = arguments.activities.split(",")
    with tempfile.TemporaryDirectory(prefix="hubscout-soak-") as folder:
        soak = Soak(Path(folder), random.Random(arguments.seed))
        soak.prepare()
        soak.run(soak.rank(soak.folder / "undisturbed", soak.folder / "undisturbed-cache"))
        expected: dict[str, Any] = {"rank": facts(soak.folder / "undisturbed")}
        if "tune" in names:
            undisturbed = soak.run(soak.tune(soak.folder / "undisturbed-tune"))
            assert undisturbed is not None
            expected["tune"] = metrics(undisturbed.stdout)
        end = time.monotonic() + 60 * arguments.minutes
        number = 0
        while time.monotonic() < end:
            name = names[number % len(names)]
            began = time.monotonic()
            activity(soak, name, number, expected)
            seconds = time.monotonic() - began
            print(
                f"{name:6} agrees after {seconds:5.1f} s; {soak.kills} kills, {soak.damages} damaged files", flush=True
            )
            number += 1
        soak.run(soak.rank(soak.folder / "last", soak.folder / "common-cache"))
        if not agrees(facts(soak.folder / "last"), expected["rank"]):
            raise SystemExit("FAILED: the last ranking, on the cache that lived through it all, differs")
        rounds = ", ".join(f"{count} of {name}" for name, count in soak.rounds.items())
        print(f"passed: rounds {rounds}; {soak.kills} kills, {soak.damages} damaged cache files; the last run agrees")


if __name__ == "__main__":
    main()
