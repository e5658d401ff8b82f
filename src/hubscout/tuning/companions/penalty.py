"""A term of the loss that belongs to no sample: of the parameters, or of a batch as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from torch import Tensor

if TYPE_CHECKING:
    from hubscout.tuning.network import Network


class Penalty(Protocol):
    """A number, already weighted, with gradients."""

    def __call__(self, network: Network, features: Tensor) -> Tensor:
        """The penalty for the network as it is and the features of this (micro-)batch."""
        ...
