"""One process of a run that the tests start with torchrun: `torchrun --nproc-per-node N distributed_run.py OUT ...`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from tuning_networks import make_task, perceptron

from hubscout.tuning import tune


def main(out: Path, steps: int, resume: bool, method: str) -> None:
    torch.set_num_threads(1)
    tuned = tune(
        make_task(n=50), perceptron(0), [perceptron(1), perceptron(2, width=24)], method=method, trade_off=1.0,
        steps=12, batch_size=16, keep_best=False, out=out, resume=resume, checkpoint_every_steps=6, l2_sp=0.01,
        bootstrap_resamples=20, observer=_stopper(steps),
    )  # fmt: skip
    rank = os.environ.get("RANK", "0")
    weights = [value.tolist() for value in tuned.head.parameters()]
    (out / f"result-{rank}.json").write_text(json.dumps({"metrics": tuned.metrics_record(), "head": weights}))


def _stopper(steps: int):
    def observe(event: object) -> None:
        if getattr(event, "step", 0) > steps:
            os._exit(9)

    return observe


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "resume", sys.argv[4])
