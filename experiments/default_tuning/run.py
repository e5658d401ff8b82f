"""Does fine-tuning without a single knob diverge, or end below the linear probe that it starts from? And B-Tuning?

    python experiments/default_tuning/run.py --workers 16 --variants defaults  # goes on where it stopped
    python experiments/default_tuning/run.py --workers 16 --steps 300 --seconds 200
    python experiments/default_tuning/run.py --pixels 64 --rows 500 --steps 100 --models cifar10_resnet20 --seeds 0 1
    python experiments/default_tuning/table.py                                 # table.md

Seventeen vision models on five sets and four text encoders on four: each with the defaults of fine-tuning, which was
what `tune` did by itself at the time, and with what could take their place. `--steps 0`, which is what this is without
`--steps`, is as long as `tune` is by itself: 20 passes over the train split. Every finished run is a line of JSON; what
has a line is not run again.

"b-tuning without teachers" follows the labels through heads that have not seen the sample. In `experiments/teaching` it
is clearly over fine-tuning in ten of eleven cases at searched rates, in five of nine without knobs, and behind in none.
From before its runs here: it takes the place of fine-tuning as the default for classes if no run of it diverges, its
mean of test is above that of the runs of "defaults" that are recorded (the same cells, seed 0) on each set, and not
more cells lose two points than gain two. It did, on the five sets that there was time for; of a sixth, Fashion-MNIST,
one network was run later, and is behind. That many of the recorded runs had an older search for a rate was not thought
of; `table.md` has the pairs that searched alike.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import shared_hub  # noqa: E402
from data_sets import CLASSIFICATION, open_set, smaller  # noqa: E402
from pool import run_jobs  # noqa: E402

VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},  # of fine-tuning
    "moving norm statistics": {"frozen_norm_statistics": False},
    "frozen norm statistics": {"frozen_norm_statistics": True},
    "head from the posterior": {"frozen_norm_statistics": False, "head_init": "posterior"},
    "both": {"frozen_norm_statistics": True, "head_init": "posterior"},
    "b-tuning without teachers": {"method": "b-tuning"},
}
TEXT_SETS = ("sst2", "trec", "agnews", "cr")
NO_NORMS = frozenset({"squeezenet1_1_in1k", "alexnet_features_in1k", "vgg16_features_in1k", *shared_hub.TEXT})
"""Without batch norms: their statistics cannot be frozen."""


@dataclass(frozen=True)
class Cell:
    """One run."""

    model: str
    set_name: str
    variant: str
    seed: int
    steps: int
    """0: as many as `tune` has by itself."""
    pixels: int | None
    rows: int | None

    @property
    def key(self) -> str:
        return json.dumps(list(asdict(self).values()))


def cells(given: argparse.Namespace) -> list[Cell]:
    """A seed of everything before the next, set by set in the order given, so that the long runs of the large models do
    not come last."""
    pairs = [
        (model, name, None if name in TEXT_SETS else given.pixels)
        for name in given.sets
        for model in (shared_hub.TEXT if name in TEXT_SETS else reversed(shared_hub.VISION))
    ]
    return [
        Cell(model, name, variant, seed, given.steps, pixels, given.rows)
        for seed in given.seeds
        for model, name, pixels in pairs
        for variant, options in VARIANTS.items()
        if model in given.models and variant in given.variants
        if not (model in NO_NORMS and "frozen_norm_statistics" in options)
    ]


@cache
def open_task(name: str, rows: int | None) -> Any:
    task = open_set(name)
    return task if rows is None else smaller(task, rows)


def identifier(cell: Cell) -> str:
    if cell.model in shared_hub.TEXT:
        return shared_hub.text_identifier(cell.model)
    return shared_hub.identifier(cell.model, None if cell.model.startswith("cifar10_") else cell.pixels)


def run_one(cell: Cell) -> dict[str, Any]:
    """The result, the probe that it is compared with, and what validation had reached without keeping that probe."""
    import warnings

    from hubscout.errors import DivergedError
    from hubscout.tuning import tune

    warnings.simplefilter("ignore")
    task = open_task(cell.set_name, cell.rows)
    started, start = time.perf_counter(), time.process_time()
    length = {}
    if cell.steps:
        length = {
            "steps": cell.steps,
            "validate_every_epochs": max(1.0, cell.steps / 5 / -(-len(task.train) // 48)),
        }
    result: dict[str, Any] = {"key": cell.key, **asdict(cell)}
    try:
        tuned = tune(
            task,
            identifier(cell),
            **length,
            seed=cell.seed,
            linear_probe=True,
            data_in_memory=task.modality != "text",
            workers=0 if task.modality == "text" else None,
            bootstrap_resamples=2,
            **{"method": "fine-tune", **VARIANTS[cell.variant]},
        )
    except DivergedError as error:
        return {**result, "diverged": str(error)}
    probe = tuned.tuning_run().probes["model"]
    reached = [next(iter(line["metrics"].values())) for line in tuned.curves if line["event"] == "validation"]
    return {
        **result,
        "probe": {split: probe.metric(split) for split in ("validation", "test")},
        "reached": max(reached),
        "result": {split: tuned.metric(split).value for split in ("validation", "test")},
        "learning_rate": tuned.arguments.learning_rate,
        "restarts": sum("The run restarts with" in note for note in tuned.notes),
        "notes": list(tuned.notes),
        "seconds": round(time.perf_counter() - started, 1),
        "processor_seconds": round(time.process_time() - start, 1),
    }


def run_in_time(until: float, cell: Cell) -> dict[str, Any] | None:
    """None after that moment (of `time.time`)."""
    return run_one(cell) if time.time() < until else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0, help="0: as `tune` has by itself.")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="Begin no run after so long.")
    parser.add_argument("--pixels", type=int, default=96)
    parser.add_argument("--rows", type=int, default=None, help="At most so many of each split.")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--models", nargs="*", default=[*shared_hub.VISION, *shared_hub.TEXT])
    parser.add_argument("--sets", nargs="*", default=[*TEXT_SETS, *CLASSIFICATION])
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS))
    parser.add_argument("--again", action="store_true", help="Also what has a line; the table has the last one.")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "runs.jsonl")
    given = parser.parse_args()
    lines = given.out.read_text().splitlines() if given.out.is_file() else []
    done = {json.loads(line)["key"] for line in lines}
    waiting = [cell for cell in cells(given) if given.again or cell.key not in done]
    with given.out.open("a") as file:
        for _, record in run_jobs(partial(run_in_time, time.time() + given.seconds), waiting, given.workers):
            if record is not None:
                file.write(json.dumps(record) + "\n")
                file.flush()


if __name__ == "__main__":
    main()
