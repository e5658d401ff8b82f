"""Whether a run has gone wrong: its losses beside that of a model that says the same of every input."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import fmean

_EXPLODED = 4
"""Times the null model's loss, over the steps between two validations."""
_SPIKED = 3
"""Times the null model's loss, in one step."""
_LEARNT = 0.9
"""Times the null model's loss: what is below has learnt something."""
_ABOVE_GUESSING = 0.02
"""Of a validation metric: what is further above the null model's has learnt something."""


@dataclass
class LossWatch:
    """The task's losses of a run, step by step; what it finds wrong is a sentence, empty where nothing is.

    >>> watch = LossWatch(null_loss=0.7, losses=[0.8, 0.9, 31.1])
    >>> watch.exploded(2).partition(",")[0]
    "the task's loss was 16"
    """

    null_loss: float = math.inf
    """The task's loss of a model that says the same of every input."""
    null_metric: float = -math.inf
    """Its validation metric."""
    losses: list[float] = field(default_factory=list)

    def is_above_guessing(self, metric: float) -> bool:
        """Whether a validation metric is that of a network that has learnt something.

        >>> LossWatch(null_metric=0.1).is_above_guessing(0.11)
        False
        """
        return metric > self.null_metric + _ABOVE_GUESSING

    def exploded(self, steps: int) -> str:
        """Whether the loss of the last steps is far above its start and above what saying nothing costs."""
        recent, first = fmean(self.losses[-steps:]), self.losses[0]
        if not recent > max(_EXPLODED * self.null_loss, 2 * first):
            return ""
        return (
            f"the task's loss was {recent:.3g}, from {first:.3g} at the first step, and a model that says the same of "
            f"every input has {self.null_loss:.3g}"
        )

    def collapsed(self, steps: int, name: str, best: float) -> str:
        """Whether early steps have thrown the network off, and nothing was learnt since, by the best validation metric.

        The mean loss of many steps does not show it: later ones say the same of every input, which costs little.
        """
        worst, first = max(self.losses), self.losses[0]
        spiked = worst > max(_SPIKED * self.null_loss, 2 * first)
        learnt = fmean(self.losses[-steps:]) < _LEARNT * self.null_loss or self.is_above_guessing(best)
        if learnt or not spiked:
            return ""
        return (
            f"the validation {name} was {best:.3g} at best, and a model that says the same of every input has "
            f"{self.null_metric:.3g}: the task's loss went from {first:.3g} to {worst:.3g}, and nothing "
            "was learnt since"
        )
