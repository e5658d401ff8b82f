"""Outputs of named layers inside a network, caught on their way through in the same forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hubscout.errors import InputError
from hubscout.hubs.pooling import MEAN_LAYER

if TYPE_CHECKING:
    from torch import Tensor, nn


@contextmanager
def tap(module: nn.Module, names: Sequence[str], pool: Callable[[str, Any], Tensor]) -> Iterator[dict[str, Tensor]]:
    """Within the block, every forward pass fills the dictionary with the pooled outputs of the named submodules.

    `pool` is called with the name of the submodule and its output.
    """
    import torch

    caught: dict[str, Tensor] = {}

    def catch(name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            caught[name] = pool(name, output)

        return hook

    handles = []
    try:
        for name in names:
            part = module.get_submodule(name)
            while isinstance(part, torch.nn.ModuleList):  # A list is not called, its members are.
                part = part[-1]
            handles.append(part.register_forward_hook(catch(name)))
        yield caught
    finally:
        for handle in handles:
            handle.remove()


def check_layers(names: Sequence[str], available: Sequence[str], model: str, *, averages: bool = False) -> None:
    """Refuse layer names that the model does not have; `averages` says that it has their mean."""
    known = (*available, MEAN_LAYER) if averages else available
    unknown = [name for name in names if name not in known]
    if unknown and unknown[0] == MEAN_LAYER:
        raise InputError(f"{model} has no mean over layers: its layers cannot be named or differ in width.")
    if unknown:
        raise InputError(f"{model} has no layer {unknown[0]!r}. It has: {', '.join(known) or 'none to tap'}.")


def pool_output(output: Any, *, channels: int | None = None, channels_last: bool = False) -> Tensor:
    """(n, D) from whatever a layer gives; see `pool_map` for a single tensor.

    Of several tensors it is the first that has the known `channels`. Where none has, several maps are the parts of
    one, by path or by resolution: they are pooled apart and joined. Else it is the first tensor.
    """
    import torch

    parts = list(_tensors(output))
    for part in parts:
        if part.ndim > 1 and channels in (part.shape[1], part.shape[-1]):
            return pool_map(part, channels=channels, channels_last=channels_last)
    if all(part.ndim == 4 for part in parts):
        return torch.cat([pool_map(part, channels_last=channels_last) for part in parts], dim=1)
    return pool_map(parts[0], channels_last=channels_last)


def _tensors(output: Any) -> Iterator[Tensor]:
    """Those of a nested output, without the sizes and the like that may stand between them."""
    if hasattr(output, "ndim"):
        yield output
    elif isinstance(output, Mapping):
        yield from _tensors(list(output.values()))
    elif isinstance(output, list | tuple):
        for part in output:
            yield from _tensors(part)


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
