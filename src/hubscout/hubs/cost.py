"""What a model costs: parameters, bytes and floating-point operations."""

from __future__ import annotations

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


def count_flops(backbone: Backbone, batch: Batch) -> int | None:
    """The operations of one forward pass over `batch`, multiply-adds counted twice (torch's counter).

    Runs on the meta device, where nothing is computed and no weights are copied; a network that looks at its values
    on the way cannot run there and gets one real pass. None for a model that torch does not run.
    """
    import torch
    from torch import nn
    from torch.func import functional_call
    from torch.utils.flop_counter import FlopCounterMode

    if backbone.module is None:
        return None

    class Runner(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

        def forward(self, inputs: Batch) -> Tensor:
            return backbone.forward(inputs).features

    runner = Runner(backbone.module)
    weightless = {name: tensor.to("meta") for name, tensor in runner.named_parameters()}
    weightless |= {name: tensor.to("meta") for name, tensor in runner.named_buffers()}
    on_meta = {name: tensor.to("meta") for name, tensor in batch.items()}
    was_training = backbone.module.training
    backbone.module.eval()
    try:
        with torch.no_grad():
            try:
                with FlopCounterMode(display=False) as counter:
                    functional_call(runner, weightless, (on_meta,))
            except (RuntimeError, NotImplementedError, TypeError, ValueError):
                with FlopCounterMode(display=False) as counter:
                    runner(batch)
    finally:
        backbone.module.train(was_training)
    return counter.get_total_flops()
