"""Whether heads that have not seen the sample make teachers useful for numbers, as they do for classes.

    python experiments/teaching/crossed_numbers.py        # goes on where it stopped; hours on a core

Runs without knobs and without a linear probe, as in `kinds.py`, on a CPU (float32, not compared with the runs there).
The rule, from before the runs: crossed heads at λ = 1 become the default for numbers if on both sets that choose they
are ahead of the paper's form at λ = 1 and at most a point behind fine-tuning. `JUDGE` then judges them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import kinds  # noqa: E402, F401  (its cases)
import run  # noqa: E402
from run import Setting, work  # noqa: E402

OUT = HERE / "results" / "crossed_numbers.jsonl"
CHOOSE, JUDGE = (
    ("few-sprites-500/cifar10_resnet20", "sign-number-500/cifar10_resnet20"),
    "pet-heads-500/" + run.MOBILENET,
)
SEEDS = (41, 42)
TAUGHT = {"method": "b-tuning", "no_knobs": True, "linear_probe": False, "teachers": 3, "fixed": 1.0}
run.METHODS |= {
    "numbers, fine-tune": {"method": "fine-tune", "no_knobs": True, "linear_probe": False},
    "numbers, paper": {**TAUGHT, "posterior_folds": 1},
    "numbers, crossed": {**TAUGHT, "posterior_folds": 5},
}
NAMES = ("numbers, fine-tune", "numbers, crossed", "numbers, paper")


def main() -> None:
    done = {json.loads(line)["key"] for line in OUT.read_text().splitlines()} if OUT.is_file() else set()
    plan = [Setting(case, name, 0.0, None, seed) for seed in SEEDS for case in CHOOSE for name in NAMES]
    plan += [Setting(JUDGE, name, 0.0, None, seed) for seed in (1, 2, 3) for name in NAMES]
    for setting in plan:
        if setting.key not in done:
            record = work(setting)
            with OUT.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(setting.case, setting.method, setting.seed, record.get("test", record.get("failed")), flush=True)


if __name__ == "__main__":
    main()
