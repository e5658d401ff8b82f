"""One process of a run that the tests start with torchrun: `torchrun --nproc-per-node N distributed_run.py OUT ...`."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from torch import Tensor, nn
from tuning_networks import make_task, perceptron

from hubscout.tuning import tune


class Sleep(nn.Module):
    """A layer that takes its time."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, inputs: Tensor) -> Tensor:
        time.sleep(self.seconds)
        return inputs


def main(
    out: Path,
    steps: int,
    resume: bool,
    method: str,
    learning_rate: float | None = None,
    budget: float | None = None,
    slow_teacher: float = 0.0,
) -> None:
    torch.set_num_threads(1)
    settings: dict = {"steps": 12, "batch_size": 16, "keep_best": False, "checkpoint_every_steps": 6, "l2_sp": 0.01}
    settings |= {"bootstrap_resamples": 20, "observer": _stopper(steps)}
    if learning_rate is not None:
        settings |= {"learning_rate": learning_rate, "head_learning_rate": learning_rate}
    if budget is not None:
        settings |= {"steps": None, "budget": budget, "mixup": 0.2, "ema": 0.9}
    if method != "fine-tune":
        settings["trade_off"] = 1.0
    teachers = [] if method == "fine-tune" else [perceptron(1), perceptron(2, width=24)]
    if slow_teacher:  # seconds for each of its three batches
        teachers[1].module.body.insert(0, Sleep(slow_teacher))
    tuned = tune(
        make_task(n=600 if slow_teacher else 50),
        perceptron(0),
        teachers,
        method=method,
        out=out,
        resume=resume,
        **settings,
    )
    rank = os.environ.get("RANK", "0")
    weights = [value.tolist() for value in tuned.head.parameters()]
    (out / f"result-{rank}.json").write_text(
        json.dumps(
            {
                "metrics": tuned.metrics_record(),
                "head": weights,
                "notes": list(tuned.notes),
                "steps": tuned.steps,
                "teachers": list(tuned.teachers),
            }
        )
    )


def _stopper(steps: int):
    def observe(event: object) -> None:
        if getattr(event, "step", 0) > steps:
            os._exit(9)

    return observe


if __name__ == "__main__":
    rate = float(sys.argv[5]) if len(sys.argv) > 5 else None
    seconds = float(sys.argv[6]) if len(sys.argv) > 6 else None
    slow_teacher = float(sys.argv[7]) if len(sys.argv) > 7 else 0.0
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "resume", sys.argv[4], rate, seconds, slow_teacher)
