"""Networks that are built to be given weights: random ones, which most of building is, are not drawn for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from hubscout.errors import HubscoutError

if TYPE_CHECKING:
    from torch import Tensor, nn

_MARKS = 64
"""Numbers of a parameter that show whether it was given others."""


def without_random_weights(build: Callable[[], nn.Module]) -> nn.Module:
    """What `build` gives, a network with weights that were not drawn by chance.

    Half of the time in which a VGG is opened goes into random numbers that its checkpoint then replaces. In their place
    parameters are marked with NaN. Where a mark is left, also in what was computed from a parameter, or something
    cannot be computed from marks, everything is built once more, with random numbers.

    >>> import torch
    >>> def build() -> torch.nn.Module:
    ...     layer = torch.nn.Linear(2, 1)
    ...     layer.load_state_dict({"weight": torch.ones(1, 2), "bias": torch.zeros(1)})
    ...     return layer
    >>> without_random_weights(build).weight.tolist()
    [[1.0, 1.0]]
    """
    module = None
    try:
        with _undrawn()():
            module = build()
    except (HubscoutError, OSError):
        raise
    except Exception:
        module = None  # once more, and what is wrong with it is said then
    if module is None or _has_marks(module):
        del module  # two may not fit
        module = build()
    return module


def _has_marks(module: nn.Module) -> bool:
    tensors = (tensor for tensor in chain(module.parameters(), module.buffers()) if _takes_marks(tensor))
    return any(bool(places.isnan().any()) for tensor in tensors for places in _places(tensor))


def _takes_marks(tensor: Tensor) -> bool:
    from torch.nn.parameter import is_lazy

    return not is_lazy(tensor) and tensor.is_floating_point() and tensor.is_contiguous() and not tensor.is_meta


def _places(tensor: Tensor) -> Iterator[Tensor]:
    """Where the marks are: spread over all columns of a matrix, and at the end."""
    flat = tensor.detach().view(-1)
    yield flat[:: max(1, len(flat) // _MARKS) | 1]
    yield flat[-1:]


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
                    for places in _places(target):
                        places.fill_(torch.nan)
                    return target
            return func(*args, **given)

    return Undrawn
