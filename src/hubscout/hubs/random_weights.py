"""Networks that are built to be given weights: random ones, which most of building is, are not drawn for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

_MARKS = 64
"""Numbers of a parameter that show whether it was given others: NaN, which stays NaN whatever is done with it."""


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
    with _undrawn()():
        module = build()
    if any(bool(_marks(parameter).isnan().any()) for parameter in module.parameters() if _takes_marks(parameter)):
        return build()
    return module


def _takes_marks(parameter: Tensor) -> bool:
    return parameter.is_floating_point() and parameter.is_contiguous() and not parameter.is_meta


def _marks(parameter: Tensor) -> Tensor:
    return parameter.detach().view(-1)[:: max(1, parameter.numel() // _MARKS)]


@cache
def _undrawn() -> type[Any]:
    import torch
    from torch import Tensor, nn
    from torch.overrides import TorchFunctionMode

    draws = {Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_}

    class Undrawn(TorchFunctionMode):
        """Marks parameters where random numbers are drawn for them; in this thread alone."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = kwargs or {}
            if func in draws:
                target = args[0] if args else given["tensor"]
                if isinstance(target, torch.nn.Parameter) and _takes_marks(target):
                    _marks(target).fill_(torch.nan)
                    return target
            return func(*args, **given)

    return Undrawn
