"""Predictions of a network for a split, from all processes, each sample once and in order, and how good they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from hubscout.tasks import Split, Task, task_metrics
from hubscout.tasks.kinds import kind_of
from hubscout.tuning.arguments import TuningArguments
from hubscout.tuning.batches import MODEL, Batches
from hubscout.tuning.network import Network
from hubscout.tuning.processes import gather_in_order

if TYPE_CHECKING:
    from accelerate import Accelerator

Outcome = tuple[np.ndarray, np.ndarray, np.ndarray | None]
"""Predictions and targets by row, and the sample of each row where that is a word."""


def predict_split(
    network: Network, batches: Batches, samples: int, accelerator: Accelerator, batch_size: int
) -> np.ndarray:
    """(rows, outputs) decoded predictions of the first `samples` samples.

    Each process takes a range of them: nothing is padded, so nothing is counted twice.
    """
    own = np.array_split(np.arange(samples), accelerator.num_processes)[accelerator.process_index]
    was_training = network.training
    network.eval()
    outputs = []
    with torch.no_grad(), accelerator.autocast():
        for share in batches.evaluate(own, batch_size):
            outputs.append(network.predict(share.to(accelerator.device).views[MODEL]).double())
    network.train(was_training)
    part = network.loss.decode(torch.cat(outputs)) if outputs else None
    return np.concatenate([found for found in gather_in_order(accelerator, part) if found is not None])


@dataclass(frozen=True)
class Evaluator:
    """Measures a network on the splits of a task."""

    task: Task
    arguments: TuningArguments
    accelerator: Accelerator

    def values(self, network: Network, batches: Batches, split: Split) -> dict[str, float]:
        """The metrics on a split, the one that validation goes by first."""
        predicted, targets, groups = self.outcome(network, batches, split)
        names = self.task.target_names
        return task_metrics.values(self.task.kind, predicted, targets, groups=groups, target_names=names)

    def outcomes(self, network: Network, parts: Mapping[str, tuple[Split, Batches]]) -> dict[str, Outcome]:
        """What the network makes of every split that has samples."""
        return {name: self.outcome(network, batches, split) for name, (split, batches) in parts.items() if len(split)}

    def measure(self, outcomes: Mapping[str, Outcome]) -> dict[str, dict[str, task_metrics.MetricValue]]:
        """The metrics with their intervals, by split."""
        return {
            name: task_metrics.values_with_intervals(
                self.task.kind,
                predicted,
                targets,
                groups=groups,
                target_names=self.task.target_names,
                resamples=self.arguments.bootstrap_resamples,
                confidence=self.arguments.confidence,
            )
            for name, (predicted, targets, groups) in outcomes.items()
        }

    def outcome(self, network: Network, batches: Batches, split: Split) -> Outcome:
        """Predictions and targets by row, and the sample of each row where that is a word."""
        size = self.arguments.evaluation_batch_size or 2 * self.arguments.batch_size
        predicted = predict_split(network, batches, len(split), self.accelerator, size)
        kind = kind_of(self.task.kind)
        return predicted, kind.rows_of(split.targets), kind.sample_of_row(split.targets)
