"""What a sceptic would try in place of B-Tuning, on equal terms.

    python experiments/teaching/run.py --workers 16 --seconds 480 --out results/runs.jsonl   # goes on where it stopped
    python experiments/teaching/run.py --plan explore --workers 16 --out results/runs.jsonl  # chooses the default
    python experiments/teaching/run.py --try --out scratch/try.jsonl # one short run of each method on each case
    python experiments/teaching/table.py                                                     # table.md, figure.png

For each case (a set, how many of its train samples, a student, its teachers by LogME) and each method: four settings,
judged on validation with one seed; then five fresh seeds at the best of them. Fine-tuning and what goes with it alone
have four learning rates, methods with teachers two rates and two strengths. What only varies a method (`same_as`), and
every method on a medium number of samples, takes over the setting that was found for it and has no search of its own.
`WORTH` says what is run, and in which order. "features beside b-tuning" is what `explore.py` chose, by validation, on
cases and seeds of its own; without knobs a method has its own strength, and the learning rate that `tune` finds. Every
finished run is a line of JSON. Teachers that are tuned themselves are tuned once per case, at two rates, and the better
one by validation is kept in the cache.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import shared_hub  # noqa: E402
from data_sets import MODEL_OPTIONS, REGRESSION, open_set, smaller  # noqa: E402
from data_sets import TEXT as TEXT_SETS  # noqa: E402
from explore import choose  # noqa: E402

CACHE = Path(os.environ.get("HUBSCOUT_EXPERIMENT_CACHE", Path.home() / ".cache" / "hubscout-experiments"))
TEACHER = "tuned teacher: "
SEARCH_SEED, SEEDS = 0, (1, 2, 3, 4, 5)
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

    @property
    def name(self) -> str:
        size = "all" if self.train_samples is None else str(self.train_samples)
        return f"{self.set_name}-{size}/{self.student}"


MOBILENET, LITE0 = "mobilenetv2_coral_in1k", "tf_efficientnet_lite0_in1k"
LARGE = ("resnet50_keras_in1k", "tf_efficientnet_lite2_in1k", "tf_efficientnet_lite1_in1k")
CIFAR = ("cifar10_resnet56", "cifar10_resnet44", "cifar10_resnet32")
GENTLE = (0.0001, 0.0004, 0.0015, 0.006)
STEEP = (0.003, 0.01, 0.03, 0.1)
NUMBERS = (5e-5, 2e-4, 6e-4, 2e-3)
"""For AdamW, which `tune` takes for regression: SGD at `GENTLE` ruins the network in three steps, taught or not."""
TEXT = (2e-5, 5e-5, 1.5e-4, 5e-4)
SENTENCES = ("all-MiniLM-L6-v2",)
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
        Case("sick-siamese", 1000, "paraphrase-MiniLM-L3-v2", SENTENCES, TEXT, None),
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
}
EXPLORED: dict[str, tuple[str, float | None, dict[str, Any]]] = {
    "fine-tune": ("fine-tune", None, {}),
    "b-tuning, C": ("b-tuning", 1.0, {}),
    "b-tuning, 3C": ("b-tuning", 3.0, {}),
    "b-tuning, 10C": ("b-tuning", 10.0, {}),
    "b-tuning, C, features 1": ("b-tuning", 1.0, {"feature_trade_off": 1.0}),
    "b-tuning, 3C, features 1": ("b-tuning", 3.0, {"feature_trade_off": 1.0}),
    "b-tuning, 3C, features 3": ("b-tuning", 3.0, {"feature_trade_off": 3.0}),
    "features 1": ("b-tuning", 0.0, {"feature_trade_off": 1.0}),
    "features 3": ("b-tuning", 0.0, {"feature_trade_off": 3.0}),
    "logit-kd, 0.3": ("logit-kd, weak", 0.3, {}),
    "logit-kd, 0.3, features 1": ("logit-kd, weak", 0.3, {"feature_trade_off": 1.0}),
    "feature kd, default": ("feature kd, default", None, {}),
    "b-tuning, 3C, views": ("b-tuning, views", 3.0, {}),
    "b-tuning, 3C, 16 views": ("b-tuning, views", 3.0, {"teacher_views": 16}),
}
"""What could be the default: a method of the above, its strength and options."""
EXPLORATION = {
    "pets-740/mobilenetv2_coral_in1k": 0.0004,
    "cifar10-1000/mobilenetv2_coral_in1k": 0.0004,
    "sign-digits-500/tf_efficientnet_lite0_in1k": 0.0015,
    "fashion-mnist-1000/cifar10_resnet20": 0.03,
}
"""Cases on which the default is chosen, and their learning rate; nothing is judged on them."""
EXPLORATION_SEEDS = (11, 12, 13)
BESIDE = {**METHODS["b-tuning"], "fixed": 3.0, "feature_trade_off": 1.0}
"""What the exploration chose."""
del BESIDE["strengths"]
METHODS |= {
    name: {**METHODS[base], "fixed": strength, **options} for name, (base, strength, options) in EXPLORED.items()
} | {
    "features beside b-tuning": BESIDE,
    "features beside b-tuning, no knobs": {**BESIDE, "no_knobs": True},
    "fine-tune, no knobs": {"method": "fine-tune", "no_knobs": True},
    "b-tuning, no knobs": {"method": "b-tuning", "teachers": 3, "no_knobs": True},
}
UNFIT: dict[str, set[str]] = {
    "text": {"b-tuning, views", "logit-kd, views", "mixup", "b-tuning with mixup and ema"},
    "regression": {"label smoothing", "b-tuning, views", "logit-kd, views"},
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
NO_KNOBS = ("fine-tune, no knobs", "b-tuning, no knobs", "features beside b-tuning, no knobs")
WORTH: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    ((*FEW, *OTHERS), NO_KNOBS),
    ((HEADS,), ("fine-tune", "b-tuning", "features beside b-tuning")),
    (FEW, ("b-tuning, views", "untrained teachers")),
    ((*ALL, TEXTS), NO_KNOBS),
    (ALL, (UPPER,)),
    (tuple(MEDIUM), ("fine-tune", "b-tuning", "feature kd", "features beside b-tuning")),
    (FEW, ("logit-kd, tuned teachers",)),
    ((FAR,), NO_KNOBS),
    ((*FEW, *OTHERS), ("features beside b-tuning",)),
    (OTHERS, CORE),
    ((*FEW, *OTHERS), NO_KNOBS),
    (ALL, ("features beside b-tuning", "fine-tune, rate of b-tuning")),
    ((FAR, TEXTS), ("features beside b-tuning",)),
    ((HEADS,), ("fine-tune", "b-tuning", "features beside b-tuning")),
    (FEW, ("b-tuning, views", "untrained teachers", "logit-kd, tuned teachers")),
    (ALL, (UPPER,)),
    (tuple(MEDIUM), ("fine-tune", "b-tuning", "feature kd", "features beside b-tuning")),
    ((*ALL, FAR, TEXTS), NO_KNOBS),
    (FEW, ("fine-tune, rate of b-tuning", "distill-weighted", "ema", "mixup", "b-tuning, uniform")),
    ((FAR,), ("feature kd", "logit-kd, weak")),
    (FEW, ("untrained b-tuning teachers", "b-tuning, left out", "soup of four runs", "lora")),
    ((SICK,), ("fine-tune", "b-tuning", "features beside b-tuning")),
    ((HEADS,), ("feature kd",)),
    ((FAR, TEXTS, "fashion-mnist-500/cifar10_resnet20", HEADS), (UPPER,)),
    (tuple(MEDIUM), ("logit-kd, weak",)),
    (FEW, ("b-tuning, precision", "b-tuning with mixup and ema", "b-tuning, one teacher", "b-tuning, tuned teachers")),
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
def open_task(set_name: str, train_samples: int | None) -> Any:
    task = open_set(set_name)
    if ROWS is not None:
        return smaller(task, ROWS)
    return task if train_samples is None else task.subset(train_samples, seed=0)


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
    task = open_task(case.set_name, case.train_samples)
    student = case.teachers[0] if options.pop("of_teacher", False) else case.student
    names: tuple[str, ...] = () if taught_by is None else case.teachers[:taught_by] or (case.student,)
    per_target = options.pop("per_target", False)
    if strength is not None:
        options["trade_off"] = strength * (len(task.target_names) if per_target else 1)
    start = time.perf_counter()
    answers = shuffled_answers() if options.pop("shuffled", False) else nullcontext()
    try:
        tuned_first, runs = options.pop("tuned", False), options.pop("soup", 0)
        trained = not options.pop("untrained", False)
        teachers = [tuned_teacher(case, name) if tuned_first else opened(name, case, trained=trained) for name in names]
        given = (case, student, teachers, method, setting.learning_rate)
        if runs:
            from hubscout.tuning import soup

            tuned = soup(task, [tuned_run(*given, seed=100 * setting.seed + k, **options) for k in range(runs)])
        else:
            with answers:
                tuned = tuned_run(*given, seed=setting.seed, **options)
    except DivergedError as error:  # a result of the setting
        return {**result, "validation": -1.0, "test": None, "error": str(error)}
    values = {part: tuned.metric(part).value for part in ("validation", "test")}
    return {
        **result,
        **values,
        "metric": next(iter(tuned.metrics["test"])),
        **({"found_rate": tuned.arguments.learning_rate} if METHODS[setting.method].get("no_knobs") else {}),
        "seconds": round(time.perf_counter() - start, 1),
    }


def tuned_run(
    case: Case, student: str, teachers: list[Any], method: str, learning_rate: float, *, seed: int, **options: Any
) -> Any:
    """One run with what all have in common."""
    from hubscout.features import FeatureCache
    from hubscout.tuning import tune

    task = open_task(case.set_name, case.train_samples)
    texts = task.modality in ("text", "text-pair")
    knobs = {
        "batch_size": 64,
        "learning_rate": learning_rate,
        "restarts": 0,
        "frozen_norm_statistics": not student.startswith("cifar10_"),
    }
    return tune(
        task,
        opened(student, case),
        teachers,
        method,
        **{"steps": STEPS, "feature_trade_off": 0.0, **({} if options.pop("no_knobs", False) else knobs), **options},
        seed=seed,
        augment="none" if task.kind == "regression" else "standard",
        cache=FeatureCache(CACHE / "features"),
        data_in_memory=not texts,
        workers=0,
        evaluation_batch_size=256,
        bootstrap_resamples=2,
        validate_every_epochs=STEPS / 4 / -(-len(task.train) // 64),
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


def shuffled_answers() -> AbstractContextManager[Any]:
    """Give each sample the answer for another one: what is left of a gain is not knowledge."""
    import numpy as np

    from hubscout.tuning.teacher_answers import TeacherPanel

    given = TeacherPanel.cached_predictions

    def shuffled(self: Any, *, left_out: bool = False) -> Any:
        answers = given(self, left_out=left_out)
        return answers if left_out else answers[np.random.default_rng(0).permutation(len(answers))]

    return patch.object(TeacherPanel, "cached_predictions", shuffled)


def work(setting: Setting) -> dict[str, Any]:
    import warnings

    warnings.simplefilter("ignore")
    try:
        if setting.method.startswith(TEACHER):
            tune_teacher(setting)
            return {"key": setting.key, **asdict(setting), "prepared": True}
        return run_one(setting)
    except Exception as error:
        return {"key": setting.key, **asdict(setting), "failed": f"{type(error).__name__}: {error}"[:300]}


def explored() -> list[Setting]:
    """The runs of the exploration, a seed of everything before the next."""
    return [
        Setting(case, name, rate, strength, seed)
        for seed in EXPLORATION_SEEDS
        for case, rate in EXPLORATION.items()
        for name, (_, strength, _) in EXPLORED.items()
    ]


class Plan:
    """What is to be run next: the searches, then the fresh seeds of each method that is searched."""

    def __init__(
        self, done: dict[str, dict[str, Any]], cases: list[str], methods: list[str], *, explores: bool = False
    ) -> None:
        self.done, self.begun, self.explores = done, set(done), explores
        pairs = [(case, method) for many, worth in WORTH for case in many for method in worth if fits(case, method)]
        self.pairs = [(c, m) for c, m in dict.fromkeys(pairs) if c in cases and m in methods]

    def ready(self) -> Iterator[Setting]:
        if self.explores:
            yield from (s for s in explored() if s.key not in self.begun)
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
                fresh = [replace(chosen, seed=seed) for seed in SEEDS]
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
    parser.add_argument("--plan", choices=["table", "explore"], default="table")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "runs.jsonl")
    parser.add_argument("--try", dest="tried", action="store_true", help="One run of two steps on 48 rows for each.")
    given = parser.parse_args()
    if given.tried and ROWS is None:  # workers read it from their environment
        settings = {"HUBSCOUT_EXPERIMENT_ROWS": "48", "HUBSCOUT_EXPERIMENT_STEPS": "2"}
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **settings})
    lines = given.out.read_text().splitlines() if given.out.is_file() else []
    lines = [line for line in lines if '"failed"' not in line]  # is tried again
    plan = Plan(
        {r["key"]: r for r in map(json.loads, lines)}, given.cases, given.methods, explores=given.plan == "explore"
    )
    end = time.monotonic() + given.seconds
    pool = ProcessPoolExecutor(given.workers, multiprocessing.get_context("spawn"))
    running: set[Future[dict[str, Any]]] = set()
    with given.out.open("a") as file:
        while True:
            if time.monotonic() < end:
                for setting in islice(plan.ready(), given.workers - len(running)):
                    plan.begun.add(setting.key)
                    running.add(pool.submit(work, setting))
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                running.remove(future)
                record = future.result()
                plan.done[record["key"]] = record
                if "prepared" not in record:  # it lies in the cache of this machine alone
                    file.write(json.dumps(record) + "\n")
                    file.flush()
                print(
                    record["case"],
                    record["method"],
                    record["seed"],
                    record.get("test", record.get("failed")),
                    flush=True,
                )
    if given.plan == "explore":
        print(json.dumps(choose(plan.done.values()), indent=1))


if __name__ == "__main__":
    main()
