"""The paper's comparison of tuning methods in small: teachers from the whole hub, and teachers of one architecture.

    python experiments/tuning/run.py rank                    # LogME of the hub, top and joint teachers -> teachers.json
    python experiments/tuning/run.py search --workers 12     # twelve settings a method, judged on validation
    python experiments/tuning/run.py second --workers 12     # the best four of them again, with another seed
    python experiments/tuning/run.py final --workers 12      # the best setting of each method over fresh seeds
    python experiments/tuning/run.py studies --workers 12    # number of teachers, joint ones, combinations for KD
    python experiments/tuning/tuned_table.py                       # table.md and figure.png from results/

Three sets: Pets with all its train images and 500 images of CIFAR-10, where data is scarce, for a MobileNetV2; and 500
images of Fashion-MNIST for a ResNet-20 among others of its architecture, the ones that `contrastive/pretrain.py` makes.
Every finished run is one line of JSON under `results/`; a run that is there already is not run again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import shared_hub  # noqa: E402
from data_sets import open_set  # noqa: E402
from pool import run_jobs  # noqa: E402
from references import CACHE, vision_identifier  # noqa: E402

TARGET = "mobilenetv2_coral_in1k"
MOBILENETS = ("mobilenetv2_coral_in1k", "mobilenetv2_coral_inat_bird", "mobilenetv2_coral_inat_insect")
RESNET20S = ("cifar10_resnet20", "supervised", "simclr", "moco_v1", "moco_v2", "moco_v2_long")


@dataclass(frozen=True)
class Case:
    """What is tuned on a set, and out of which models its teachers are chosen."""

    target: str
    candidates: tuple[str, ...]
    train_images: int | None
    """Stratified; None is all of them."""
    frozen_norms: bool
    """MobileNets whose norms were folded away cannot learn statistics anew; Zoo-Tuning needs norms that can."""


CASES = {
    "pets": Case(TARGET, shared_hub.VISION, None, frozen_norms=True),
    "cifar10": Case(TARGET, shared_hub.VISION, 500, frozen_norms=True),
    "fashion-mnist": Case("cifar10_resnet20", RESNET20S, 500, frozen_norms=False),
}
STEPS = int(os.environ.get("HUBSCOUT_EXPERIMENT_STEPS", "400"))
BATCH_SIZE = 64
SEARCH_SEEDS = (0, 100)
SEARCHED_TWICE = 4
"""So many of the best settings run with the second seed of the search; the mean of both decides."""
SEEDS = (1, 2, 3, 4, 5)
STUDY_SEEDS = (1, 2, 3)

RATES = (0.0001, 0.0003, 0.001)
FINE_TUNING_RATES = (0.00003, 0.00006, 0.0001, 0.00014, 0.0002, 0.0003, 0.0006, 0.001, 0.0017, 0.003, 0.0055, 0.01)
"""Fine-tuning has no λ: its twelve settings are twelve learning rates over a wider range."""
RESNET20_FACTOR = 50
"""Their learning rates are so much higher, as contrastive/ found: 0.004 to 0.064."""
TRADE_OFFS = {"b-tuning": (10.0, 50.0, 250.0, 1000.0), "kd": (0.00003, 0.0003, 0.003, 0.03)}
ZOO_RATES = (0.0003, 0.001, 0.003)
ZOO_STARTS = (0.5, 0.8, 0.95)
SCARCE = (("fine-tune", ""), ("kd", "top3"), ("b-tuning", "top3"), ("b-tuning left-out", "top3"))
COMPARED = {
    "pets": (
        *SCARCE,
        ("b-tuning live", "top3"),
        ("kd", "mobilenets"),
        ("b-tuning", "mobilenets"),
        ("zoo lite", "mobilenets"),
        ("zoo", "mobilenets"),
    ),
    "cifar10": SCARCE,
    "fashion-mnist": (
        ("fine-tune", ""),
        *itertools.product(("kd", "b-tuning", "b-tuning left-out", "zoo lite"), ("all", "best3")),
        ("zoo", "best3"),
    ),
}
"""By set: method and teachers of each line of the main table."""
STUDIED = ("b-tuning", "b-tuning left-out", "kd")
TEACHER_COUNTS = (1, 2, 5, 16)
HEAVY = ("b-tuning live", "zoo")


@dataclass(frozen=True)
class Setting:
    """One run. `teachers` is the name of a group; `strength` is λ, or the target's first share of Zoo-Tuning."""

    set_name: str
    method: str
    teachers: str
    learning_rate: float
    strength: float | None
    seed: int

    @property
    def key(self) -> str:
        return json.dumps(list(asdict(self).values()))

    def __str__(self) -> str:
        return " ".join(map(str, asdict(self).values()))


def search_settings(set_name: str, method: str, teachers: str) -> list[Setting]:
    """What is searched for a method: twelve settings; nine shares and rates for Zoo-Tuning, three for its full form."""
    setting = partial(Setting, set_name, method, teachers, seed=SEARCH_SEEDS[0])
    raised = 1 if CASES[set_name].frozen_norms else RESNET20_FACTOR
    if method == "fine-tune":
        return [setting(learning_rate=raised * rate, strength=None) for rate in FINE_TUNING_RATES]
    if not method.startswith("zoo"):
        rates, strengths = RATES, TRADE_OFFS[method.partition(" ")[0]]
    else:
        rates = ZOO_RATES if set_name == "pets" else RATES
        # K times the cost in the full form: its first share is a middle one
        strengths = ZOO_STARTS if method == "zoo lite" else ZOO_STARTS[1:2]
    return [setting(learning_rate=raised * rate, strength=value) for rate in rates for value in strengths]


def load_results(folder: Path) -> dict[str, dict[str, Any]]:
    """All finished runs by key."""
    lines = [line for file in sorted(folder.glob("runs*.jsonl")) for line in file.read_text().splitlines() if line]
    return {record["key"]: record for record in map(json.loads, lines)}


def best_settings(results: dict[str, dict[str, Any]], set_name: str, method: str, teachers: str) -> list[Setting]:
    """Settings of a search from the best validation accuracy down; the gentler one of equals comes first.

    Those that ran with both seeds come before all others: they were the best with the first.
    """

    def found(setting: Setting) -> list[float]:
        keys = [_with(setting, seed=seed).key for seed in SEARCH_SEEDS]
        return [results[key]["validation"] for key in keys if key in results]

    def merit(setting: Setting) -> tuple[float, ...]:
        values = found(setting)
        return len(values), fmean(values), -(setting.strength or 0), -setting.learning_rate

    return sorted((s for s in search_settings(set_name, method, teachers) if found(s)), key=merit, reverse=True)


def best_setting(results: dict[str, dict[str, Any]], set_name: str, method: str, teachers: str) -> Setting | None:
    return next(iter(best_settings(results, set_name, method, teachers)), None)


@cache
def open_task(set_name: str) -> Any:
    task = open_set(set_name)
    limit = CASES[set_name].train_images
    return task if limit is None else task.subset(limit, seed=0)


def teacher_groups(set_name: str, results: Path) -> dict[str, list[str]]:
    """Names of teachers by the name of the group."""
    found = json.loads((results / f"teachers-{set_name}.json").read_text())
    order = [name for name in found["logme"] if name != CASES[set_name].target]
    return {
        "": [],
        **{f"top{k}": order[:k] for k in range(1, len(order) + 1)},
        "joint3": found["joint"],
        "all": list(found["logme"]),
        "best3": list(found["logme"])[:3],
        "mobilenets": list(MOBILENETS),
        **{"+".join(some): list(some) for some in mobilenet_combinations()},
    }


def mobilenet_combinations() -> list[tuple[str, ...]]:
    return [some for k in (1, 2) for some in itertools.combinations(MOBILENETS, k)]


@dataclass(frozen=True)
class Job:
    """A run, its teachers by name."""

    setting: Setting
    teachers: tuple[str, ...]

    def __str__(self) -> str:
        return str(self.setting)


def run_one(job: Job) -> dict[str, Any]:
    from hubscout.features import FeatureCache
    from hubscout.tuning import tune
    from hubscout.tuning.choices import heeded

    setting = job.setting
    task, case = open_task(setting.set_name), CASES[setting.set_name]
    method, _, form = setting.method.partition(" ")
    options: dict[str, Any] = {}
    if method == "zoo":
        options = {"zoo_lite": form == "lite", "zoo_start": setting.strength}
    elif method != "fine-tune":
        options = {"trade_off": setting.strength, "teacher_targets": form or "cached"}
    start = time.perf_counter()
    tuned = tune(
        task,
        vision_identifier(case.target),
        [vision_identifier(name) for name in job.teachers],
        method,
        steps=STEPS,
        batch_size=BATCH_SIZE,
        learning_rate=setting.learning_rate,
        restarts=0,
        seed=setting.seed,
        frozen_norm_statistics=case.frozen_norms,
        cache=FeatureCache(CACHE / "features"),
        data_in_memory=True,
        workers=2,
        evaluation_batch_size=256,
        validate_every_epochs=STEPS / 4 / -(-len(task.train) // BATCH_SIZE),
        **heeded({"posterior_folds": 1}, method),  # as in the paper
        **options,
    )
    merged = tuned.merged_metrics
    return {
        "key": setting.key,
        **asdict(setting),
        "validation": tuned.metric("validation").value,
        "test": tuned.metric("test").value,
        "merged_test": None if merged is None else next(iter(merged["test"].values())).value,
        "best_step": tuned.best_step,
        "steps": tuned.steps,
        "seconds": round(time.perf_counter() - start, 1),
    }


def work(job: Job) -> dict[str, Any]:
    from hubscout.errors import DivergedError

    setting = job.setting
    try:
        return run_one(job)
    except DivergedError as error:  # a result of the setting
        return {"key": setting.key, **asdict(setting), "validation": -1.0, "test": None, "error": str(error)}


def rank_hub(set_name: str, out: Path) -> None:
    """LogME of every model on the train split, and the three teachers that explain most together."""
    import hubscout
    from hubscout.ranking import select_teachers

    task, case = open_task(set_name), CASES[set_name]
    features = CACHE / "features"
    models = [vision_identifier(name) for name in case.candidates]
    ranking = hubscout.rank(task, models, cache=features, precision="float32", measure_latency=False)
    others = hubscout.rank(
        task,
        [m for m in models if shared_hub.name_of(m) != case.target],
        cache=features,
        precision="float32",
        measure_latency=False,
    )
    joint = select_teachers(others, 3, "joint", task=task, cache=features)
    record = {
        "set": set_name,
        "train_images": len(task.train),
        "logme": {shared_hub.name_of(row.identifier): row.score for row in ranking},
        "joint": [shared_hub.name_of(name) for name in joint],
        "joint_scores": [step.score for step in joint.steps],
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / f"teachers-{set_name}.json").write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1), flush=True)


def settings_of(stage: str, sets: list[str], done: dict[str, dict[str, Any]], methods: list[str]) -> list[Setting]:
    """What a stage wants to run."""
    wanted: list[Setting] = []
    for set_name in sets:
        compared = [(method, teachers) for method, teachers in COMPARED[set_name] if not methods or method in methods]
        if stage == "search":
            wanted += [s for method, teachers in compared for s in search_settings(set_name, method, teachers)]
        elif stage == "second":
            for method, teachers in compared:
                if set_name != "pets" or not method.startswith("zoo"):
                    best = best_settings(done, set_name, method, teachers)[:SEARCHED_TWICE]
                    wanted += [_with(setting, seed=SEARCH_SEEDS[1]) for setting in best]
        elif stage == "final":
            for method, teachers in compared:
                best = best_setting(done, set_name, method, teachers)
                if best is not None:
                    wanted += [
                        _with(best, seed=seed)
                        for seed in (STUDY_SEEDS if (set_name, method) == ("pets", "zoo") else SEEDS)
                    ]
        else:
            wanted += studies(set_name, done)
    return wanted


def studies(set_name: str, done: dict[str, dict[str, Any]]) -> list[Setting]:
    """Other teachers at the settings that the main comparison chose."""
    wanted = []
    for method in STUDIED:
        best = best_setting(done, set_name, method, "top3")
        if best is not None:
            groups = (*(f"top{k}" for k in TEACHER_COUNTS), "joint3")
            wanted += [_with(best, teachers=group, seed=seed) for group in groups for seed in STUDY_SEEDS]
    best = best_setting(done, set_name, "kd", "mobilenets")
    if best is not None:
        combinations = ["+".join(some) for some in mobilenet_combinations()]
        wanted += [_with(best, teachers=teachers, seed=seed) for teachers in combinations for seed in STUDY_SEEDS]
    best = best_setting(done, set_name, "b-tuning", "mobilenets")
    if best is not None:  # the top one of the three, which is the target itself
        wanted += [_with(best, teachers=MOBILENETS[0], seed=seed) for seed in STUDY_SEEDS]
    return wanted


def _with(setting: Setting, **changes: Any) -> Setting:
    return Setting(**{**asdict(setting), **changes})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["rank", "search", "second", "final", "studies"])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--sets", nargs="*", default=list(CASES))
    parser.add_argument("--methods", nargs="*", default=[])
    parser.add_argument("--teachers", nargs="*", default=[], help="groups, such as top1; default all")
    parser.add_argument("--seeds", type=int, nargs="*", default=[], help="default all")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    if arguments.stage == "rank":
        for set_name in arguments.sets:
            rank_hub(set_name, arguments.results)
        return
    arguments.results.mkdir(exist_ok=True, parents=True)
    done = load_results(arguments.results)
    wanted = settings_of(arguments.stage, arguments.sets, done, arguments.methods)
    wanted = [
        setting
        for setting in dict.fromkeys(wanted)
        if setting.key not in done
        and (not arguments.methods or setting.method in arguments.methods)
        and (not arguments.teachers or setting.teachers in arguments.teachers)
        and (not arguments.seeds or setting.seed in arguments.seeds)
    ]
    wanted.sort(key=lambda s: s.method not in HEAVY)
    groups = {set_name: teacher_groups(set_name, arguments.results) for set_name in arguments.sets}
    same = [name for name, found in groups.items() if set(found["joint3"]) == set(found["top3"])]
    wanted = [s for s in wanted if (s.teachers, s.set_name in same) != ("joint3", True)]
    jobs = [Job(setting, tuple(groups[setting.set_name][setting.teachers])) for setting in wanted]
    with (arguments.results / "runs.jsonl").open("a") as file:
        for _, record in run_jobs(work, jobs, arguments.workers):
            file.write(json.dumps(record) + "\n")
            file.flush()
            print(f"{record['validation']:.4f} {record['test']}", flush=True)


if __name__ == "__main__":
    main()
