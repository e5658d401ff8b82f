"""Which optimiser and which learning rates suit which data: the defaults of `tune` and of the search of `reference`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubscout.tasks import Task

from hubscout.tasks.kinds import kind_of

_TEXTS = ("text", "text-pair", "tokens")
_HALF_DECADES = tuple(float(f"{10 ** -(2 + k / 2):.6g}") for k in range(-2, 5))


@dataclass(frozen=True)
class Rates:
    """Of the backbone; a new head has ten times them.

    `tried` by a search, and those `beyond` only where the best of the tried ones is at their end.
    """

    default: float
    raced: float
    """The lower of a race's rates, which stay constant: many networks break down at what is right for the top of a
    cosine."""
    tried: tuple[float, ...]
    beyond: tuple[float, ...]
    weight_decays: tuple[float, ...]


# The paper's seven by seven, logarithmically spaced. The default: of 17 networks on seven sets
# (experiments/race) the median is 1.2 points below its best at 0.001 and 8 at 0.004.
_SGD = Rates(0.001, 0.0005, _HALF_DECADES, (), tuple(float(f"{10 ** -(6 - k / 2):.6g}") for k in range(7)))
# Decoupled decay is multiplied by the rate: below a hundredth it does nothing.
_DECOUPLED = (1e-4, 0.01, 0.1)
_ADAMW = Rates(3e-4, 3e-4, (1e-4, 3e-4, 1e-3), (1e-5, 3e-5, 3e-3), _DECOUPLED)
# Encoders collapse at rates that suit images: above a few 1e-4 the large ones say the same of every text.
_ADAMW_TEXT = Rates(5e-5, 5e-5, (1e-5, 3e-5, 1e-4), (1e-6, 3e-6, 3e-4, 1e-3), _DECOUPLED)


def default_optimizer(modality: str, kind: str) -> str:
    """AdamW for texts, and for numbers: SGD sees their squared errors times the size of the features, and diverges.

    >>> default_optimizer("image", "classification"), default_optimizer("image", "regression")
    ('sgd', 'adamw')
    """
    return "adamw" if modality in _TEXTS or kind_of(kind).is_real_valued else "sgd"


def rates_of(optimizer: str, modality: str) -> Rates:
    """The rates of an optimiser for a kind of input.

    >>> rates_of("adamw", "text").tried, rates_of("sgd", "image").default
    ((1e-05, 3e-05, 0.0001), 0.001)
    """
    if optimizer == "sgd":
        return _SGD
    return _ADAMW_TEXT if modality in _TEXTS else _ADAMW


@dataclass(frozen=True)
class Grid:
    """Learning rates × weight decays. Rates `beyond` are tried only next to the best one, where that is at an end.

    By default the paper's seven by seven for SGD, logarithmically spaced; `Grid.of` has those that suit a task.

    >>> len(list(Grid())), Grid().learning_rates[0], Grid().weight_decays[0]
    (49, 0.1, 1e-06)
    """

    learning_rates: tuple[float, ...] = rates_of("sgd", "image").tried
    weight_decays: tuple[float, ...] = rates_of("sgd", "image").weight_decays
    beyond: tuple[float, ...] = ()

    @classmethod
    def of(cls, task: Task, optimizer: str = "auto") -> Grid:
        """The rates and decays that suit the inputs of a task and the optimiser that `tune` takes for it."""
        chosen = optimizer if optimizer != "auto" else default_optimizer(task.modality, task.kind)
        rates = rates_of(chosen, task.modality)
        return cls(rates.tried, rates.weight_decays, rates.beyond)

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return ((rate, decay) for rate in self.learning_rates for decay in self.weight_decays)

    def next_rate(self, tried: Collection[float], best: float) -> float | None:
        """The next rate past the best of those tried; None where it has one on both sides, or none is left.

        >>> Grid((0.1, 1.0), beyond=(0.01, 10.0)).next_rate([0.1, 1.0], best=1.0)
        10.0
        """
        if best == max(tried):
            return min((rate for rate in self.beyond if rate > best), default=None)
        if best == min(tried):
            return max((rate for rate in self.beyond if rate < best), default=None)
        return None
