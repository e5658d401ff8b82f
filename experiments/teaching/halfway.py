"""Whether a model should follow its teachers, the labels, or what lies halfway between them.

    python experiments/teaching/halfway.py --workers 2        # goes on where it stopped; two hours on two cores
    python experiments/teaching/halfway.py --workers 2 --plan tuned-teachers

With teachers B-Tuning is clearly behind fine-tuning on TREC at searched rates and on pet heads without knobs; with the
labels in their place it is ahead on TREC, and less ahead on Pets (README.md). Halfway is the plainest compromise. All
runs are on a CPU, in bf16 as those on a GPU (those of `crossed_numbers.py`, which choose for numbers, in float32), and
are compared with each other alone. The rule, from before the runs:

- **Classes**, through crossed heads at 6·C with the bound: halfway becomes the default if on the cases that choose
  (`CHOOSE`, validated on unused train samples, differences to fine-tuning cut to three points) its mean is not below
  that of the teachers alone, and no case is more than a point below fine-tuning. `TEXTS` (at searched rates) and `FEW`
  (at the rate that `run.py` found) judge it.
- **Numbers**, in the paper's form at λ = 1: halfway becomes the default if its mean over the two sets of
  `crossed_numbers.py` is not below that of the teachers alone. `HEADS` judges it, without knobs.

What differs from that plan: there was time for two of four rates on TREC, for one seed of most cases that choose and
for none of AG News; few images of CIFAR-10, and teachers of random weights, were added after the first looks.

Last came a teacher of texts that is tuned first (`--plan tuned-teachers`): halfway to it, at the rate of halfway to
the frozen one, and distillation of its answers, with a search of its own. No default hangs on it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import crossed_numbers  # noqa: E402
import run  # noqa: E402
from run import FEW, HEADS, TEXTS, Setting, Worker, finished  # noqa: E402

OUT = HERE / "results" / "halfway.jsonl"
run.LOOK_AHEAD = 2  # what answers most comes first
BF16 = {"mixed_precision": "bf16"}
CROSSED = {"method": "b-tuning", "fixed": 6.0, "per_target": True, "posterior_folds": 5, "bound": 0.25, **BF16}
TUNED, TAUGHT, HALF, LABELS = "fine-tune, bf16", "teachers", "halfway", "labels"
NUMBERS_HALF = "numbers, halfway"
NO_KNOBS = {TUNED: "numbers, fine-tune, bf16", TAUGHT: "numbers, paper, bf16", HALF: "numbers, halfway, bf16"}
run.METHODS |= {
    TUNED: {"method": "fine-tune", **BF16},
    TAUGHT: {**CROSSED, "teachers": 3},
    HALF: {**CROSSED, "teachers": 3, "label_share": 0.5},
    LABELS: CROSSED,
    NUMBERS_HALF: {**run.METHODS["numbers, paper"], "label_share": 0.5},
    NO_KNOBS[TUNED]: {**run.METHODS["numbers, fine-tune"], **BF16},
    NO_KNOBS[TAUGHT]: {**run.METHODS["numbers, paper"], **BF16},
    NO_KNOBS[HALF]: {**run.METHODS["numbers, paper"], "label_share": 0.5, **BF16},
}
UNTRAINED = {name: f"{name}, untrained" for name in (TAUGHT, HALF)}
"""With teachers of random weights: what bad ones cost."""
run.METHODS |= {called: {**run.METHODS[name], "untrained": True} for name, called in UNTRAINED.items()}
TUNED_FIRST, TUNED_ANSWERS = "halfway, tuned teacher", "answers of a tuned teacher"
run.METHODS |= {
    TUNED_FIRST: {**run.METHODS[HALF], "tuned": True},
    TUNED_ANSWERS: {**run.METHODS["logit-kd, one tuned teacher"], **BF16},
}
CHOOSE = {
    "fashion-mnist-1000/cifar10_resnet20/unused": 0.03,
    "pets-740/mobilenetv2_coral_in1k/unused": 0.0004,
    "cr-300/paraphrase-MiniLM-L3-v2/unused": 0.0001,
    "agnews-300/paraphrase-MiniLM-L3-v2/unused": 0.0001,
}
CHOOSING, JUDGING = (61, 62), (1, 2, 3, 4, 5)
TEXT_RATE, FEW_RATES = 0.00015, dict(zip(FEW, (0.0004, 0.0001), strict=True))
"""Of fine-tuning, that `run.py` found; on few images also of crossed heads at 6·C."""
TEXT_RATES = (0.00015, 0.0005)
"""That are searched on TREC: of the four of `run.py` those that were best for fine-tuning and for crossed heads."""


class Plan:
    """A seed of everything that chooses, what judges, then the next seed."""

    def __init__(self, done: dict[str, dict[str, Any]]) -> None:
        self.done, self.begun = done, set(done)

    def ready(self) -> Iterator[Setting]:
        return (setting for setting in self._all() if setting.key not in self.begun)

    def _best(self, settings: list[Setting]) -> Setting | None:
        """The one that validation chooses, once all are done."""
        found = [self.done[s.key] for s in settings if s.key in self.done]
        if len(found) < len(settings):
            return None
        best = max(found, key=lambda r: (r["validation"], -r["learning_rate"]))
        return next(s for s in settings if s.key == best["key"])

    def _all(self) -> Iterator[Setting]:
        yield from self._choosing(CHOOSING[0], *list(CHOOSE)[:-1])
        searches = {name: [Setting(TEXTS, name, rate, None, 0) for rate in TEXT_RATES] for name in (HALF, TAUGHT)}
        for settings in searches.values():
            yield from settings
        best = {TUNED: Setting(TEXTS, TUNED, TEXT_RATE, None, 0)}
        for name, settings in searches.items():
            if chosen := self._best(settings):
                best[name] = chosen
        yield from (replace(one, seed=seed) for seed in JUDGING for one in best.values())
        for seed in crossed_numbers.SEEDS:
            yield from (Setting(case, NUMBERS_HALF, 0.0, None, seed) for case in crossed_numbers.CHOOSE)
        few = [Setting(case, name, rate, None, 0) for case, rate in FEW_RATES.items() for name in (TUNED, TAUGHT, HALF)]
        yield from (replace(one, seed=seed) for seed in JUDGING[:3] for one in few)
        bad = [replace(one, method=UNTRAINED[one.method]) for one in few if one.method in UNTRAINED]
        yield from (replace(one, seed=JUDGING[0]) for one in bad)
        yield from self._choosing(CHOOSING[1], *list(CHOOSE)[:-1])
        yield from self._choosing(CHOOSING[0], list(CHOOSE)[-1])
        yield from (Setting(HEADS, name, 0.0, None, seed) for seed in JUDGING for name in NO_KNOBS.values())
        yield from (replace(one, seed=seed) for seed in JUDGING[3:] for one in few)

    def _choosing(self, seed: int, *cases: str) -> Iterator[Setting]:
        for case in cases:
            yield from (Setting(case, name, CHOOSE[case], None, seed) for name in (TUNED, TAUGHT, HALF, LABELS))


class TunedTeachers(Plan):
    """The teacher of texts at two rates, then a seed of everything that follows it."""

    def _all(self) -> Iterator[Setting]:
        case = run.CASES[TEXTS]
        names = [(name, rate) for name in case.teachers for rate in run.rates_of_teacher(case)[:2]]
        missing = [pair for pair in names if not run.teacher_folder(case, *pair).exists()]
        yield from (Setting(TEXTS, run.TEACHER + name, rate, None, run.SEARCH_SEED) for name, rate in missing)
        if missing:
            return
        halfway = self._best([Setting(TEXTS, HALF, rate, None, 0) for rate in TEXT_RATES])
        assert halfway is not None, "run the plan of halfway first"
        yield from (searched := run.search(TEXTS, TUNED_ANSWERS))
        best = [replace(halfway, method=TUNED_FIRST), *filter(None, [self._best(searched)])]
        yield from (replace(one, seed=seed) for seed in JUDGING for one in best)


PLANS = {"halfway": Plan, "tuned-teachers": TunedTeachers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="Begin no run after so long.")
    parser.add_argument("--plan", choices=list(PLANS), default="halfway")
    given = parser.parse_args()
    lines = OUT.read_text().splitlines() if OUT.is_file() else []
    done = {r["key"]: r for r in map(json.loads, lines) if "failed" not in r}  # which are tried again
    began = time.monotonic()
    with OUT.open("a") as file:
        plan: Any = PLANS[given.plan](done)
        for record in finished(plan, [Worker() for _ in range(given.workers)], began + given.seconds):
            if "prepared" not in record:  # it lies in the cache of this machine alone
                file.write(json.dumps(record) + "\n")
                file.flush()
            told = record.get("validation"), record.get("test", record.get("failed"))
            print(
                f"{time.monotonic() - began:4.0f} s",
                record["case"],
                record["method"],
                record["seed"],
                *told,
                flush=True,
            )


if __name__ == "__main__":
    main()
