"""Zoo-Tuning beside fine-tuning where batch norms follow the batches, in small: what frozen norms take from it.

    python experiments/tuning/moving_norms.py        # results/moving_norms.jsonl; a CPU will do

500 images of CIFAR-10, 150 steps, one seed. A run that is in the results is not run again.
"""

from __future__ import annotations

import json
import time

from run import BATCH_SIZE, HERE, MOBILENETS, TARGET, open_task, vision_identifier

STEPS = 150
SEED = 1
RESULTS = HERE / "results" / "moving_norms.jsonl"


def main() -> None:
    from hubscout.errors import DivergedError
    from hubscout.tuning import tune
    from hubscout.tuning.choices import heeded

    lines = RESULTS.read_text().splitlines() if RESULTS.is_file() else []
    done = {(record["method"], record["learning_rate"]) for record in map(json.loads, lines)}
    task = open_task("cifar10")
    for rate in (0.003, 0.01):
        for method in ("fine-tune", "zoo"):
            if (method, rate) in done:
                continue
            start = time.perf_counter()
            record = {"method": method, "learning_rate": rate, "steps": STEPS, "seed": SEED}
            try:
                tuned = tune(
                    task,
                    vision_identifier(TARGET),
                    [vision_identifier(name) for name in MOBILENETS] if method == "zoo" else [],
                    method,
                    steps=STEPS,
                    batch_size=BATCH_SIZE,
                    learning_rate=rate,
                    restarts=0,
                    seed=SEED,
                    frozen_norm_statistics=False,
                    data_in_memory=True,
                    validate_every_epochs=STEPS / 2 / -(-len(task.train) // BATCH_SIZE),
                    **heeded({"zoo_lite": True}, method),
                )
                record |= {"validation": tuned.metric("validation").value, "test": tuned.metric("test").value}
            except DivergedError as error:
                record |= {"validation": None, "test": None, "error": str(error)}
            record["seconds"] = round(time.perf_counter() - start, 1)
            with RESULTS.open("a") as file:
                file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
