"""The null model: what is achieved by saying the same of every input. A tuned model that is worse is no result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hubscout.tasks import task_metrics
from hubscout.tasks.kinds import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hubscout.tasks import Task
    from hubscout.tuning.losses import TaskLoss
    from hubscout.tuning.row_targets import Rows


def guess(task: Task) -> np.ndarray:
    """(C,) what to say of every input: the mean of the numbers, or how frequent each class or label is in train."""
    return kind_of(task.kind).null_prediction(task.train.targets, len(task.target_names))


def null_loss(task: Task, loss: TaskLoss, rows: Rows) -> float:
    """The mean loss of the guess on the train split."""
    targets = rows.targets.cpu()
    return float(loss(loss.outputs_of(guess(task)[None]).expand(len(targets), -1), targets).mean())


@dataclass(frozen=True)
class Verdict:
    """Whether a model is worse than the guess, and the words for it."""

    task: Task

    def warning(self, metrics: Mapping[str, Mapping[str, task_metrics.MetricValue]]) -> str:
        """Empty where the model is at least as good as the guess on every split that was measured."""
        worse = []
        for split, found in metrics.items():
            name, value = next((name, metric.value) for name, metric in found.items())
            best_guess = self.guess(split)
            if not value >= best_guess - 1e-9:  # NaN is worse as well
                worse.append(f"{split} {name} {value:.4f}, and {best_guess:.4f} by {self._what}")
        if not worse:
            return ""
        return (
            f"This model is worse than guessing: {'; '.join(worse)}. Do not use it. Try another learning_rate, more "
            "epochs, frozen_norm_statistics=True, or another model."
        )

    def guess(self, split: str) -> float:
        """The primary metric of the guess on a split."""
        task, kind, targets = self.task, kind_of(self.task.kind), self.task.splits[split].targets
        found = task_metrics.guess_values(
            task.kind,
            guess(task),
            kind.rows_of(targets),
            groups=kind.sample_of_row(targets),
            target_names=task.target_names,
        )
        return next(iter(found.values()))

    @property
    def _what(self) -> str:
        return kind_of(self.task.kind).null_words(guess(self.task), self.task.target_names)
