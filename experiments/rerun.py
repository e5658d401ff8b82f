"""The raw results of every folder made again from nothing; `make experiments RERUN=1` runs this before the tables.

    python experiments/rerun.py --list                              # which commands, in which order
    python experiments/rerun.py --workers 12 --peer PEER --data DATA
    python experiments/rerun.py --only toy few_shot

The results of a folder are put aside in `before/` of the run's own cache (`--cache`), where features and journals of
trials are kept too. A run that was stopped goes on: folders whose results are aside already are not emptied again, and
every command leaves out what it finds done. PEER is a checkout of the paper's released LogME; DATA holds all of
CIFAR-10 in `cifar10/` and all of Fashion-MNIST in `fashion-mnist/`, as the shared folder's scripts make them. A folder
that needs one that is not given is left as it is, and said. Nearly everything wants a GPU,
and the whole takes hours on one.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Later folders read what earlier ones have made: features in the cache, weights, references.
COMMANDS: dict[str, tuple[str, ...]] = {
    "toy": ("experiments/toy.py",),
    "classification": (
        "experiments/references.py --family vision --workers {workers}"
        " --out experiments/classification/results/references.jsonl",
        "experiments/classification/run.py layers --workers {workers}",
        "experiments/classification/run.py scores --workers {workers}",
        "experiments/classification/run.py centred --limit 1500 --workers {workers}",
    ),
    "adaptation": (
        "experiments/adaptation/run.py tangents --workers {workers}",
        "experiments/adaptation/run.py layers --workers {workers}",
        "experiments/adaptation/run.py short --workers {workers}",
        "experiments/adaptation/run.py views --workers {workers}",
    ),
    "regression": (
        "experiments/references.py --family regression --workers {workers}"
        " --out experiments/regression/results/references.jsonl",
    ),
    "contrastive": (
        "experiments/contrastive/pretrain.py --data {data}/cifar10",
        "experiments/contrastive/run.py scores",
        "experiments/contrastive/run.py references --workers {workers}",
    ),
    "language": (
        "experiments/language/run.py",
        "experiments/references.py --family text --workers {workers}"
        " --out experiments/language/results/references.jsonl",
    ),
    "race": (
        "experiments/race/run.py arms --workers {workers} --out experiments/race/results",
        "experiments/race/run.py truth --workers {workers} --out experiments/race/results",
        "experiments/race/evidence.py",
        "experiments/race/run.py races --workers {workers} --out experiments/race/results",
    ),
    "few_shot": ("experiments/few_shot/run.py",),
    "text_layers": ("experiments/text_layers/run.py", "experiments/text_layers/run.py --cost"),
    "text_pooling": ("experiments/text_pooling/run.py", "experiments/text_pooling/run.py --table"),
    "left_out": ("experiments/left_out/run.py --limit 400", "experiments/left_out/mislabelled.py"),
    "head_retraining": ("experiments/head_retraining/run.py",),
    "default_tuning": ("experiments/default_tuning/run.py --workers {workers}",),
    "teaching": (
        "experiments/teaching/run.py --workers {workers}",
        "experiments/teaching/kinds.py --workers {workers}",
    ),
    "tuning": (
        "experiments/tuning/run.py rank",
        "experiments/tuning/run.py search --workers {workers}",
        "experiments/tuning/run.py second --workers {workers}",
        "experiments/tuning/run.py final --workers {workers}",
        "experiments/tuning/run.py studies --workers {workers}",
        "experiments/tuning/moving_norms.py",
        "experiments/tuning/mixtures.py",
    ),
    "efficiency": (
        "experiments/efficiency/run.py --device cuda",
        "experiments/efficiency/run.py --device cpu --peer {peer}",
    ),
    "convergence": (
        "experiments/convergence/run.py curves",
        "experiments/convergence/run.py condition --workers {workers}",
        "experiments/convergence/run.py corollaries --peer {peer}",
    ),
    "small_samples": (
        "experiments/small_samples/run.py --peer {peer} --workers {workers}",
        "experiments/small_samples/run.py --peer {peer} --workers {workers} --shuffled",
    ),
    "large_scale": (
        "experiments/large_scale/run.py cifar10 --data {data}/cifar10",
        "experiments/large_scale/run.py fashion-mnist --data {data}/fashion-mnist",
        "experiments/large_scale/run.py imagenet",
    ),
}
"""Folder → what makes its raw results, run in the repository's root. `same_architecture` has none of its own."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=COMMANDS, default=list(COMMANDS), metavar="FOLDER")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "hubscout-rerun")
    parser.add_argument("--list", action="store_true", help="say the commands and run none")
    arguments = parser.parse_args()
    places = {"peer": arguments.peer, "data": arguments.data}
    given = {name: shlex.quote(str(place.resolve())) if place else name.upper() for name, place in places.items()}
    failed = []
    for folder in arguments.only:
        commands = [command.format(workers=arguments.workers, **given) for command in COMMANDS[folder]]
        lacks = [f"--{name}" for name, place in places.items() if not place and "{" + name in str(COMMANDS[folder])]
        if arguments.list:
            print("\n".join(f"python {command}" for command in commands))
        elif lacks:
            print(f"{folder} is left as it is, for want of {' and '.join(lacks)}", flush=True)
        else:
            put_aside(folder, arguments.cache / "before" / folder)
            failed += [command for command in commands if not run(command, arguments.cache)]
    if failed:
        sys.exit("failed:\n" + "\n".join(failed))


def put_aside(folder: str, place: Path) -> None:
    """Move results away, once; a table is never made of old and new ones together."""
    results = HERE / folder / "results"
    if results.is_dir() and not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(results, place)
    if folder != "toy":
        results.mkdir(exist_ok=True)


def run(command: str, cache: Path) -> bool:
    """Whether the command went well."""
    print(f"python {command}", flush=True)
    environment = {**os.environ, "HUBSCOUT_EXPERIMENT_CACHE": str(cache)}
    return subprocess.run([sys.executable, *shlex.split(command)], cwd=HERE.parent, env=environment).returncode == 0


if __name__ == "__main__":
    main()
