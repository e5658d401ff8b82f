"""What fine-tuning gives on the sets of `sets.py`: `results/references.jsonl`, one line per trial.

    python experiments/text_layers/tuned.py                      # all sets; a quarter of an hour on one core
    python experiments/text_layers/tuned.py --sets subj mpqa

A short protocol that a busy CPU can do: AdamW, 80 steps of 16, learning rate 3e-4, weight decay 0.01, texts cut to 48
tokens, seed 0. What is in the file is not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import shared_hub  # noqa: E402
from sets import SETS, open_set  # noqa: E402

OUT = HERE / "results" / "references.jsonl"
RATE = 3e-4
STEPS, BATCH, TOKENS = 80, 16, 48


def trial(set_name: str, model: str) -> dict[str, object]:
    """One fine-tuning, by the mean of the tokens as it is ranked."""
    from hubscout.tuning.reference_search import reference

    opened = shared_hub.text_identifier(model, pooling="mean", max_length=str(TOKENS))
    task = open_set(set_name)
    started, cpu = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        found = reference(
            task,
            [opened],
            out=folder,
            grid=[(RATE, 0.01)],
            seed=0,
            steps=STEPS,
            batch_size=BATCH,
            evaluation_batch_size=64,
            validate_every_epochs=STEPS / -(-len(task.train) // BATCH),
            data_in_memory=True,
        ).best(opened)
    return {
        "set": set_name,
        "model": model,
        "learning_rate": RATE,
        "steps": STEPS,
        "validation": found.validation,
        "test": found.test,
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - cpu,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    arguments = parser.parse_args()
    OUT.parent.mkdir(exist_ok=True)
    lines = OUT.read_text().splitlines() if OUT.is_file() else []
    done = {(record["set"], record["model"]) for record in map(json.loads, lines)}
    for set_name in arguments.sets:
        for model in shared_hub.TEXT:
            if (set_name, model) not in done:
                record = trial(set_name, model)
                with OUT.open("a") as file:
                    file.write(json.dumps(record) + "\n")
                print(record, flush=True)


if __name__ == "__main__":
    main()
