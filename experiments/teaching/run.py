"""What a sceptic would try in place of B-Tuning, on equal terms.

    python experiments/teaching/run.py --workers 16 --seconds 480 --out results/runs.jsonl   # goes on where it stopped
    python experiments/teaching/run.py --plan both --workers 16 --out results/runs.jsonl     # explores first
    python experiments/teaching/run.py --try --out scratch/try.jsonl # one short run of each method on each case
    python experiments/teaching/table.py                                                     # table.md, figure.png

For each case (a set, how many of its train samples, a student, its teachers by LogME) and each method: four settings,
judged on validation with one seed; then five fresh seeds at the best of them. Fine-tuning and what goes with it alone
have four learning rates, methods with teachers two rates and two strengths. What only varies a method (`same_as`), and
every method on a medium number of samples, takes over the setting that was found for it and has no search of its own.
`WORTH` says what is run, and in which order. `explore.py` chose "features beside b-tuning" at first, "b-tuning, 3C" in
a second exploration (and `CHOSEN_VIEWS` beside it), `CHOSEN_BEFORE` in a third, by validation, on cases and seeds of
their own. The fourth is for crossed heads with features that fade out; its choice and its rivals have ten seeds.
Without knobs a method has its own strength, and the learning rate that `tune` finds. Every finished run is a line of
JSON. Teachers that are tuned themselves are tuned once per case, at two rates, and the better one by validation is kept
in the cache.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import kept  # noqa: E402
import shared_hub  # noqa: E402
from candidates import changed  # noqa: E402
from data_sets import MODEL_OPTIONS, REGRESSION, open_set, smaller  # noqa: E402
from data_sets import TEXT as TEXT_SETS  # noqa: E402
from explore import FIFTH, FIRST, FOURTH, SECOND, THIRD, VIEWS, choose, whole  # noqa: E402

from hubscout.tasks.kinds import kind_of  # noqa: E402
from hubscout.tasks.splitting import stratified_sample  # noqa: E402

CACHE = Path(os.environ.get("HUBSCOUT_EXPERIMENT_CACHE", Path.home() / ".cache" / "hubscout-experiments"))
TEACHER = "tuned teacher: "
EXPLORATION_SHARE = 0.2
"""Of the seconds, where the table follows in the same call."""
LOOK_AHEAD = 48
"""Runs that a worker chooses from."""
SEARCH_SEED, SEEDS, MORE_SEEDS = 0, (1, 2, 3, 4, 5), (6, 7, 8, 9, 10)
STEPS = int(os.environ.get("HUBSCOUT_EXPERIMENT_STEPS", "300"))
ROWS = int(os.environ["HUBSCOUT_EXPERIMENT_ROWS"]) if "HUBSCOUT_EXPERIMENT_ROWS" in os.environ else None
"""Of each split, for a try."""


@dataclass(frozen=True)
class Case:
    """What is tuned on what, and by whom it is taught, the best by LogME first."""

    set_name: str
    train_samples: int | None
    student: str
    teachers: tuple[str, ...]
    rates: tuple[float, float, float, float]
    """Of fine-tuning; methods with teachers have the two in the middle."""
    pixels: int | None = 96
    unused: bool = False
    """Whether all train samples that are not used validate it, in place of the usual split."""

    @property
    def name(self) -> str:
        size = "all" if self.train_samples is None else str(self.train_samples)
        return f"{self.set_name}-{size}/{self.student}" + ("/unused" if self.unused else "")


MOBILENET, LITE0 = "mobilenetv2_coral_in1k", "tf_efficientnet_lite0_in1k"
LARGE = ("resnet50_keras_in1k", "tf_efficientnet_lite2_in1k", "tf_efficientnet_lite1_in1k")
CIFAR = ("cifar10_resnet56", "cifar10_resnet44", "cifar10_resnet32")
GENTLE = (0.0001, 0.0004, 0.0015, 0.006)
STEEP = (0.003, 0.01, 0.03, 0.1)
NUMBERS = (5e-5, 2e-4, 6e-4, 2e-3)
"""For AdamW, which `tune` takes for regression: SGD at `GENTLE` ruins the network in three steps, taught or not."""
TEXT = (2e-5, 5e-5, 1.5e-4, 5e-4)
SENTENCES = ("all-MiniLM-L6-v2",)
BOTH_SENTENCES = ("all-MiniLM-L6-v2", "sre-minilm")
CASES = {
    case.name: case
    for case in (
        Case("pets", 370, MOBILENET, LARGE, GENTLE),
        Case("cifar10", 500, MOBILENET, CIFAR, GENTLE),
        Case("trec", 300, "paraphrase-MiniLM-L3-v2", SENTENCES, TEXT, None),
        Case("omniglot", None, MOBILENET, LARGE, GENTLE),
        Case("fashion-mnist", 500, "cifar10_resnet20", LARGE, STEEP),
        Case("pets", None, MOBILENET, LARGE, GENTLE),
        Case("pets", 370, LITE0, LARGE, GENTLE),
        Case("pet-heads", 500, MOBILENET, LARGE, NUMBERS),
        Case("cifar10", None, MOBILENET, CIFAR, GENTLE),
        Case("pets", 1110, MOBILENET, LARGE, GENTLE),
        Case("cifar10", 1500, MOBILENET, CIFAR, GENTLE),
        Case("pets", 740, MOBILENET, LARGE, GENTLE),
        Case("cifar10", 1000, MOBILENET, CIFAR, GENTLE),
        Case("sign-digits", 500, LITE0, LARGE, GENTLE),
        Case("fashion-mnist", 1000, "cifar10_resnet20", LARGE, STEEP),
        Case("sst2", 300, "paraphrase-MiniLM-L3-v2", BOTH_SENTENCES, TEXT, None),
        Case("sick-siamese", 1000, "paraphrase-MiniLM-L3-v2", SENTENCES, TEXT, None),
        Case("pets", 740, MOBILENET, LARGE, GENTLE, unused=True),
        Case("cifar10", 1000, MOBILENET, CIFAR, GENTLE, unused=True),
        Case("sign-digits", 500, LITE0, LARGE, GENTLE, unused=True),
        Case("fashion-mnist", 1000, "cifar10_resnet20", LARGE, STEEP, unused=True),
        Case("agnews", 300, "paraphrase-MiniLM-L3-v2", BOTH_SENTENCES, TEXT, None, unused=True),
        Case("pets", 370, "tf_efficientnet_lite1_in1k", LARGE[:2], GENTLE, unused=True),
        Case("cr", 300, "paraphrase-MiniLM-L3-v2", BOTH_SENTENCES, TEXT, None, unused=True),
    )
}
"""In the order of their worth."""

METHODS: dict[str, dict[str, Any]] = {
    "fine-tune": {"method": "fine-tune"},
    "fine-tune, rate of b-tuning": {"method": "fine-tune", "same_as": "b-tuning"},
    "b-tuning": {"method": "b-tuning", "teachers": 3, "strengths": (1.0, 10.0), "per_target": True},
    "logit-kd": {"method": "logit-kd", "teachers": 3, "strengths": (1.0, 5.0)},
    "logit-kd, one teacher": {"method": "logit-kd", "teachers": 1, "strengths": (1.0, 5.0)},
    "b-tuning, live": {
        "method": "b-tuning",
        "teachers": 3,
        "strengths": (1.0, 10.0),
        "per_target": True,
        "teacher_targets": "live",
    },
    "logit-kd, live": {"method": "logit-kd", "teachers": 3, "strengths": (1.0, 5.0), "teacher_targets": "live"},
    "feature kd": {"method": "kd", "teachers": 3, "strengths": (0.0003, 0.003)},
    "feature kd, zero maps": {"method": "kd", "teachers": 3, "strengths": (0.0003, 0.003), "zero_maps": True},
    "self-distillation": {"method": "logit-kd", "teachers": 0, "strengths": (1.0, 5.0)},
    "shuffled teachers": {"method": "logit-kd", "teachers": 3, "strengths": (1.0, 5.0), "shuffled": True},
    "untrained teachers": {"method": "logit-kd", "same_as": "logit-kd, weak", "teachers": 3, "untrained": True},
    "untrained b-tuning teachers": {
        "method": "b-tuning",
        "same_as": "b-tuning",
        "teachers": 3,
        "per_target": True,
        "untrained": True,
    },
    "label smoothing": {"method": "fine-tune", "label_smoothing": 0.1},
    "head from the posterior": {"method": "fine-tune", "head_init": "posterior"},
    "l2-sp": {"method": "fine-tune", "l2_sp": 0.01},
    "twice the steps": {"method": "fine-tune", "steps": 2 * STEPS},
    "b-tuning, views": {
        "method": "b-tuning",
        "same_as": "b-tuning",
        "teachers": 3,
        "per_target": True,
        "teacher_targets": "views",
        "teacher_views": 4,
    },
    "logit-kd, weak": {"method": "logit-kd", "teachers": 3, "strengths": (0.1, 0.3)},
    "logit-kd, views": {
        "method": "logit-kd",
        "same_as": "logit-kd, weak",
        "teachers": 3,
        "teacher_targets": "views",
        "teacher_views": 4,
    },
    "logit-kd, tuned teachers": {"method": "logit-kd", "teachers": 3, "strengths": (0.3, 1.0), "tuned": True},
    "logit-kd, one tuned teacher": {"method": "logit-kd", "teachers": 1, "strengths": (0.3, 1.0), "tuned": True},
    "distill-weighted": {"method": "distill-weighted", "teachers": 3, "strengths": (0.3, 1.0)},
    "distill-weighted, uniform": {
        "method": "distill-weighted",
        "same_as": "distill-weighted",
        "teachers": 3,
        "teacher_weights": "uniform",
    },
    "b-tuning, uniform": {
        "method": "b-tuning",
        "same_as": "b-tuning",
        "teachers": 3,
        "per_target": True,
        "teacher_weights": "uniform",
    },
    "b-tuning, precision": {
        "method": "b-tuning",
        "same_as": "b-tuning",
        "teachers": 3,
        "per_target": True,
        "teacher_weights": "precision",
    },
    "b-tuning, left out": {
        "method": "b-tuning",
        "same_as": "b-tuning",
        "teachers": 3,
        "per_target": True,
        "teacher_targets": "left-out",
    },
    "b-tuning, tuned teachers": {
        "method": "b-tuning",
        "teachers": 3,
        "strengths": (1.0, 10.0),
        "per_target": True,
        "tuned": True,
    },
    "b-tuning, one teacher": {"method": "b-tuning", "teachers": 1, "strengths": (1.0, 10.0), "per_target": True},
    "b-tuning, one tuned teacher": {
        "method": "b-tuning",
        "teachers": 1,
        "strengths": (1.0, 10.0),
        "per_target": True,
        "tuned": True,
    },
    "b-tuning with mixup and ema": {
        "method": "b-tuning",
        "same_as": "b-tuning",
        "teachers": 3,
        "per_target": True,
        "mixup": 0.2,
        "ema": 0.99,
    },
    "mixup": {"method": "fine-tune", "same_as": "fine-tune", "mixup": 0.2},
    "ema": {"method": "fine-tune", "same_as": "fine-tune", "ema": 0.99},
    "soup of four runs": {"method": "fine-tune", "soup": 4},
    "lora": {"method": "fine-tune", "lora_rank": 8, "rate_factor": 10.0},
    "the best teacher itself, tuned": {"method": "fine-tune", "of_teacher": True},
    "feature kd, default": {"method": "kd", "teachers": 3},
    "b-tuning, 3C, centred": {"method": "b-tuning", "teachers": 3, "fixed": 3.0, "per_target": True, "centred": True},
}
BESIDE = {**METHODS["b-tuning"], "fixed": 3.0, "feature_trade_off": 1.0}
"""What the exploration chose."""
del BESIDE["strengths"]
EXPLORED = {**FIRST.candidates, **SECOND.candidates, **THIRD.candidates, **FOURTH.candidates, **FIFTH.candidates}
METHODS |= {
    name: {**METHODS[base], "fixed": strength, **options} for name, (base, strength, options) in EXPLORED.items()
}
for _name in EXPLORED:
    if _name != "fine-tune":
        METHODS[_name].pop("strengths", None)
        METHODS[_name].pop("same_as", None)
METHODS |= {f"{name}, no knobs": {**METHODS[name], "no_knobs": True} for name in EXPLORED if name != "fine-tune"}
HALFWAY = "crossed, 6C, bounded, halfway"
"""What `tune` does by default with teachers of classes."""
METHODS[HALFWAY] = {**METHODS["crossed, 6C, bounded by 0.25"], "label_share": 0.5}
VARIED = {
    f"{HALFWAY}, uniform": {"teacher_weights": "uniform"},
    f"{HALFWAY}, precision": {"teacher_weights": "precision"},
    f"{HALFWAY}, tuned teachers": {"tuned": True},
    f"{HALFWAY}, untrained teachers": {"untrained": True},
}
METHODS |= {name: {**METHODS[HALFWAY], **options, "same_as": HALFWAY} for name, options in VARIED.items()}
NO_TEACHERS = "crossed, 6C, bounded, no teachers"
"""`tune(method="b-tuning")` without teachers, which follows the labels."""
METHODS[NO_TEACHERS] = {k: v for k, v in METHODS[HALFWAY].items() if k not in ("teachers", "label_share")}
METHODS |= {f"{name}, no knobs": {**METHODS[name], "no_knobs": True} for name in (HALFWAY, NO_TEACHERS)}
METHODS |= {
    "feature kd, 16 views": {**METHODS["feature kd"], "same_as": "feature kd", **VIEWS},
    "logit-kd, 16 views": {**METHODS["logit-kd, weak"], "same_as": "logit-kd, weak", **VIEWS},
    "b-tuning, 16 views": {**METHODS["b-tuning"], "same_as": "b-tuning", **VIEWS},
    "features beside b-tuning": BESIDE,
    "features beside b-tuning, no knobs": {**BESIDE, "no_knobs": True},
    "fine-tune, no knobs": {"method": "fine-tune", "no_knobs": True},
    "b-tuning, no knobs": {**METHODS["b-tuning, C"], "no_knobs": True},
    "feature kd, zero maps, no knobs": {"method": "kd", "teachers": 3, "zero_maps": True, "no_knobs": True},
}
UNFIT: dict[str, set[str]] = {
    "text": {"mixup", "b-tuning with mixup and ema"},
    "regression": {"label smoothing"},
}
"""Methods that a kind of data has nothing for: texts have no views and cannot be mixed; the numbers here say where
something is, so that their images are not cropped; numbers are no labels."""


CORE = ("fine-tune", "b-tuning", "feature kd", "logit-kd, weak")
"""What every case needs: the base, the default, and the two baselines that cost the same."""
UPPER = "the best teacher itself, tuned"
FEW = ("pets-370/mobilenetv2_coral_in1k", "cifar10-500/mobilenetv2_coral_in1k")
MEDIUM = {"pets-1110/mobilenetv2_coral_in1k": FEW[0], "cifar10-1500/mobilenetv2_coral_in1k": FEW[1]}
"""Cases without a search of their own, and the one whose settings they take over."""
ALL = ("pets-all/mobilenetv2_coral_in1k", "cifar10-all/mobilenetv2_coral_in1k")
OTHERS = ("pets-370/tf_efficientnet_lite0_in1k", "fashion-mnist-500/cifar10_resnet20")
FAR, TEXTS = "omniglot-all/mobilenetv2_coral_in1k", "trec-300/paraphrase-MiniLM-L3-v2"
HEADS, SICK = "pet-heads-500/mobilenetv2_coral_in1k", "sick-siamese-1000/paraphrase-MiniLM-L3-v2"
NO_KNOBS = ("fine-tune, no knobs", "b-tuning, no knobs")
CHOSEN, CHOSEN_VIEWS = "what was chosen", "what was chosen with views"
CHOSEN_BEFORE = "what the third exploration chose"
IMAGES, BASELINES_WITH_VIEWS = (*FEW, *OTHERS), ("feature kd, 16 views", "logit-kd, 16 views")
REVIEWS = "sst2-300/paraphrase-MiniLM-L3-v2"
PLAIN = (*FEW, *OTHERS, TEXTS, REVIEWS)
TODAY = "crossed, 6C"
DECISIVE = ("fine-tune", "feature kd", "logit-kd, weak", HALFWAY, NO_TEACHERS, TODAY, CHOSEN)
"""What has ten seeds."""
BESIDE_FEATURES = "crossed, 6C, feature kd 0.0003"
LABELS, BOUNDED = f"{TODAY}, labels", f"{TODAY}, bounded by 0.25"
WORTH: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    ((*PLAIN, *MEDIUM, *ALL, FAR), (HALFWAY, NO_TEACHERS)),
    ((*PLAIN, *ALL, FAR), (f"{HALFWAY}, no knobs", f"{NO_TEACHERS}, no knobs")),
    (FEW, tuple(VARIED)),
    ((*OTHERS, TEXTS, REVIEWS), tuple(VARIED)[:2]),
    (PLAIN, (CHOSEN, *DECISIVE)),
    ((REVIEWS,), ("label smoothing", "fine-tune, no knobs")),
    (PLAIN, (LABELS,)),
    (PLAIN, (f"{BOUNDED}, no knobs", f"{TODAY}, no knobs", f"{LABELS}, no knobs")),
    ((*MEDIUM, *ALL), DECISIVE[:-1]),
    (PLAIN, (BESIDE_FEATURES,)),
    (PLAIN, (f"{CHOSEN}, no knobs", "crossed, 3C, no knobs")),
    ((*MEDIUM, *ALL, FAR), (CHOSEN, TODAY)),
    ((*ALL, FAR), (f"{BOUNDED}, no knobs", f"{TODAY}, no knobs")),
    (PLAIN, ("crossed, 3C",)),
    (PLAIN, ("b-tuning, 3C",)),
    (PLAIN, (CHOSEN_BEFORE,)),
    (PLAIN, ("b-tuning, 3C, centred",)),
    (PLAIN, ("b-tuning, 3C, answers 0.1",)),
    ((*MEDIUM, *ALL, FAR), (CHOSEN_BEFORE, "b-tuning, 3C")),
    ((*ALL, FAR), (f"{TODAY}, no knobs",)),
    (PLAIN, ("feature kd", "feature kd, zero maps")),
    (PLAIN, NO_KNOBS),
    ((HEADS,), ("fine-tune", "b-tuning", "feature kd")),
    (FEW, ("untrained teachers", "untrained b-tuning teachers")),
    (ALL, ("feature kd",)),
    ((*ALL, FAR), (CHOSEN, "b-tuning, 3C")),
    (PLAIN, (f"{CHOSEN}, no knobs", "b-tuning, 3C, no knobs", "feature kd, default, no knobs")),
    (tuple(MEDIUM), ("fine-tune", "b-tuning", "feature kd", CHOSEN, "b-tuning, 3C")),
    (FEW, ("distill-weighted", "ema", "mixup", "lora")),
    ((SICK,), ("fine-tune", "b-tuning", "feature kd")),
    (FEW, ("logit-kd, tuned teachers",)),
    ((FAR,), ("feature kd", "logit-kd, weak")),
    ((HEADS, SICK), ("b-tuning, 3C",)),
    ((*ALL, FAR, HEADS), (*NO_KNOBS, "b-tuning, 3C, no knobs")),
    ((*ALL, FAR), (f"{CHOSEN}, no knobs",)),
    ((TEXTS, HEADS, *MEDIUM), ("logit-kd, weak",)),
    (FEW, ("b-tuning, left out", "soup of four runs")),
    (ALL, (UPPER,)),
    (IMAGES, (CHOSEN_VIEWS, *BASELINES_WITH_VIEWS)),
    (FEW, ("fine-tune, rate of b-tuning", "b-tuning, uniform", "b-tuning, precision", "b-tuning, one teacher")),
    ((FAR, TEXTS, "fashion-mnist-500/cifar10_resnet20", HEADS), (UPPER,)),
    (FEW, ("b-tuning, 16 views", "b-tuning with mixup and ema", "b-tuning, tuned teachers")),
)
"""What is run, cases and their methods, what answers most first."""


@dataclass(frozen=True)
class Setting:
    """One run."""

    case: str
    method: str
    learning_rate: float
    strength: float | None
    seed: int

    @property
    def key(self) -> str:
        return json.dumps(list(asdict(self).values()))


def fits(case: str, method: str) -> bool:
    """Whether a method can be used on a case."""
    name = CASES[case].set_name
    texts, numbers = name in TEXT_SETS, name in REGRESSION or name.startswith("sick")
    if (texts or numbers) and METHODS[method].get("teacher_targets") == "views":
        return False
    return method not in {*(UNFIT["text"] if texts else ()), *(UNFIT["regression"] if numbers else ())}


def rates_of_teacher(case: Case) -> tuple[float, float, float, float]:
    """Of a teacher that is tuned itself: the large ones break down at what suits a CIFAR network."""
    return TEXT if case.teachers[0] in shared_hub.TEXT else GENTLE


def search(case: str, method: str) -> list[Setting]:
    """The four settings that validation chooses from; one without knobs has none, which is a learning rate of 0."""
    options = METHODS[method]
    if options.get("no_knobs"):
        return [Setting(case, method, 0.0, None, SEARCH_SEED)]
    rates = rates_of_teacher(CASES[case]) if options.get("of_teacher") else CASES[case].rates
    rates = tuple(rate * options.get("rate_factor", 1.0) for rate in rates)
    strengths = options.get("strengths")
    if strengths is None:
        return [Setting(case, method, rate, None, SEARCH_SEED) for rate in rates]
    return [Setting(case, method, rate, strength, SEARCH_SEED) for rate in rates[1:3] for strength in strengths]


def searched_as(case: str, method: str) -> list[Setting]:
    """The search whose outcome a method takes on a case: its own, or that of what it varies, or of fewer samples."""
    return search(MEDIUM.get(case, case), METHODS[method].get("same_as", method))


def strength_of(setting: Setting, method: str) -> float | None:
    """Of a setting that another method takes over: None where that has no teachers."""
    return setting.strength if "teachers" in METHODS[method] else None


@cache
def open_task(set_name: str, train_samples: int | None, unused: bool = False) -> Any:
    from hubscout.tasks.sequences import derived_fingerprint

    whole = kept.known(open_set(set_name), set_name)
    if ROWS is not None:
        return smaller(whole, ROWS)
    task = whole if train_samples is None else whole.subset(train_samples, seed=0)
    if unused:
        used = kind_of(task.kind).strata(whole.train.targets), int(train_samples or 0), 0
        rest = np.setdiff1d(np.arange(len(whole.train)), stratified_sample(*used))
        task = replace(
            task,
            splits={**task.splits, "validation": whole.train.take(rest)},
            fingerprint=derived_fingerprint(task.fingerprint, validation="unused"),
        )
    return kept.known(task, set_name)


def opened(name: str, case: Case, *, trained: bool = True) -> str:
    if name in shared_hub.TEXT:
        options = MODEL_OPTIONS.get(case.set_name, {})
        if not trained:
            return shared_hub.untrained_text(name, CACHE / "untrained", **options)
        return shared_hub.text_identifier(name, **options)
    return shared_hub.identifier(name, None if name.startswith("cifar10_") else case.pixels, trained=trained)


def run_one(setting: Setting) -> dict[str, Any]:
    from hubscout.errors import DivergedError

    case, options, strength = CASES[setting.case], dict(METHODS[setting.method]), setting.strength
    strength = options.get("fixed") if strength is None else strength
    result: dict[str, Any] = {"key": setting.key, **asdict(setting)}
    method, taught_by = options.pop("method"), options.pop("teachers", None)
    for name in ("strengths", "rate_factor", "same_as", "fixed"):
        options.pop(name, None)
    task = open_task(case.set_name, case.train_samples, case.unused)
    student = case.teachers[0] if options.pop("of_teacher", False) else case.student
    names: tuple[str, ...] = () if taught_by is None else case.teachers[:taught_by] or (case.student,)
    per_target = options.pop("per_target", False)
    if strength is not None:
        # For numbers, whose loss is a mean over the columns as well, the default is 1 and not their count.
        columns = len(task.target_names) if per_target and task.kind != "regression" else 1
        options["trade_off"] = strength * columns
    if case.unused:  # they decide nothing inside of a run
        options |= {"keep_best": False, "validate_every_epochs": 1e6}
    start = time.perf_counter()
    tuned_first, runs = options.pop("tuned", False), options.pop("soup", 0)
    trained = not options.pop("untrained", False)
    try:
        with ExitStack() as changes:
            for change in changed(options):
                changes.enter_context(change)
            identifiers = [opened(name, case, trained=trained) for name in names if not tuned_first]
            teachers = [tuned_teacher(case, name) for name in names if tuned_first]
            given = (case, student, teachers or list(map(kept.opened_once, identifiers)), method, setting.learning_rate)
            if runs:
                from hubscout.tuning import soup

                tuned = soup(task, [tuned_run(*given, seed=100 * setting.seed + k, **options) for k in range(runs)])
            else:
                tuned = tuned_run(*given, seed=setting.seed, **options)
    except DivergedError as error:  # a result of the setting
        return {**result, "validation": -1.0, "test": None, "error": str(error)}
    values = {part: tuned.metric(part).value for part in ("validation", "test")}
    return {
        **result,
        **values,
        "metric": next(iter(tuned.metrics["test"])),
        **({"found_rate": tuned.arguments.learning_rate} if METHODS[setting.method].get("no_knobs") else {}),
        **({"followed": len(tuned.teachers)} if method is None else {}),
        "seconds": round(time.perf_counter() - start, 1),
    }


def tuned_run(
    case: Case,
    student: str,
    teachers: list[Any],
    method: str | None,
    learning_rate: float,
    *,
    seed: int,
    **options: Any,
) -> Any:
    """One run with what all have in common. Where no method is given, only what all methods heed."""
    from hubscout.tuning import tune
    from hubscout.tuning.choices import heeded

    task = open_task(case.set_name, case.train_samples, case.unused)
    texts = task.modality in ("text", "text-pair", "tokens")
    knobs = {
        "batch_size": 64,
        "learning_rate": learning_rate,
        "restarts": 0,
        "frozen_norm_statistics": not student.startswith("cifar10_"),
    }
    plain = {"posterior_folds": 1, **({"feature_trade_off": 0.0, "label_share": 0.0} if teachers else {})}
    return tune(
        task,
        kept.opened_once(opened(student, case)),
        teachers,
        method,
        **{
            "steps": STEPS,
            **heeded(plain, method or "fine-tune"),
            "validate_every_epochs": STEPS / 4 / -(-len(task.train) // 64),
            **({} if options.pop("no_knobs", False) else knobs),
            **options,
        },
        seed=seed,
        augment="none" if task.kind == "regression" else "standard",
        cache=kept.features(CACHE / "features"),
        data_in_memory=not texts,
        workers=0,
        evaluation_batch_size=256,
        bootstrap_resamples=2,
        shown_samples=0,
    )


def teacher_folder(case: Case, name: str, rate: float) -> Path:
    """Where a teacher is kept that was tuned on the case's own train split."""
    size = "all" if case.train_samples is None else case.train_samples
    return CACHE / "tuned-teachers" / f"{case.set_name}-{size}-{name}-{rate:g}-{STEPS}-{ROWS or 'all'}"


def tune_teacher(setting: Setting) -> None:
    """Tune a teacher at a rate and keep it; one that diverges leaves an empty folder."""
    from hubscout.errors import DivergedError

    case, name = CASES[setting.case], setting.method.removeprefix(TEACHER)
    folder = teacher_folder(case, name, setting.learning_rate)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        half = Path(scratch) / "tuned"
        try:
            tuned_run(case, name, [], "fine-tune", setting.learning_rate, seed=setting.seed).save(half)
        except DivergedError:
            half.mkdir()
        half.rename(folder)


def tuned_teacher(case: Case, name: str) -> Any:
    """The better by validation of those that `tune_teacher` kept."""
    from hubscout.tuning import Tuned

    folders = [teacher_folder(case, name, rate) for rate in rates_of_teacher(case)[:2]]
    runs = [Tuned.load(folder, allow_code=True) for folder in folders if (folder / "tuning.json").is_file()]
    return max(runs, key=lambda run: run.metric("validation").value)


def work(setting: Setting) -> dict[str, Any]:
    import warnings

    warnings.simplefilter("ignore")
    kept.share(CACHE / "kept")
    gc.collect()  # a finished run refers to itself, and holds its networks until somebody looks
    torch.cuda.empty_cache()
    try:
        if setting.method.startswith(TEACHER):
            tune_teacher(setting)
            return {"key": setting.key, **asdict(setting), "prepared": True}
        return run_one(setting)
    except Exception as error:
        return {"key": setting.key, **asdict(setting), "failed": f"{type(error).__name__}: {error}"[:300]}


def explored() -> list[Setting]:
    """The runs of the fifth exploration; those before it are done."""
    return [Setting(*values) for values in FIFTH.settings(fits)]


class Plan:
    """What is to be run next: the searches, then the fresh seeds of each method that is searched."""

    def __init__(
        self, done: dict[str, dict[str, Any]], cases: list[str], methods: list[str], *, explores: bool = False
    ) -> None:
        self.done, self.begun, self.explores = done, set(done), explores
        self.explored = [s for s in explored() if s.case in cases and s.method in methods]
        records = list(done.values())
        names = {
            CHOSEN: choose(whole(records, FIFTH), FIFTH)["default"],
            CHOSEN_BEFORE: choose(records, THIRD)["default"],
            CHOSEN_VIEWS: choose(records, SECOND)["with views"],
        }
        names |= {f"{name}, no knobs": f"{found}, no knobs" for name, found in names.items()}
        self.decisive = {BESIDE_FEATURES, *(names.get(name, name) for name in DECISIVE)}
        named = [(case, names.get(name, name)) for many, worth in WORTH for case in many for name in worth]
        pairs = [(case, method) for case, method in named if fits(case, method)]
        self.pairs = [(c, m) for c, m in dict.fromkeys(pairs) if c in cases and m in methods]

    def ready(self) -> Iterator[Setting]:
        if self.explores:
            yield from (s for s in self.explored if s.key not in self.begun)
            return
        for case, method in self.pairs:
            if METHODS[method].get("no_knobs") and ROWS is None:
                fresh = [Setting(case, method, 0.0, None, seed) for seed in SEEDS]
                yield from (s for s in fresh if s.key not in self.begun)
                continue
            if (waiting := self._teachers(case, method)) is not None:
                yield from waiting
                continue
            searched = searched_as(case, method)
            if ROWS is not None:
                first = replace(searched[0], case=case, method=method, strength=strength_of(searched[0], method))
                yield from [] if first.key in self.begun else [first]
                continue
            yield from (s for s in searched if s.key not in self.begun)
            found = [self.done[s.key] for s in searched if s.key in self.done]
            if len(found) == len(searched) and (good := [r for r in found if "failed" not in r]):
                best = max(good, key=lambda r: (r["validation"], -r["learning_rate"]))
                chosen = next(s for s in searched if s.key == best["key"])
                chosen = replace(chosen, case=case, method=method, strength=strength_of(chosen, method))
                more = MORE_SEEDS if method in self.decisive and case not in (FAR, HEADS, SICK) else ()
                fresh = [replace(chosen, seed=seed) for seed in (*SEEDS, *more)]
                yield from (s for s in fresh if s.key not in self.begun)

    def _teachers(self, case: str, method: str) -> list[Setting] | None:
        """Teachers that have to be tuned first and are not begun; None: there are all that the method needs."""
        if not METHODS[method].get("tuned"):
            return None
        names, rates = CASES[case].teachers[: METHODS[method]["teachers"]], rates_of_teacher(CASES[case])[:2]
        wanted = [(name, rate) for name in names for rate in rates]
        missing = [pair for pair in wanted if not teacher_folder(CASES[case], *pair).exists()]
        settings = [Setting(case, TEACHER + name, rate, None, SEARCH_SEED) for name, rate in missing]
        return [s for s in settings if s.key not in self.begun] if missing else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="Begin no run after so long.")
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--plan", choices=["table", "explore", "both"], default="table")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "runs.jsonl")
    parser.add_argument("--try", dest="tried", action="store_true", help="One run of two steps on 48 rows for each.")
    given = parser.parse_args()
    if given.tried and ROWS is None:  # workers read it from their environment
        settings = {"HUBSCOUT_EXPERIMENT_ROWS": "48", "HUBSCOUT_EXPERIMENT_STEPS": "2"}
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **settings})
    lines = given.out.read_text().splitlines() if given.out.is_file() else []
    done = {r["key"]: r for r in map(json.loads, lines) if "failed" not in r}  # which are tried again
    began, ends = time.monotonic(), {"explore": given.seconds, "table": given.seconds}
    if given.plan == "both":
        ends["explore"] *= EXPLORATION_SHARE
    crew = [Worker() for _ in range(given.workers)]
    with given.out.open("a") as file:
        for name in ("explore", "table") if given.plan == "both" else (given.plan,):
            plan = Plan(done, given.cases, given.methods, explores=name == "explore")
            for record in finished(plan, crew, began + ends[name]):
                if "prepared" not in record:  # it lies in the cache of this machine alone
                    file.write(json.dumps(record) + "\n")
                    file.flush()
                seconds, told = f"{time.monotonic() - began:4.0f} s", record.get("test", record.get("failed"))
                print(seconds, record["case"], record["method"], record["seed"], told, flush=True)
            if name == "explore":
                print(json.dumps(choose(whole(done.values(), FIFTH), FIFTH), indent=1), flush=True)


class Worker:
    """A process. The first run of a case in it takes long, most of it for kernels of shapes that are new to it."""

    def __init__(self) -> None:
        self.cases: set[str] = set()
        self.setting: Setting | None = None
        self._start()

    def _start(self) -> None:
        self.pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    def begin(self, setting: Setting) -> Future[dict[str, Any]]:
        self.setting = setting
        self.cases.add(setting.case)
        return self.pool.submit(work, setting)

    def end(self, future: Future[dict[str, Any]]) -> dict[str, Any]:
        """The record of the run; one whose process was killed has failed, and the next has a new process."""
        setting, self.setting = self.setting, None
        assert setting is not None
        try:
            return future.result()
        except BrokenProcessPool as error:
            self.cases.clear()
            self._start()
            return {"key": setting.key, **asdict(setting), "failed": f"{type(error).__name__}: {error}"[:300]}


def next_setting(worker: Worker, crew: list[Worker], ready: list[Setting]) -> Setting:
    """One of a case that the worker knows; or else of the one that the fewest know."""
    known = [setting for setting in ready if setting.case in worker.cases]
    return known[0] if known else min(ready, key=lambda s: sum(s.case in other.cases for other in crew))


def finished(plan: Plan, crew: list[Worker], end: float) -> Iterator[dict[str, Any]]:
    """The records of a plan as they come in; nothing is begun after `end`."""
    running: dict[Future[dict[str, Any]], Worker] = {}
    while True:
        for worker in crew if time.monotonic() < end else ():
            if worker.setting is None and (ready := list(islice(plan.ready(), LOOK_AHEAD))):
                setting = next_setting(worker, crew, ready)
                plan.begun.add(setting.key)
                running[worker.begin(setting)] = worker
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            record = running.pop(future).end(future)
            plan.done[record["key"]] = record
            yield record


if __name__ == "__main__":
    main()
