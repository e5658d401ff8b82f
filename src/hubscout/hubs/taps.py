"""Outputs of named layers inside a network, caught on their way through in the same forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hubscout.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor, nn


@contextmanager
def tap(module: nn.Module, names: Sequence[str], pool: Callable[[str, Any], Tensor]) -> Iterator[dict[str, Tensor]]:
    """Within the block, every forward pass fills the dictionary with the pooled outputs of the named submodules.

    `pool` is called with the name of the submodule and its output.
    """
    caught: dict[str, Tensor] = {}

    def catch(name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            caught[name] = pool(name, output)

        return hook

    handles = []
    try:
        for name in names:
            handles.append(module.get_submodule(name).register_forward_hook(catch(name)))
        yield caught
    finally:
        for handle in handles:
            handle.remove()


def check_layers(names: Sequence[str], available: Sequence[str], model: str) -> None:
    """Refuse layer names that the model does not have."""
    unknown = [name for name in names if name not in available]
    if unknown:
        raise InputError(f"{model} has no layer {unknown[0]!r}. It has: {', '.join(available) or 'none to tap'}.")


def one_tensor(output: Any, channels: int | None = None) -> Tensor:
    """The tensor of a layer's output; layers of transformers give tuples whose first item it is.

    Dual-path networks give the parts of one map: they are joined where together they have the known `channels`.
    """
    import torch

    parts = (
        output if isinstance(output, tuple | list) and all(isinstance(part, torch.Tensor) for part in output) else ()
    )
    if len(parts) > 1 and all(part.ndim > 1 for part in parts) and sum(part.shape[1] for part in parts) == channels:
        return torch.cat(list(parts), dim=1)
    while not hasattr(output, "ndim"):
        output = output[0]
    return output


def pool_map(output: Tensor, *, channels: int | None = None, channels_last: bool = False) -> Tensor:
    """(n, D): a map averaged over its positions, a sequence of tokens over the tokens, a vector as it is.

    `channels` is D where it is known: the axis of that length is kept. Where that leaves a choice, `channels_last`
    says that maps are (n, height, width, D), as some hierarchical transformers have them.
    """
    if output.ndim not in (3, 4):
        return output.flatten(1)
    first, last = 1, output.ndim - 1
    kept = last if channels_last or output.ndim == 3 else first
    if channels is not None and (output.shape[first] == channels) != (output.shape[last] == channels):
        kept = first if output.shape[first] == channels else last
    return output.mean([axis for axis in range(1, output.ndim) if axis != kept])
