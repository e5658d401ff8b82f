"""Networks that are built to be given weights: random ones, which most of building is, are not drawn for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


def without_random_weights(build: Callable[[], nn.Module]) -> nn.Module:
    """What `build` gives, a network with weights that were not drawn by chance.

    Half of the time in which a VGG is opened goes into random numbers that its checkpoint then replaces. Where some
    parameter is not replaced after all, everything is built once more, with random numbers.

    >>> import torch
    >>> def build() -> torch.nn.Module:
    ...     layer = torch.nn.Linear(2, 1)
    ...     layer.load_state_dict({"weight": torch.ones(1, 2), "bias": torch.zeros(1)})
    ...     return layer
    >>> without_random_weights(build).weight.tolist()
    [[1.0, 1.0]]
    """
    with _undrawn_weights()() as mode:
        module = build()
    if any(id(parameter) in mode.undrawn for parameter in module.parameters()):
        return build()
    return module


@cache
def _undrawn_weights() -> type[Any]:
    import torch
    from torch import Tensor, nn
    from torch.overrides import TorchFunctionMode

    own = nn.init
    draws = {Tensor.normal_, Tensor.uniform_, own.normal_, own.uniform_, own.kaiming_uniform_}
    # What is made of a random number on the way to another: a normal one, cut off where it is too far out.
    reshapes = {Tensor.erfinv_, Tensor.mul_, Tensor.add_, Tensor.clamp_}

    class UndrawnWeights(TorchFunctionMode):
        """Leaves out what draws parameters, and keeps those that were not given other numbers since."""

        def __init__(self) -> None:
            super().__init__()
            self.undrawn: dict[int, nn.Parameter] = {}  # the parameters too, or a number might be given out again

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = kwargs or {}
            target = args[0] if args else given.get("tensor")
            if isinstance(target, torch.nn.Parameter):
                if func in draws or (func in reshapes and id(target) in self.undrawn):
                    self.undrawn[id(target)] = target
                    return target
                if func in (Tensor.copy_, Tensor.zero_, Tensor.fill_):
                    self.undrawn.pop(id(target), None)
            return func(*args, **given)

    return UndrawnWeights
