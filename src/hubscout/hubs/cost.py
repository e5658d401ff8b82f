"""What a model costs: parameters, bytes and floating-point operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hubscout.hubs.backbone import Backbone, Batch


def count_params(module: nn.Module) -> int:
    """The number of learnt numbers; shared ones count once."""
    return sum(parameter.numel() for parameter in module.parameters())


def count_bytes(module: nn.Module) -> int:
    """The bytes of parameters and buffers, in the types that they are held in."""
    tensors: list[Tensor] = [*module.parameters(), *module.buffers()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@dataclass(frozen=True)
class Measured:
    """What one forward pass over one sample shows."""

    feature_dim: int
    flops: int


def measure(backbone: Backbone, batch: Batch) -> Measured:
    """The width of the features and the operations of a pass over `batch`, multiply-adds counted twice.

    Runs on the meta device, where nothing is computed and no weights are copied. A network that looks at its values
    on the way cannot run there and gets one real pass.
    """
    import torch
    from torch import nn
    from torch.func import functional_call
    from torch.utils.flop_counter import FlopCounterMode

    assert backbone.module is not None

    class Runner(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

        def forward(self, inputs: Batch) -> Tensor:
            return backbone.forward(inputs).features

    runner = Runner(backbone.module).eval()
    weightless = {name: tensor.to("meta") for name, tensor in runner.named_parameters()}
    weightless |= {name: tensor.to("meta") for name, tensor in runner.named_buffers()}
    with torch.no_grad():
        try:
            with FlopCounterMode(display=False) as counter:
                on_meta = {name: tensor.to("meta") for name, tensor in batch.items()}
                features = functional_call(runner, weightless, (on_meta,))
        except Exception:
            # What a network may do that a meta tensor cannot follow has no end; a real pass says what is wrong.
            with FlopCounterMode(display=False) as counter:
                features = runner(batch)
    return Measured(features.shape[-1], counter.get_total_flops())
