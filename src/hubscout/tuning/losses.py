"""The loss of each kind of task, one number a row, and what the head's outputs mean.

A row is a sample, or a word of a tagging task. Losses are not averaged here: the loop divides by the rows of the
whole batch, so that micro-batches and processes of unequal size weigh as they should.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hubscout.errors import TaskError
from hubscout.tasks import Task


@dataclass(frozen=True)
class TaskLoss:
    """What the head is trained for.

    Classification and tagging: cross-entropy. Multi-label: binary cross-entropy, averaged over the labels.
    Regression: squared error, averaged over the columns, of targets brought to mean 0 and deviation 1 on the train
    split; `offset` and `scale` lead back.
    """

    kind: str
    outputs: int
    label_smoothing: float = 0.0
    offset: np.ndarray | None = None
    scale: np.ndarray | None = None

    @classmethod
    def of(cls, task: Task, *, label_smoothing: float = 0.0) -> TaskLoss:
        """The loss of a task, with what it needs to know of the train split."""
        outputs = len(task.target_names)
        if task.kind != "regression":
            return cls(task.kind, outputs, label_smoothing=label_smoothing)
        targets = np.asarray(task.train.targets, dtype=np.float64)
        deviation = targets.std(axis=0)
        return cls(task.kind, outputs, offset=targets.mean(axis=0), scale=np.where(deviation > 0, deviation, 1.0))

    def encode(self, targets: np.ndarray) -> Tensor:
        """Targets as the loss takes them."""
        if self.kind in ("classification", "tagging"):
            return torch.as_tensor(np.asarray(targets, dtype=np.int64))
        values = np.asarray(targets, dtype=np.float64)
        if self.offset is not None and self.scale is not None:
            values = (values - self.offset) / self.scale
        return torch.as_tensor(values, dtype=torch.float32)

    def __call__(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """One loss a row."""
        if self.kind in ("classification", "tagging"):
            return functional.cross_entropy(
                predictions, targets, reduction="none", label_smoothing=self.label_smoothing
            )
        targets = targets.to(predictions.dtype)
        if self.kind == "multilabel":
            return functional.binary_cross_entropy_with_logits(predictions, targets, reduction="none").mean(dim=1)
        return functional.mse_loss(predictions, targets, reduction="none").mean(dim=1)

    def decode(self, predictions: Tensor) -> np.ndarray:
        """Head outputs as a user reads them: probabilities, or values in the targets' own units."""
        values = predictions.double()
        if self.kind in ("classification", "tagging"):
            return values.softmax(dim=1).cpu().numpy()
        if self.kind == "multilabel":
            return values.sigmoid().cpu().numpy()
        outputs = values.cpu().numpy()
        return outputs if self.offset is None or self.scale is None else outputs * self.scale + self.offset


def check_trainable(task: Task) -> None:
    """Raise where the train split cannot teach what the other splits ask."""
    if len(task.train) == 0:
        raise TaskError(f"The train split of {task.name!r} is empty.")
    if task.kind == "regression":
        if not np.isfinite(np.asarray(task.train.targets, dtype=np.float64)).all():
            raise TaskError(
                f"The train targets of {task.name!r} hold values that are not finite: leave those rows out."
            )
        return
    seen = _classes_seen(task.kind, task.train.targets)
    asked: set[int] = set()
    for name, split in task.splits.items():
        if name != "train" and len(split):
            asked |= _classes_seen(task.kind, split.targets)
    if missing := sorted(asked - seen):
        names = ", ".join(task.target_names[i] for i in missing[:10]) + (", …" if len(missing) > 10 else "")
        raise TaskError(
            f"The train split of {task.name!r} has no sample of {len(missing)} of {len(task.target_names)} labels that "
            f"validation or test ask for: {names}. Split the data anew, or leave these samples out."
        )
    if task.kind == "classification" and len(seen) < 2:
        raise TaskError(f"The train split of {task.name!r} has a single class: there is nothing to learn.")


def _classes_seen(kind: str, targets: np.ndarray | list[np.ndarray]) -> set[int]:
    if kind == "multilabel":
        return set(np.flatnonzero(np.asarray(targets).any(axis=0)).tolist())
    if kind == "tagging":
        return set(np.unique(np.concatenate([np.asarray(words) for words in targets])).tolist())
    return set(np.unique(np.asarray(targets)).tolist())
