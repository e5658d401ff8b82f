"""What goes beside every method: penalties, freezing, adapters, mixup, a moving average of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from hubscout.errors import InputError, did_you_mean
from hubscout.hubs import prepare_torchvision
from hubscout.optional import require
from hubscout.tasks import Task
from hubscout.tuning.batches import Share

if TYPE_CHECKING:
    from hubscout.tuning.arguments import TuningArguments
    from hubscout.tuning.network import Network


MIXABLE = ("image", "array")
"""Modalities whose inputs are numbers that can be added."""


def restrict(
    network: Network, arguments: TuningArguments, unused: Sequence[str], device: torch.device
) -> Iterator[str]:
    """Add adapters, freeze, and set the penalties, as the arguments say; gives notes of what was done."""
    if arguments.lora_rank is not None:
        heads = {name.rpartition(".")[0] for name in unused}
        count = add_adapters(network.body, arguments.lora_rank, without=heads)
        network.to(device)
        yield f"LoRA of rank {arguments.lora_rank} beside {count} layers."
    if arguments.freeze is not None:
        frozen = freeze(network.body, arguments.freeze)
        yield f"{frozen:,} parameters of the backbone are frozen."
    penalties: dict[str, Penalty] = {}
    if arguments.l2_sp:
        penalties["l2-sp"] = L2SP(network.body, arguments.l2_sp)
    if arguments.bss:
        penalties["bss"] = BatchSpectralShrinkage(arguments.bss)
    network.penalties = penalties


class Penalty(Protocol):
    """A number, already weighted, with gradients."""

    def __call__(self, network: Network, features: Tensor) -> Tensor:
        """The penalty for the network as it is and the features of this (micro-)batch."""


class BatchSpectralShrinkage:
    """η · Σ of the k smallest squared singular values of the batch's feature matrix (Chen et al., NeurIPS 2019).

    For: negative transfer, when fine-tuning clings to directions of the pre-trained features that do not serve the
    task. η is the field `bss` (1e-3 in the paper), k = 1. It looks at a batch as a whole, so it does depend on how a
    batch is cut into micro-batches and processes.
    """

    def __init__(self, strength: float) -> None:
        self.strength = strength

    def __call__(self, network: Network, features: Tensor) -> Tensor:
        """The penalty."""
        return self.strength * smallest_squared_singular_values(features, 1).sum()


def smallest_squared_singular_values(matrix: Tensor, count: int) -> Tensor:
    """The `count` smallest of the min(n, D) squared singular values, in ascending order.

    >>> smallest_squared_singular_values(torch.diag(torch.tensor([3.0, 2.0])), 1)
    tensor([4.])
    """
    # Eigenvalues of the smaller Gram matrix: squares are what is wanted, and their gradient exists at ties.
    small = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    return torch.linalg.eigvalsh(small)[:count].clamp_min(0)


class L2SP:
    """½α‖w − w₀‖² over the backbone's trained weights (Li, Grandvalet and Davoine, ICML 2018).

    For: little data, where plain weight decay would pull pre-trained weights towards zero. The optimiser's weight
    decay is left out for the backbone and kept for the head, where it is the paper's second term. It is the same for
    every batch, so it does not depend on the number of processes. α is the field `l2_sp`, 0.01 in the paper's ballpark.
    """

    def __init__(self, body: nn.Module, strength: float) -> None:
        self.strength = strength
        self.start = {name: p.detach().clone() for name, p in body.named_parameters() if p.requires_grad}

    def __call__(self, network: Network, features: Tensor) -> Tensor:
        """The penalty."""
        parameters = dict(network.body.named_parameters())
        names = [name for name in self.start if name in parameters]
        self.start = {name: self.start[name].to(parameters[name].device) for name in names}
        differences = torch._foreach_sub([parameters[n] for n in names], [self.start[n] for n in names])
        squares = [difference.float().square().sum() for difference in differences]
        return 0.5 * self.strength * torch.stack(squares).sum() if squares else features.new_zeros(())


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
            names = [name for name, module in body.named_modules() if name and any(True for _ in module.parameters())]
            top = ", ".join(name for name in names if "." not in name)
            raise InputError(
                f"freeze={upto!r}: the model has no such layer with parameters.{did_you_mean(upto, names)} Allowed are "
                f"'all' and layers: {top}, …"
            )
        frozen = list(parameters)[: inside[-1] + 1]
    for name in frozen:
        parameters[name].requires_grad_(False)
    return sum(parameters[name].numel() for name in frozen)


def add_adapters(body: nn.Module, rank: int, *, without: set[str]) -> int:
    """Freeze the body and put adapters of `rank` beside its linear layers and ungrouped convolutions; how many.

    `without` names modules that no adapter goes to: a source head, for one.
    """
    prepare_torchvision()  # peft imports transformers, and that torchvision
    peft = require("peft", extra="tuning", purpose="LoRA (lora_rank)")
    linear = {name for name, module in body.named_modules() if isinstance(module, nn.Linear)}
    ungrouped = {name for name, part in body.named_modules() if isinstance(part, nn.Conv2d) and part.groups == 1}
    names = sorted((linear | ungrouped) - without)
    if not names:
        raise InputError(f"lora_rank={rank}: the model has no linear layer and no ungrouped convolution to adapt.")
    config = peft.LoraConfig(r=rank, lora_alpha=rank, target_modules=names, lora_dropout=0.0, bias="none")
    peft.inject_adapter_in_model(config, body)
    for name, parameter in body.named_parameters():
        parameter.requires_grad_("lora_" in name)
    return len(names)


def merge_adapters(body: nn.Module) -> None:
    """Add what the adapters learnt to the weights and take them out: the network has its old structure again."""
    tuners = require("peft.tuners.tuners_utils", extra="tuning", purpose="LoRA (lora_rank)")
    for name, module in list(body.named_modules()):
        if isinstance(module, tuners.BaseTunerLayer):
            module.merge()
            body.set_submodule(name, module.get_base_layer())


def check_mixable(task: Task, alpha: float | None) -> None:
    """Refuse inputs of which a weighted sum is no input."""
    if alpha is not None and task.modality not in MIXABLE:
        raise InputError(
            f"mixup={alpha:g} adds two inputs, and the inputs of {task.name!r} are of modality {task.modality!r}: "
            f"allowed are {' and '.join(MIXABLE)}. Leave it out; label_smoothing and ema go with every input."
        )


def mix(share: Share, alpha: float, seed: int) -> Share:
    """X ← w·x + (1 − w)·x', with w ~ Beta(α, α) for a whole step and x' another sample of it (Zhang et al., ICLR 2018).

    For: few data, with every method. The loss is w·ℓ(x, y) + (1 − w)·ℓ(x, y'), which has the gradient of soft targets
    w·y + (1 − w)·y' for classes, labels and numbers alike; so has the teachers' term. Teachers that run live see the
    mixed input. Partners are found among the samples of a process.
    """
    generator = np.random.default_rng(seed)
    weight = float(generator.beta(alpha, alpha))
    order = torch.as_tensor(generator.permutation(len(share.samples)))
    views = {
        name: {key: _blend(value, value[order.to(value.device)], weight) for key, value in batch.items()}
        for name, batch in share.views.items()
    }
    return Share(share.samples, views, partners=share.samples[order], weight=weight)


def _blend(first: Tensor, second: Tensor, weight: float) -> Tensor:
    if first.is_floating_point():
        return torch.lerp(second, first, weight)
    # Pixels stay 8-bit pixels: what follows normalises those and takes floats for normalised already.
    return torch.lerp(second.float(), first.float(), weight).round().to(first.dtype)


class WeightAverage:
    """e ← d·e + (1 − d)·w after each step, with d = min(decay, (1 + t) / (10 + t)) (Polyak and Juditsky, 1992).

    For: noisy training (few data, high rates), with every method. Statistics of batch norms are averaged as well. The
    steps themselves are those of the run without it. `decay` is the field `ema`: 0.99 averages about 100 steps.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.count = 0
        self.average = {name: value.detach().clone() for name, value in network.state_dict().items()}

    def update(self, network: nn.Module) -> None:
        """Take in the weights as they are after a step."""
        decay = min(self.decay, (1 + self.count) / (10 + self.count))  # at the start it follows the weights
        self.count += 1
        with torch.no_grad():
            for name, value in network.state_dict().items():
                if value.is_floating_point():
                    self.average[name].lerp_(value.to(self.average[name]), 1 - decay)
                else:
                    self.average[name].copy_(value)

    @contextmanager
    def applied(self, network: nn.Module) -> Iterator[None]:
        """The network at its averaged weights, inside the `with` block."""
        own = {name: value.detach().clone() for name, value in network.state_dict().items()}
        network.load_state_dict(self.average)
        try:
            yield
        finally:
            network.load_state_dict(own)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"count": self.count, "average": self.average}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.count = int(state["count"])
        found: Mapping[str, Tensor] = state["average"]
        self.average = {name: found[name].to(value.device) for name, value in self.average.items()}
