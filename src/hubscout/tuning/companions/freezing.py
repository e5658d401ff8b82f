"""Freezing: leave the first layers, or the whole backbone, as they came."""

from __future__ import annotations

import difflib

from torch import nn

from hubscout.errors import InputError


def freeze(body: nn.Module, upto: str) -> int:
    """Freeze the named layer and every parameter that the network lists before it; how many parameters that is.

    `all` freezes everything (linear probing). Norms whose parameters are frozen keep their statistics as well: see
    `Network.train`.
    """
    parameters = dict(body.named_parameters())
    if upto == "all":
        frozen = list(parameters)
    else:
        inside = [place for place, name in enumerate(parameters) if name == upto or name.startswith(f"{upto}.")]
        if not inside:
            raise InputError(_unknown(body, upto))
        frozen = list(parameters)[: inside[-1] + 1]
    for name in frozen:
        parameters[name].requires_grad_(False)
    return sum(parameters[name].numel() for name in frozen)


def _unknown(body: nn.Module, upto: str) -> str:
    names = [name for name, module in body.named_modules() if name and any(True for _ in module.parameters())]
    near = difflib.get_close_matches(upto, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    top = ", ".join(name for name in names if "." not in name)
    return f"freeze={upto!r}: the model has no such layer with parameters.{hint} Allowed are 'all' and layers: {top}, …"
