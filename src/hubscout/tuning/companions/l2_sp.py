"""L2-SP: stay near the starting point."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from hubscout.tuning.network import Network


class L2SP:
    """½α‖w − w₀‖² over the backbone's trained weights (Li, Grandvalet and Davoine, ICML 2018).

    For: little data, where plain weight decay would pull pre-trained weights towards zero. The optimiser's weight
    decay is left out for the backbone and kept for the head, where it is the paper's second term. It is the same for
    every batch, so it does not depend on the number of processes. α is the field `l2_sp`, 0.01 in the paper's ballpark.
    """

    def __init__(self, body: nn.Module, strength: float) -> None:
        self.strength = strength
        self.start = {name: p.detach().clone() for name, p in body.named_parameters() if p.requires_grad}

    def __call__(self, network: Network, features: Tensor) -> Tensor:
        """The penalty."""
        parameters = dict(network.body.named_parameters())
        names = [name for name in self.start if name in parameters]
        self.start = {name: self.start[name].to(parameters[name].device) for name in names}
        differences = torch._foreach_sub([parameters[n] for n in names], [self.start[n] for n in names])
        squares = [difference.float().square().sum() for difference in differences]
        return 0.5 * self.strength * torch.stack(squares).sum() if squares else features.new_zeros(())
