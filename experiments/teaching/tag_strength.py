"""How strong B-Tuning's teachers should be for tags: chosen on phrases, judged on entities. A CPU is enough.

    python experiments/teaching/tag_strength.py chunks-200/paraphrase-MiniLM-L3-v2 31 32 33
    python experiments/teaching/tag_strength.py entities-200/paraphrase-MiniLM-L3-v2 1 2 3

`kinds.py` left open whether the strength or the learning rate costs 4 points of F1 on entities: the search took 0.0008
beside teachers and 0.0002 without. Here all runs have 0.0002, 300 steps and batches of 48, and no linear probe.

The rule, from before the runs: the λ among C, 3 and 1 with the best mean validation on the phrases; of two that are
within half a point, the weaker. Each line of `results/tag_strength.jsonl` is a run.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import kept
import kinds
import run as teaching

from hubscout.tuning.arguments import TuningArguments

OUT = Path(__file__).resolve().parent / "results" / "tag_strength.jsonl"
RATE = 0.0002
STRENGTHS = {"fine-tune": None, "b-tuning, C": "C", "b-tuning, 3": 3.0, "b-tuning, 1": 1.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=[case.name for case in kinds.CASES])
    parser.add_argument("seeds", type=int, nargs="+")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    kept.share(teaching.CACHE / "kept")
    case = teaching.CASES[given.case]
    lines = OUT.read_text().splitlines() if OUT.is_file() else []
    done = {(r["case"], r["method"], r["seed"]) for r in map(json.loads, lines)}
    targets = len(teaching.open_task(case.set_name, case.train_samples, case.unused).target_names)
    for seed in given.seeds:
        for method, strength in STRENGTHS.items():
            if (given.case, method, seed) in done:
                continue
            options: dict[str, object] = {"batch_size": TuningArguments.batch_size, "linear_probe": False}
            teachers = []
            if strength is not None:
                options["trade_off"] = float(targets) if strength == "C" else strength
                teachers = [kept.opened_once(teaching.opened(name, case)) for name in case.teachers]
            began = time.process_time()
            base = "fine-tune" if strength is None else "b-tuning"
            tuned = teaching.tuned_run(case, case.student, teachers, base, RATE, seed=seed, **options)
            record = {
                "case": given.case,
                "method": method,
                "seed": seed,
                **{part: tuned.metric(part).value for part in ("validation", "test")},
                "processor_seconds": round(time.process_time() - began, 1),
            }
            with OUT.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
