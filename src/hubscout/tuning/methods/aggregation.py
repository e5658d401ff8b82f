"""`AggregatedLayer`: one layer whose weight is a gated, channel-aligned mixture of several layers' weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

_MOMENTUM = 0.1
"""Of the running mean of the gates, as batch norms have it."""


class AggregatedLayer(nn.Module):
    """W(x) = Σ_k g_k(x) · A_k W_k, with the gates g from the layer's averaged input.

    The layer's own class does the work with each weight, so padding rules and the like are kept. Since a layer is
    linear in its weight, mixing the outputs Σ_k g_k(x)·layer(x; A_k W_k) is the same as a weight for each sample, and
    uses ordinary kernels. `lite` averages the gates over the batch in training and uses their running mean otherwise:
    one weight for all samples.
    """

    mean_gates: Tensor

    def __init__(
        self, layers: Sequence[nn.Module], *, start: float, lite: bool, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        first = layers[0]
        self.lite = lite
        weights: list[Tensor] = [layer.weight.detach() for layer in layers]  # type: ignore[operator]
        self.weight = nn.Parameter(torch.stack(weights))
        has_bias = getattr(first, "bias", None) is not None
        self.bias = (
            nn.Parameter(torch.stack([layer.bias.detach() for layer in layers])) if has_bias else None  # type: ignore
        )
        sources, outputs = self.weight.shape[:2]
        spatial = self.weight.ndim > 3 and math.prod(self.weight.shape[3:]) > 1
        self.align = (
            nn.Parameter(torch.eye(outputs, dtype=self.weight.dtype, device=self.weight.device).repeat(sources, 1, 1))
            if spatial
            else None
        )
        inputs = getattr(first, "in_channels", None) or self.weight.shape[2]
        hidden = inputs // 4 + 1
        self.gate = nn.Sequential(nn.Linear(inputs, hidden, bias=False), nn.ReLU(), nn.Linear(hidden, sources))
        shares = torch.full((sources,), 1.0 / sources)
        if start and sources > 1:
            shares[0], shares[1:] = start, (1.0 - start) / (sources - 1)
        with torch.no_grad():
            nn.init.kaiming_normal_(self.gate[0].weight, generator=generator)  # type: ignore[arg-type]
            # Every input has the same gates at the start: the mixture departs from there as it learns.
            self.gate[2].weight.zero_()  # type: ignore[operator]
            self.gate[2].bias.copy_(shares.clamp_min(1e-4).log())  # type: ignore[operator]
        self.gate.to(self.weight.device, self.weight.dtype)
        self.register_buffer("mean_gates", shares.to(self.weight.device, self.weight.dtype))
        template = copy.deepcopy(first)
        for parameter in template.parameters():
            parameter.requires_grad_(False)
        # In a list, so not registered: it lends its class and settings, the weights are those above.
        self._template = [template]

    def aligned(self) -> Tensor:
        """(K, *shape) weights after channel alignment."""
        return self.weight if self.align is None else torch.einsum("kop,kp...->ko...", self.align, self.weight)

    def gates(self, inputs: Tensor) -> Tensor:
        """(samples, K) gates, each row summing to one."""
        channels_last = isinstance(self._template[0], nn.Linear)
        if channels_last:
            pooled = inputs.flatten(1, -2).mean(dim=1) if inputs.ndim > 2 else inputs
        else:
            pooled = inputs.flatten(2).mean(dim=2)
        return self.gate(pooled.to(self.gate[0].weight.dtype)).softmax(dim=1)  # type: ignore[arg-type]

    def forward(self, inputs: Tensor) -> Tensor:
        """The layer at its mixed weight."""
        if self.lite and not self.training:
            return self._run(inputs, self._mixed(self.aligned()), self._mixed(self.bias))
        gates = self.gates(inputs)
        mean = gates.mean(dim=0)
        if self.training:
            self.mean_gates.lerp_(mean.detach().to(self.mean_gates.dtype), _MOMENTUM)
        aligned = self.aligned()
        if self.lite:
            return self._run(inputs, self._mixed(aligned, mean), self._mixed(self.bias, mean))
        total: Tensor | None = None
        for k in range(len(aligned)):
            output = self._run(inputs, aligned[k], None if self.bias is None else self.bias[k])
            part = output * gates[:, k].view(-1, *[1] * (output.ndim - 1)).to(output.dtype)
            total = part if total is None else total + part
        assert total is not None
        return total

    def merged(self) -> nn.Module:
        """A plain layer at the mean gates: what the lite form computes in eval mode."""
        layer = copy.deepcopy(self._template[0]).to(self.weight.device)
        with torch.no_grad():
            layer.weight.copy_(self._mixed(self.aligned()))  # type: ignore[operator]
            if self.bias is not None:
                layer.bias.copy_(self._mixed(self.bias))  # type: ignore[operator]
        for parameter in layer.parameters():
            parameter.requires_grad_(True)
        return layer

    def _mixed(self, stacked: Tensor | None, gates: Tensor | None = None) -> Tensor:
        if stacked is None:
            return None  # type: ignore[return-value]
        chosen = self.mean_gates if gates is None else gates
        return torch.einsum("k,k...->...", chosen.to(stacked.dtype), stacked)

    def _run(self, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        values = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
        return functional_call(self._template[0], values, (inputs,))

    def __getattr__(self, name: str) -> Any:
        # Networks ask their layers for in_channels, stride and the like.
        try:
            return super().__getattr__(name)
        except AttributeError:
            template = self.__dict__.get("_template")
            if template is None or name.startswith("_"):
                raise
            return getattr(template[0], name)
