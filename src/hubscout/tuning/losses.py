"""The loss of each kind of task, one number per row, the targets by row, and what the head's outputs mean.

A row is a sample, or a word of a tagging task. Losses are not averaged here: the loop divides by the rows of the
whole batch, so that micro-batches and processes of unequal size weigh as they should.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hubscout.errors import InputError, TaskError
from hubscout.tasks import Split, Task
from hubscout.tasks.kinds import kind_of


def _cross_entropy(outputs: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none", label_smoothing=label_smoothing)


def _binary_cross_entropy(outputs: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    wanted = targets.to(outputs.dtype) * (1 - label_smoothing) + label_smoothing / 2
    return functional.binary_cross_entropy_with_logits(outputs, wanted, reduction="none").mean(dim=1)


def _squared_error(outputs: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    return functional.mse_loss(outputs, targets.to(outputs.dtype), reduction="none").mean(dim=1)


@dataclass(frozen=True)
class Likelihood:
    """What the outputs of a head mean: the loss of each row, and the way between outputs and probabilities."""

    loss: Callable[[Tensor, Tensor, float], Tensor]
    to_values: Callable[[Tensor], Tensor] | None = None
    """Outputs to probabilities; None where outputs are the numbers themselves."""
    to_outputs: Callable[[Tensor], Tensor] | None = None
    takes_ids: bool = False
    middle: float = 0.0
    """The value between the targets 0 and 1 whose output is 0; 0 where only differences between outputs count."""


_SOFTMAX = Likelihood(_cross_entropy, lambda outputs: outputs.softmax(dim=1), torch.log, takes_ids=True)
LIKELIHOODS = {
    "classification": _SOFTMAX,
    "multilabel": Likelihood(_binary_cross_entropy, torch.sigmoid, torch.logit, middle=0.5),
    "regression": Likelihood(_squared_error),
    "tagging": _SOFTMAX,
}


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
        if not kind_of(task.kind).is_real_valued:
            return cls(task.kind, outputs, label_smoothing=label_smoothing)
        if label_smoothing:
            raise InputError(f"label_smoothing={label_smoothing:g}: {task.name!r} has numbers, which are no labels.")
        targets = np.asarray(task.train.targets, dtype=np.float64)
        deviation = targets.std(axis=0)
        return cls(task.kind, outputs, offset=targets.mean(axis=0), scale=np.where(deviation > 0, deviation, 1.0))

    @property
    def likelihood(self) -> Likelihood:
        """What the outputs mean."""
        return LIKELIHOODS[kind_of(self.kind).name]

    def encode(self, targets: np.ndarray) -> Tensor:
        """Targets as the loss takes them."""
        if self.likelihood.takes_ids:
            return torch.as_tensor(np.asarray(targets, dtype=np.int64))
        values = np.asarray(targets, dtype=np.float64)
        if self.offset is not None and self.scale is not None:
            values = (values - self.offset) / self.scale
        return torch.as_tensor(values, dtype=torch.float32)

    def __call__(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """One loss per row."""
        return self.likelihood.loss(predictions, targets, self.label_smoothing)

    def decode(self, predictions: Tensor) -> np.ndarray:
        """Head outputs as a user reads them: probabilities, or values in the targets' own units."""
        outputs, to_values = predictions.double(), self.likelihood.to_values
        values = (outputs if to_values is None else to_values(outputs)).cpu().numpy()
        return values if self.offset is None or self.scale is None else values * self.scale + self.offset

    def outputs_of(self, values: np.ndarray) -> Tensor:
        """The head outputs that `decode` turns into these values; probabilities of 0 and 1 are moved inwards."""
        to_outputs = self.likelihood.to_outputs
        if to_outputs is None:
            return self.encode(values).double()
        return to_outputs(torch.as_tensor(values, dtype=torch.float64).clamp(1e-12, 1 - 1e-12))


def check_trainable(task: Task) -> None:
    """Raise where the train split cannot teach what the other splits ask."""
    if len(task.train) == 0:
        raise TaskError(f"The train split of {task.name!r} is empty.")
    kind, width = kind_of(task.kind), len(task.target_names)
    if kind.is_real_valued:
        if not np.isfinite(np.asarray(task.train.targets, dtype=np.float64)).all():
            raise TaskError(
                f"The train targets of {task.name!r} hold values that are not finite: leave those rows out."
            )
        return
    counts = kind.target_counts(task.train.targets, width)
    others = [split.targets for name, split in task.splits.items() if name != "train" and len(split)]
    asked = sum((kind.target_counts(targets, width) for targets in others), np.zeros(width))
    if len(missing := np.flatnonzero((asked > 0) & (counts == 0))):
        names = ", ".join(task.target_names[i] for i in missing[:10]) + (", …" if len(missing) > 10 else "")
        raise TaskError(
            f"The train split of {task.name!r} has no sample of {len(missing)} of {len(task.target_names)} labels that "
            f"validation or test ask for: {names}. Split the data again, or leave these samples out."
        )
    if kind.has_classes and np.count_nonzero(counts) < 2:
        raise TaskError(f"The train split of {task.name!r} has a single class: there is nothing to learn.")


@dataclass(frozen=True)
class Rows:
    """The encoded targets of a split and the way from samples to rows."""

    targets: Tensor
    starts: Tensor | None
    """Tagging: (samples + 1,) where each sentence's words begin; None where a sample is a row."""

    @classmethod
    def of(cls, split: Split, loss: TaskLoss, device: torch.device | str = "cpu") -> Rows:
        """The rows of a split."""
        kind = kind_of(loss.kind)
        targets = loss.encode(kind.rows_of(split.targets)).to(device)
        if not kind.rows_are_words:
            return cls(targets, None)
        return cls(targets, torch.as_tensor(np.concatenate([[0], np.cumsum(kind.row_counts(split.targets))])))

    def count(self, samples: np.ndarray) -> int:
        """How many rows these samples have."""
        if self.starts is None:
            return len(samples)
        starts = self.starts.numpy()
        return int((starts[samples + 1] - starts[samples]).sum())

    def of_samples(self, samples: Tensor) -> Tensor:
        """Row numbers of the samples, in order; on the device of the targets."""
        if self.starts is None:
            return samples.to(self.targets.device, non_blocking=True)
        bounds = zip(self.starts[samples].tolist(), self.starts[samples + 1].tolist(), strict=True)
        return torch.cat([torch.arange(low, high) for low, high in bounds]).to(self.targets.device)


def guess(task: Task) -> np.ndarray:
    """(C,) what to say of every input: the mean of the numbers, or how frequent each class or label is in train."""
    return kind_of(task.kind).null_prediction(task.train.targets, len(task.target_names))


def null_loss(task: Task, loss: TaskLoss, rows: Rows) -> float:
    """The mean loss of the guess on the train split.

    >>> task = Task.from_arrays(np.eye(8), ["a", "b"] * 4)
    >>> loss = TaskLoss.of(task)
    >>> sorted(task.train.targets.tolist()), round(null_loss(task, loss, Rows.of(task.train, loss)), 3)
    ([0, 0, 1, 1, 1], 0.673)
    """
    targets = rows.targets.cpu()
    return float(loss(loss.outputs_of(guess(task)[None]).expand(len(targets), -1), targets).mean())
