"""Zoo-Tuning: the model's layers as learnt mixtures of the same layers of several networks."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from hubscout.errors import InputError
from hubscout.features.feature_keys import network_digest
from hubscout.hubs import Backbone
from hubscout.runs.texts import LONGEST_IN_A_LINE, names_by_model
from hubscout.tuning.batches import mixed_seed
from hubscout.tuning.methods.method import METHODS, Method, Preparation
from hubscout.tuning.network import has_batch_norm

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


@METHODS.register("zoo")
class ZooTuning(Method):
    """Zoo-Tuning (Shu et al., ICML 2021) for networks of one architecture.

    For: several checkpoints of the model's own architecture from different pre-training.

        W(x) = Σ_k g_k(x) · A_k W_k      for every convolution and linear layer of the backbone
        loss = L_task

    W_k are source k's weights (the model is source 0), trained along; A_k mixes output channels, the identity at the
    start, in layers with a spatial kernel; the gates g_k(x) come from a small network on the layer's averaged input and
    sum to one, so that identical sources give back the source. At the start the model has the share `zoo_start`.
    Norms, embeddings and all else stay the model's. (The original has sigmoid gates that need not sum to one and
    starts from all sources alike; independently trained networks do not average well.)

    With `zoo_lite=True` one set of gates, their running mean, serves all inputs: the layers are merged into plain ones
    afterwards, without loss. Without, the tuned network stays a mixture while it is in memory, K times the cost;
    saving merges it at its mean gates, and the metrics of the merged network are reported beside.

    Requirements: teachers of the model's architecture, and batch norms at work (`frozen_norm_statistics=False`), which
    bring the mixed layers' outputs back to scale. Memory and optimiser state grow with the number of sources.
    Beside `b-tuning` and `kd` it touches parameters, not outputs, and cannot take other architectures.

    Example: `tune(task, "timm/mobilenetv2_100.ra_in1k", teachers=["file:birds.safetensors?arch=mobilenetv2_100"],
    method="zoo", zoo_lite=True)`.
    """

    name = "zoo"
    uses_teachers = True
    moves_norms = True

    def prepare(self, preparation: Preparation) -> None:
        """Put the mixtures into the model."""
        arguments = preparation.arguments
        sources = distinct_sources(preparation.model, preparation.teachers)
        body = preparation.model.module
        assert body is not None
        others = [source.module for source in sources[1:]]
        names = [name for name, module in body.named_modules() if _is_mixed(module) and name not in _head_names(body)]
        generator = torch.Generator().manual_seed(mixed_seed(arguments.seed, 3))
        for name in names:
            layers = [body.get_submodule(name), *(other.get_submodule(name) for other in others if other is not None)]
            mixture = AggregatedLayer(layers, start=arguments.zoo_start, lite=arguments.zoo_lite, generator=generator)
            body.set_submodule(name, mixture)
        self.lite = arguments.zoo_lite
        if len(sources) > 1 and (arguments.frozen_norm_statistics or not has_batch_norm(body)):
            # 0.8 of one source and 0.2 of unrelated ones is smaller than either, and so again at every layer.
            self.notes.append(
                "Nothing brings the mixed layers' outputs back to scale (batch norms are frozen or missing): features "
                "may vanish. Zoo-Tuning wants frozen_norm_statistics=False and a network with batch norms."
            )
        called = names_by_model((source.card.identifier for source in sources), room=LONGEST_IN_A_LINE)
        mixed = ", ".join(called[source.card.identifier] for source in sources)
        self.notes.append(f"{len(names)} layers mix {len(sources)} sources: {mixed}")

    def new_parameters(self, body: nn.Module) -> Iterator[nn.Parameter]:
        """The gates."""
        for module in body.modules():
            if isinstance(module, AggregatedLayer):
                yield from module.gate.parameters()

    def finish(self, model: Backbone) -> None:
        """Merge the lite form, which changes nothing it computes; the other stays as it was trained."""
        if self.lite and model.module is not None:
            merge(model.module)


def merge(body: nn.Module) -> bool:
    """Replace every mixture by a plain layer at its mean gates; whether there was any."""
    names = [name for name, module in body.named_modules() if isinstance(module, AggregatedLayer)]
    for name in names:
        mixture = body.get_submodule(name)
        assert isinstance(mixture, AggregatedLayer)
        body.set_submodule(name, mixture.merged())
    return bool(names)


def is_mixture(body: nn.Module) -> bool:
    """Whether some layer is still a mixture."""
    return any(isinstance(module, AggregatedLayer) for module in body.modules())


def distinct_sources(model: Backbone, teachers: Sequence[Backbone]) -> list[Backbone]:
    """The model and the teachers that are not the model again; raises where shapes differ."""
    if model.module is None:
        raise InputError(f"model={model.card.identifier!r} is not a torch module.")
    wanted = _shapes(model.module)
    sources = [model]
    for teacher in teachers:
        if teacher.module is None or _shapes(teacher.module) != wanted:
            raise InputError(
                f"Zoo-Tuning mixes the parameters of one architecture: teacher {teacher.card.identifier!r} "
                f"({teacher.card.architecture}) {_difference(teacher, wanted)} the model {model.card.identifier!r} "
                f"({model.card.architecture}). Leave it out, or use method='b-tuning', which takes any architecture."
            )
        if teacher is not model and network_digest(teacher.module) != network_digest(model.module):
            sources.append(teacher)
    return sources


def _is_mixed(module: nn.Module) -> bool:
    # nn.MultiheadAttention reads the weight of its output layer past the layer's forward.
    if isinstance(module, nn.modules.linear.NonDynamicallyQuantizableLinear):
        return False
    return isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d)


def _head_names(body: nn.Module) -> set[str]:
    """Where the source head lies, by timm's own account or by the usual names: its size differs between sources."""
    classifier = getattr(body, "get_classifier", lambda: None)()
    found = {name for name, module in body.named_modules() if name and module is classifier}
    config = getattr(body, "pretrained_cfg", None) or {}
    declared = config.get("classifier", ()) if hasattr(config, "get") else ()
    names = {declared} if isinstance(declared, str) else set(declared or ())
    return found | names | {name for name in ("classifier", "fc", "head.fc") if name in dict(body.named_modules())}


def _shapes(body: nn.Module) -> dict[str, tuple[int, ...]]:
    heads = tuple(f"{name}." for name in _head_names(body))
    return {
        name: tuple(parameter.shape)
        for name, parameter in body.named_parameters()
        if not name.startswith(heads or "\0")
    }


def _difference(teacher: Backbone, wanted: dict[str, tuple[int, ...]]) -> str:
    if teacher.module is None:
        return "is no torch module, unlike"
    found = _shapes(teacher.module)
    for name, shape in wanted.items():
        if name not in found:
            return f"has no parameter {name!r}, unlike"
        if found[name] != shape:
            return f"has {name!r} of shape {found[name]} where {shape} is needed for"
    extra = next(iter(found.keys() - wanted.keys()))
    return f"has a parameter {extra!r} that is not in"
