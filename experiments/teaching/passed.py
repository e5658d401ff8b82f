"""What `tune` should do by default with teachers of numbers and tags.

    python experiments/teaching/passed.py --workers 16 --seconds 300  # goes on where it stopped
    python experiments/teaching/passed.py --try --out scratch/try.jsonl
    python experiments/teaching/passed_table.py                       # passed_table.md

Where labels are classes, B-Tuning follows what is halfway between teachers and labels, and was nowhere clearly behind
fine-tuning. For numbers and tags it follows the teachers alone, and was behind on some sets and ahead on others. All
runs are as users get them, without a rate and with the linear probe as their floor: 300 steps of 48 samples, bf16 on
one H200.

**The first round.** The candidate `open`: the first short run of the search for a rate is made without teachers, and if
that ends at or above the best linear probe of a teacher on validation, the run goes on without them. From before the
runs: it was thought of after whole runs on few sprites, digits as numbers and pet heads had been seen (on a CPU), and
after a short run of one seed on some other cases; `SEEN` has these sets and students. `FRESH` are pairs of a student
and a set on which no teaching was tried before. A candidate passes if on no case of `FRESH`, and not on SICK, the mean
of its gain over fine-tuning (0 where it leaves the teachers) is below zero by more than half a point, or clearly below
zero (the 95% interval of the seeds). The first of these that passes is the default for numbers, and apart from that for
tags:

1. `open` with λ = 1;
2. `open` with λ = 0.3: where `open` leaves the teachers 0, where it follows them what B-Tuning at 0.3 gains;
3. fine-tuning: teachers are then followed only where somebody asks for `method="b-tuning"`.

That gave fine-tuning for both.

**The second round** is for numbers alone, where fine-tuning gives away as much as it saves. The candidate `weighed`
leaves the teachers also where the short run is clearly above the linear probe of the model's own frozen features, by
the test with which a search climbs to a higher rate. It came from short runs of seed 1 of the first round's cases (on a
CPU): the short run was clearly above that probe wherever the teachers had cost, and nowhere where they had been a gain.
From before its runs: it is judged on `JUDGING`, other students, and other sizes, than in the first round, by what a
candidate passes by above; if it does not, fine-tuning stays.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import kinds  # noqa: E402
import run  # noqa: E402
from run import BOTH_SENTENCES, LARGE, LITE0, MOBILENET, ROWS, Case, Setting, Worker, finished  # noqa: E402

L3, MINILM, RESNET20, SQUEEZENET = "paraphrase-MiniLM-L3-v2", "sre-minilm", "cifar10_resnet20", "squeezenet1_1_in1k"
TUNED, TAUGHT, WEAK = "fine-tune, as it comes", "b-tuning, 1", "b-tuning, 0.3"
OPEN, WEIGHED = "open", "weighed"
"""`tune(method=None)`, as it was in the first round and as it was in the second."""
RESNET32, RESNET44, TFHUB, LARGER = "cifar10_resnet32", "cifar10_resnet44", "mobilenetv2_tfhub_in1k", "all-MiniLM-L6-v2"
AS_IT_COMES = {"no_knobs": True, "teachers": 3}
run.METHODS |= {
    TUNED: {"method": "fine-tune", "no_knobs": True},
    OPEN: {"method": None, **AS_IT_COMES},
    WEIGHED: {"method": None, **AS_IT_COMES},
    TAUGHT: {"method": "b-tuning", "fixed": 1.0, **AS_IT_COMES},
    WEAK: {"method": "b-tuning", "fixed": 0.3, **AS_IT_COMES},
}
SENTENCES = BOTH_SENTENCES[:1]
FRESH_CASES = (
    Case("few-sick", 500, L3, BOTH_SENTENCES, kinds.NONE, None),
    Case("few-sick-siamese", 500, MINILM, SENTENCES, kinds.NONE, None),
    Case("pet-heads", 500, LITE0, LARGE, kinds.NONE),
    Case("few-sprites", 500, SQUEEZENET, LARGE, kinds.NONE),
    Case("sign-number", 500, LITE0, LARGE, kinds.NONE),
    Case("speech", 200, L3, BOTH_SENTENCES, kinds.NONE, None),
    Case("few-sprites", 500, MOBILENET, LARGE, kinds.NONE),
    Case("pet-heads", 500, SQUEEZENET, LARGE, kinds.NONE),
    Case("entities", 200, MINILM, SENTENCES, kinds.NONE, None),
    Case("chunks", 200, MINILM, SENTENCES, kinds.NONE, None),
)
JUDGING_CASES = (
    Case("sign-number", 500, MOBILENET, LARGE, kinds.NONE),
    Case("few-sick", 500, MINILM, SENTENCES, kinds.NONE, None),
    Case("few-sprites", 500, LITE0, LARGE, kinds.NONE),
    Case("few-sick-siamese", 500, LARGER, (MINILM,), kinds.NONE, None),
    Case("pet-heads", 500, TFHUB, LARGE, kinds.NONE),
    Case("few-sick-siamese", 1500, L3, BOTH_SENTENCES, kinds.NONE, None),
    Case("sign-number", 500, SQUEEZENET, LARGE, kinds.NONE),
    Case("few-sick", 500, LARGER, (MINILM,), kinds.NONE, None),
    Case("few-sprites", 500, RESNET32, LARGE, kinds.NONE),
    Case("few-sprites", 2000, RESNET44, LARGE, kinds.NONE),
)
run.CASES |= {case.name: case for case in (*FRESH_CASES, *JUDGING_CASES)}
SICK = f"few-sick-siamese-500/{L3}"
FRESH, JUDGING = (tuple(case.name for case in cases) for cases in (FRESH_CASES, JUDGING_CASES))
SEEN = (
    f"pet-heads-500/{MOBILENET}",
    f"few-sprites-500/{RESNET20}",
    f"sign-number-500/{RESNET20}",
    f"entities-200/{L3}",
    f"chunks-200/{L3}",
)
SEEDS = (1, 2, 3, 4, 5)


TAGS = tuple(name for name in (*FRESH, *SEEN) if name.startswith(("speech", "entities", "chunks")))


class Plan:
    """The second round, a seed of everything before the next; then what it would have done in the first."""

    def __init__(self, done: dict[str, dict[str, Any]]) -> None:
        self.done, self.begun = done, set(done)

    def ready(self) -> Iterator[Setting]:
        first = (*FRESH, SICK, *SEEN)
        rounds = (
            (JUDGING, (TUNED, WEIGHED, TAUGHT)),
            ([name for name in first if name not in TAGS], (WEIGHED,)),
            (first, (TUNED, TAUGHT, WEAK)),
        )
        runs = ((case, name, seed) for cases, names in rounds for seed in SEEDS for case in cases for name in names)
        settings = (Setting(case, name, 0.0, None, seed) for case, name, seed in runs)
        return (one for one in settings if one.key not in self.begun and (ROWS is None or one.seed == 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="Begin no run after so long.")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "passed.jsonl")
    parser.add_argument("--try", dest="tried", action="store_true", help="Runs of ten steps on 200 rows.")
    given = parser.parse_args()
    if given.tried and ROWS is None:  # workers read it from their environment
        settings = {"HUBSCOUT_EXPERIMENT_ROWS": "200", "HUBSCOUT_EXPERIMENT_STEPS": "10"}
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **settings})
    given.out.parent.mkdir(parents=True, exist_ok=True)
    lines = given.out.read_text().splitlines() if given.out.is_file() else []
    done = {r["key"]: r for r in map(json.loads, lines) if "failed" not in r}  # which are tried again
    began = time.monotonic()
    with given.out.open("a") as file:
        for record in finished(Plan(done), [PassedWorker() for _ in range(given.workers)], began + given.seconds):  # type: ignore[arg-type]
            file.write(json.dumps(record) + "\n")
            file.flush()
            told = record.get("test", record.get("failed")), record.get("followed", "")
            seconds = f"{time.monotonic() - began:4.0f} s"
            print(seconds, record["case"], record["method"], record["seed"], *told, flush=True)


class PassedWorker(Worker):
    """A process that knows these cases."""

    def begin(self, setting: Setting) -> Future[dict[str, Any]]:
        self.setting = setting
        self.cases.add(setting.case)
        return self.pool.submit(run.work, setting)


if __name__ == "__main__":
    main()
