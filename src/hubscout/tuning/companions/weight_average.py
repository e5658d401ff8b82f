"""An exponential moving average of the weights: what is validated and kept is the average, not the last step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

_EARLY = 10
"""At the start the average follows the weights: its decay is (1 + t) / (10 + t) after t steps, up to the one given."""


class WeightAverage:
    """e ← d·e + (1 − d)·w after each step, with d = min(decay, (1 + t) / (10 + t)) (Polyak and Juditsky, 1992).

    For: noisy training (few data, high rates), with every method. Statistics of batch norms are averaged as well. The
    steps themselves are those of the run without it. `decay` is the field `ema`: 0.99 averages about 100 steps.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.count = 0
        self.average = {name: value.detach().clone() for name, value in network.state_dict().items()}

    def update(self, network: nn.Module) -> None:
        """Take in the weights as they are after a step."""
        decay = min(self.decay, (1 + self.count) / (_EARLY + self.count))
        self.count += 1
        with torch.no_grad():
            for name, value in network.state_dict().items():
                if value.is_floating_point():
                    self.average[name].lerp_(value.to(self.average[name]), 1 - decay)
                else:
                    self.average[name].copy_(value)

    @contextmanager
    def applied(self, network: nn.Module) -> Iterator[None]:
        """The network at its averaged weights, inside the `with` block."""
        own = {name: value.detach().clone() for name, value in network.state_dict().items()}
        network.load_state_dict(self.average)
        try:
            yield
        finally:
            network.load_state_dict(own)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"count": self.count, "average": self.average}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.count = int(state["count"])
        found: Mapping[str, Tensor] = state["average"]
        self.average = {name: found[name].to(value.device) for name, value in self.average.items()}
