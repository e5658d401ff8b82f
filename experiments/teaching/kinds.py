"""How strong teachers should be by default where samples have several labels, numbers or tags, or are pairs.

    python experiments/teaching/kinds.py --workers 16 --seconds 120       # goes on where it stopped
    python experiments/teaching/kinds.py --try --out scratch/try.jsonl    # two steps of each method and case
    python experiments/teaching/kinds_table.py                            # kinds_table.md

What λ should be relative to. The task's loss is a mean over labels or columns, or one cross-entropy per row. A model
that knows nothing but frequencies has a loss of 1 in deviations of a number; about 3.5 times the variance of a label
for several labels (H(p) / p(1 − p): 2.8 at p = 0.5, 4.6 at 0.03); log C for classes, where the variances sum to about
1. So the two parts of B-Tuning are *alike* at λ = 1 for numbers, 3 for several labels (C is C/3 times too much), 3·C
for classes, and for tags too. Of the labels' noise the teachers know at most all: what they are off by for samples
left out. A teacher that explains a share R² of the variance left out is then worth λ·R² at most (*explained*). For
numbers there is also the ratio of signal to noise, R² / (1 − R²). The features of `kd` have a size of their own: a
tenth and a hundredth of the loss of knowing nothing, over the mean square of the teachers' features.

`kind_rule.py` has the rule by which one is chosen, from before the runs, and the sets on which it is judged. All runs
are without knobs: 300 steps, batches of 48, the learning rate that the run finds; and no linear probe, which would
hide how far training ends below it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import numpy as np  # noqa: E402
import run  # noqa: E402
from kind_rule import BASE, CHOOSING, JUDGING, KINDS, L3, RESNET20, results_of  # noqa: E402
from kind_sets import register  # noqa: E402
from run import BOTH_SENTENCES, LARGE, MOBILENET, ROWS, Case, Setting, Worker, finished  # noqa: E402

from hubscout.tasks.kinds import kind_of  # noqa: E402
from hubscout.tuning.methods.b_tuning import target_scale  # noqa: E402
from hubscout.tuning.methods.distillation import DEFAULT_SUM  # noqa: E402

register()
SMALL = ("tf_efficientnet_lite2_in1k", "tf_efficientnet_lite1_in1k")
NONE = (0.0, 0.0, 0.0, 0.0)
"""No rates: every run finds its own."""
CASES = (
    Case("fashion-attributes", 500, RESNET20, SMALL, NONE),
    Case("trec-pairs", 300, L3, BOTH_SENTENCES, NONE, None),
    Case("pets-pairs", 740, MOBILENET, LARGE, NONE),
    Case("agnews-pairs", 300, L3, BOTH_SENTENCES, NONE, None),
    Case("sign-number", 500, RESNET20, SMALL, NONE),
    Case("few-sprites", 500, RESNET20, SMALL, NONE),
    Case("pet-heads", 500, MOBILENET, LARGE, NONE),
    Case("few-sick-siamese", 500, L3, BOTH_SENTENCES, NONE, None),
    Case("chunks", 200, L3, BOTH_SENTENCES, NONE, None),
    Case("entities", 200, L3, BOTH_SENTENCES, NONE, None),
    Case("sick-entailment", 500, L3, BOTH_SENTENCES, NONE, None),
)
run.CASES |= {case.name: case for case in CASES}


def alike(task: Any) -> float:
    """λ of B-Tuning at which the two parts of the loss are alike for a model that knows nothing."""
    kind = kind_of(task.kind)
    return 1.0 if kind.is_real_valued else 3.0 if kind.has_label_sets else 3.0 * len(task.target_names)


def explained(method: Any, preparation: Any) -> float:
    """Share of the variance of the targets that the mixed teachers explain, for samples left out."""
    labels, scale = preparation.frozen_features.labels(), target_scale(preparation)
    off = (labels - method.panel.cached_predictions(left_out=True)) / scale
    return max(0.0, 1 - float(np.square(off).mean(axis=0).sum() / np.var(labels / scale, axis=0).sum()))


def null_loss(preparation: Any) -> float:
    """The task's loss of a model that knows the frequencies alone."""
    kind, labels = kind_of(preparation.task.kind), preparation.frozen_features.labels()
    if kind.is_real_valued:
        return 1.0
    frequency = np.clip(labels.mean(axis=0), 1e-12, 1 - 1e-12)
    entropies = -frequency * np.log(frequency)
    return float(
        (entropies - (1 - frequency) * np.log(1 - frequency)).mean() if kind.has_label_sets else entropies.sum()
    )


def of_features(share: float) -> Callable[[Any, Any], float]:
    """λ of `kd` at which features that are not followed at all cost that share of knowing nothing."""

    def strength(method: Any, preparation: Any) -> float:
        squares = [np.square(preparation.frozen_features.features(t)).sum(axis=1).mean() for t in preparation.teachers]
        return float(share * null_loss(preparation) / np.mean(squares))

    return strength


def signal_to_noise(method: Any, preparation: Any) -> float:
    known = explained(method, preparation)
    return known / max(1 - known, 0.01)


METHODS: dict[str, tuple[str, Callable[[Any, Any], float] | None]] = {
    "fine-tune": ("fine-tune", None),
    "b-tuning, C": ("b-tuning", lambda method, p: float(len(p.task.target_names))),
    "b-tuning, alike": ("b-tuning", lambda method, p: alike(p.task)),
    "b-tuning, explained": ("b-tuning", lambda method, p: alike(p.task) * explained(method, p)),
    "b-tuning, signal to noise": ("b-tuning", signal_to_noise),
    "kd, over the features": ("kd", lambda method, p: DEFAULT_SUM / np.mean([m.out_features for m in method.extra])),
    "kd, a tenth": ("kd", of_features(0.1)),
    "kd, a hundredth": ("kd", of_features(0.01)),
    "logit-kd, 0.3": ("logit-kd", lambda method, p: 0.3),
    "distill-weighted, 0.3": ("distill-weighted", lambda method, p: 0.3),
}
"""By name: a method of `tune`, and what its λ is."""
run.METHODS |= {
    name: {
        "method": method,
        "no_knobs": True,
        "linear_probe": False,  # which would hide how far training itself ends below it
        **({} if method == "fine-tune" else {"teachers": 3}),
    }
    for name, (method, _) in METHODS.items()
}


def strength(method: str) -> AbstractContextManager[Any]:
    """Have the method's λ be that of the candidate."""
    import hubscout.tuning.methods as methods

    name, rule = METHODS[method]
    if rule is None:
        return nullcontext()
    classes = {"b-tuning": methods.BTuning, "kd": methods.Distillation, "logit-kd": methods.LogitDistillation}
    changed = classes.get(name, methods.LogitDistillation)
    given = changed.prepare

    def prepare(self: Any, preparation: Any) -> None:
        given(self, preparation)
        self.trade_off = rule(self, preparation)
        strengths.append(self.trade_off)

    return patch.object(changed, "prepare", prepare)


strengths: list[float] = []
"""Of the runs of this process."""


def work(setting: Setting) -> dict[str, Any]:
    """The record of a run, with its λ."""
    strengths.clear()
    with strength(setting.method):
        record = run.work(setting)
    return {**record, **({"trade_off": strengths[-1]} if strengths else {})}


class KindWorker(Worker):
    """A process that knows these cases and candidates."""

    def begin(self, setting: Setting) -> Future[dict[str, Any]]:
        self.setting = setting
        self.cases.add(setting.case)
        return self.pool.submit(work, setting)


class Plan:
    """What chooses, then what judges, a seed of everything before the next."""

    def __init__(self, done: dict[str, dict[str, Any]], kinds: Sequence[str]) -> None:
        self.done, self.begun, self.kinds = done, set(done), [KINDS[name] for name in kinds]

    def ready(self) -> Iterator[Setting]:
        tests = results_of(self.done.values())
        found = [one for kind in self.kinds for one in kind.choosing()]
        found += [one for seed in JUDGING for kind in self.kinds for one in kind.judging(tests, seed)]
        if ROWS is not None:  # every method on a case, and two or three on every case
            cases, taught = [case for kind in self.kinds for case in (*kind.choose, *kind.judge)], list(METHODS)[1:]
            found = [(case, taught[k % len(taught)], CHOOSING[0]) for k, case in enumerate(cases)]
            found += [(case, taught[(k + 4) % len(taught)], CHOOSING[0]) for k, case in enumerate(cases)]
            found += [(case, BASE, CHOOSING[0]) for case in cases[:1]]
        settings = (Setting(case, method, 0.0, None, seed) for case, method, seed in found)
        return (setting for setting in settings if setting.key not in self.begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="Begin no run after so long.")
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--out", type=Path, default=HERE / "results" / "kinds.jsonl")
    parser.add_argument("--try", dest="tried", action="store_true", help="Runs of two steps on 200 rows.")
    given = parser.parse_args()
    if given.tried and ROWS is None:  # workers read it from their environment
        settings = {"HUBSCOUT_EXPERIMENT_ROWS": "200", "HUBSCOUT_EXPERIMENT_STEPS": "2"}
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **settings})
    given.out.parent.mkdir(parents=True, exist_ok=True)
    lines = given.out.read_text().splitlines() if given.out.is_file() else []
    done = {r["key"]: r for r in map(json.loads, lines) if "failed" not in r}  # which are tried again
    began = time.monotonic()
    plan, crew = Plan(done, given.kinds), [KindWorker() for _ in range(given.workers)]
    with given.out.open("a") as file:
        for record in finished(plan, crew, began + given.seconds):
            file.write(json.dumps(record) + "\n")
            file.flush()
            told = record.get("test", record.get("failed"))
            seconds = f"{time.monotonic() - began:4.0f} s"
            print(seconds, record["case"], record["method"], record["seed"], told, flush=True)


if __name__ == "__main__":
    main()
