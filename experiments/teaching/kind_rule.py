"""Which strength becomes the default for a kind of task: the rule, written down before the runs of `kinds.py`.

For each kind, and for B-Tuning and `kd` each: of the candidates that are on no case of `choose` more than a point below
fine-tuning in the mean over the seeds, the one with the highest mean over these cases of (test less fine-tuning's, cut
to three points either way); if there is none, the one whose worst case is best. Test decides there, since nothing is
judged on these sets.

What is chosen is then judged on the cases of `judge`: other sets, fresh seeds, and for images another student. It
becomes the default if it is nowhere clearly behind fine-tuning (an interval of 95%, paired by seed, below zero), and in
the mean over these cases not below the default so far. Otherwise the default stays, and the docs say what it costs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

MOST, LEAST = 3.0, -1.0
"""Points by which a case can speak for or against a candidate, and below which it rules one out."""
BASE = "fine-tune"
L3, RESNET20 = "paraphrase-MiniLM-L3-v2", "cifar10_resnet20"
KD = ("kd, over the features", "kd, a tenth", "kd, a hundredth")
"""Candidates of every kind, the default so far first."""
CHOOSING, JUDGING = (31, 32), (1, 2, 3, 4, 5)
"""Seeds. The second of those that choose is for ResNet-20 alone, whose runs are short."""
Run = tuple[str, str, int]
"""Case, method and seed."""


@dataclass(frozen=True)
class Kind:
    """The cases that choose for a kind of task, those that judge, and the candidates, the default so far first."""

    choose: tuple[str, ...]
    judge: tuple[str, ...]
    b_tuning: tuple[str, ...]

    def choosing(self) -> list[Run]:
        """The runs that choose."""
        return [
            (case, method, seed)
            for seed in CHOOSING
            for method in (BASE, *self.b_tuning, *KD)
            for case in self.choose
            if seed == CHOOSING[0] or RESNET20 in case
        ]

    def judging(self, tests: Mapping[Run, float | None], seed: int) -> list[Run]:
        """The runs of a seed that judge, as far as they are known: what is chosen comes after what is sure."""
        chosen = [name for many in (self.b_tuning, KD) if (name := self.choice(tests, many))]
        # For numbers it is the same as distillation of answers: mixing is linear there.
        rest = ["distill-weighted, 0.3"] if seed == JUDGING[0] and self is not KINDS["numbers"] else []
        names = dict.fromkeys((BASE, self.b_tuning[0], "logit-kd, 0.3", *chosen, KD[0], *rest))
        return [(case, name, seed) for name in names for case in self.judge]

    def choice(self, tests: Mapping[Run, float | None], candidates: Sequence[str]) -> str | None:
        """What the rule chooses; None where runs that it needs are missing."""
        if not self.choose or not all(run in tests for run in self.choosing()):
            return None
        found = {name: list(self.gains(tests, name).values()) for name in candidates}
        found = {name: points for name, points in found.items() if points}
        allowed = [name for name, points in found.items() if min(points) >= LEAST]
        if not allowed:
            return max(found, key=lambda name: min(found[name]), default=None)
        return max(allowed, key=lambda name: fmean(max(-MOST, min(MOST, one)) for one in found[name]))

    def gains(self, tests: Mapping[Run, float | None], name: str) -> dict[str, float]:
        """Points over fine-tuning on the cases that choose, in the mean over the seeds."""
        by_case: dict[str, list[float]] = defaultdict(list)
        for case, method, seed in self.choosing():
            test, base = tests.get((case, method, seed)), tests.get((case, BASE, seed))
            if method == name and test is not None and base is not None:
                by_case[case].append(100 * (test - base))
        return {case: fmean(points) for case, points in by_case.items()}


KINDS = {
    "several labels": Kind(
        (f"fashion-attributes-500/{RESNET20}", f"trec-pairs-300/{L3}"),
        ("pets-pairs-740/mobilenetv2_coral_in1k", f"agnews-pairs-300/{L3}"),
        ("b-tuning, C", "b-tuning, alike", "b-tuning, explained"),
    ),
    "numbers": Kind(
        (f"sign-number-500/{RESNET20}", f"few-sprites-500/{RESNET20}"),
        ("pet-heads-500/mobilenetv2_coral_in1k", f"few-sick-siamese-500/{L3}"),
        ("b-tuning, alike", "b-tuning, explained", "b-tuning, signal to noise"),
    ),
    "tags": Kind(
        (f"chunks-200/{L3}",),
        (f"entities-200/{L3}",),
        ("b-tuning, C", "b-tuning, alike", "b-tuning, explained"),
    ),
    "classes of pairs": Kind((), (f"sick-entailment-500/{L3}",), ("b-tuning, alike",)),
}


def results_of(records: Iterable[Mapping[str, Any]]) -> dict[Run, float | None]:
    """Test values by run: 0 for one that diverged, None for one that failed."""
    return {
        (r["case"], r["method"], r["seed"]): None if "failed" in r else (r["test"] if r["test"] is not None else 0.0)
        for r in records
    }
