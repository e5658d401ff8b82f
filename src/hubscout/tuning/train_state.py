"""Where a run stands."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass
class TrainState:
    """Where a run stands: what a checkpoint holds beside weights and optimiser."""

    step: int = 0
    best: float = -math.inf
    best_step: int = -1
    best_state: dict[str, Tensor] | None = None
    stale: int = 0
    stopped: bool = False
    floor: float = -math.inf
    """The validation metric of `best_state` before the first step; weights below it are not kept."""
    probes: dict[str, Any] = field(default_factory=dict)
    """What linear probes of frozen features achieve: of the model, and of its best teacher."""
    rate: float | None = None
    """The learning rate that a search chose, and why."""
    rate_reason: str = ""
    seconds: float = 0.0
    """That the run has taken, all calls together."""
    length: int = 0
    """Under a limit of time: how many steps the run has, once its cool-down has begun."""
    falling: int = 0
    """Steps of that cool-down."""
