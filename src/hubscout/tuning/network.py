"""`Network`: backbone, new head and what a method adds, as the one module that is trained; and its heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from hubscout.errors import InputError
from hubscout.features.precision import needs_usual_layout, wants_channels_last
from hubscout.hubs import Backbone, Batch
from hubscout.tuning.batches import BatchPlan, mixed_seed
from hubscout.tuning.losses import TaskLoss
from hubscout.tuning.rates import rates_of

if TYPE_CHECKING:
    from hubscout.tuning.companions import Penalty
    from hubscout.tuning.frozen_features import FrozenFeatures
    from hubscout.tuning.methods.method import Method
    from hubscout.tuning.single_run import SingleRun


SHORT_RUN = 2000
"""Steps up to which batch norms keep their statistics, unless told otherwise: longer runs were not compared. See
`experiments/default_tuning`."""


def new_head(feature_dim: int, loss: TaskLoss, seed: int) -> nn.Linear:
    """A linear head, random by the seed alone; for numbers zero, which is their mean.

    Random weights times large features miss the numbers by many deviations, and the first steps spoil the backbone.
    """
    weight, bound = torch.zeros(loss.outputs, feature_dim), feature_dim**-0.5
    if loss.likelihood.to_values is not None:
        weight.uniform_(-bound, bound, generator=torch.Generator().manual_seed(mixed_seed(seed, 1)))
    return _linear(weight, torch.zeros(loss.outputs))


def posterior_head(frozen: FrozenFeatures, backbone: Backbone, targets: Tensor, loss: TaskLoss) -> nn.Linear:
    """A head at the posterior weights m of frozen features.

    m predicts the targets themselves: for regression it is the head, in the units of the loss. For classes fᵀm lies
    near 0 and 1, far too flat for logits, so it is centred and stretched by the factor that explains the train split
    best, each sample predicted from the others: of samples that it was fitted to, m is far too sure.
    """
    evidence = frozen.posterior(backbone)
    weights = torch.as_tensor(evidence.weights, dtype=torch.float64)
    bias = torch.as_tensor(evidence.intercept, dtype=torch.float64)
    if loss.offset is not None and loss.scale is not None:
        weights = weights / torch.as_tensor(loss.scale)[:, None]
        bias = (bias - torch.as_tensor(loss.offset)) / torch.as_tensor(loss.scale)
    bias, stretch = bias - loss.likelihood.middle, best_stretch(frozen.left_out(backbone), targets, loss)
    return _linear(stretch * weights, stretch * bias)


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    head = nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(bias)
    return head


def best_stretch(left_out: np.ndarray, targets: Tensor, loss: TaskLoss) -> float:
    """The factor under which predictions for samples left out have the least loss; 1 for numbers.

    On a grid: the loss is convex in it.
    """
    if loss.likelihood.to_values is None:
        return 1.0
    outputs, targets = torch.as_tensor(left_out) - loss.likelihood.middle, targets.cpu()
    return float(min(np.geomspace(1.0, 64.0, 49), key=lambda factor: float(loss(factor * outputs, targets).mean())))


def head_in_target_units(head: nn.Module, loss: TaskLoss) -> nn.Linear:
    """A copy of the head that gives regression targets in their own units."""
    (layer,) = (part for part in head.modules() if isinstance(part, nn.Linear))
    weight, bias = layer.weight.detach().double().cpu(), layer.bias.detach().double().cpu()
    if loss.offset is not None and loss.scale is not None:
        scale = torch.as_tensor(loss.scale)
        weight, bias = weight * scale[:, None], bias * scale + torch.as_tensor(loss.offset)
    return _linear(weight, bias)


LossParts = dict[str, dict[str, Tensor]]
"""`rows`: sums over the rows of the batch, to be divided by the rows of all of it; `penalties`: plain numbers."""


class Network(nn.Module):
    """Computes the loss inside `forward`, so that whatever wraps the module sees every parameter at work."""

    def __init__(
        self,
        backbone: Backbone,
        head: nn.Module,
        loss: TaskLoss,
        method: Method,
        *,
        frozen_norm_statistics: bool = False,
    ) -> None:
        super().__init__()
        assert backbone.module is not None
        self.body = backbone.module
        self.head = head
        self.extra = method.extra if method.extra is not None else nn.Module()
        self.backbone = backbone
        self.loss = loss
        self.method = method
        self.penalties: dict[str, Penalty] = {}
        self.frozen_norm_statistics = frozen_norm_statistics
        self.layout = torch.contiguous_format

    def lay_out(self, layout: torch.memory_format) -> None:
        """Have weights, and the images of every pass, in a memory layout."""
        self.layout = layout
        self.to(memory_format=layout)  # type: ignore[call-overload]

    def features(self, batch: Batch) -> Tensor:
        """The backbone's features, in float32 at least."""
        images = {k: v.contiguous(memory_format=self.layout) for k, v in batch.items() if v.ndim == 4}
        features = self.backbone.forward({**batch, **images}).features
        return features if features.dtype == torch.float64 else features.float()

    def classify(self, features: Tensor) -> Tensor:
        """The head's outputs; outside autocast, since its few sums decide and cost nothing."""
        with torch.autocast(features.device.type, enabled=False):
            return self.head(features)

    def predict(self, batch: Batch) -> Tensor:
        """The head's outputs for a batch."""
        return self.classify(self.features(batch))

    def forward(
        self,
        batch: Batch,
        targets: Tensor,
        references: Mapping[str, Tensor],
        partners: tuple[Tensor, Mapping[str, Tensor], float] | None = None,
    ) -> LossParts:
        """The parts of the loss; `partners`: targets and references of other samples and the weight of these ones."""
        features = self.features(batch)
        predictions = self.classify(features)
        with torch.autocast(features.device.type, enabled=False):
            rows = self._rows(features, predictions, targets, references)
            if partners is not None:
                others, weight = self._rows(features, predictions, *partners[:2]), partners[2]
                rows = {name: weight * value + (1 - weight) * others[name] for name, value in rows.items()}
            penalties = {name: penalty(self, features) for name, penalty in self.penalties.items()}
        return {"rows": rows, "penalties": penalties}

    def _rows(
        self, features: Tensor, predictions: Tensor, targets: Tensor, references: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        terms = self.method.terms(self.extra, features, predictions, references)
        return {"task": self.loss(predictions, targets).sum(), **{name: term.sum() for name, term in terms.items()}}

    def train(self, mode: bool = True) -> Network:
        """Training mode, except for norms whose parameters are frozen, or all: their statistics stay as they are."""
        super().train(mode)
        if mode:
            for module in self.body.modules():
                trained = [parameter.requires_grad for parameter in module.parameters(recurse=False)]
                keeps_statistics = getattr(module, "running_mean", None) is not None
                if keeps_statistics and (self.frozen_norm_statistics or (trained and not any(trained))):
                    module.eval()
        return self

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """In eval mode for the time of the block."""
        was_training = self.training
        self.eval()
        yield
        self.train(was_training)

    def new_parameters(self) -> Iterator[nn.Parameter]:
        """Parameters that start from nothing and learn at the head's rate."""
        yield from self.head.parameters()
        yield from self.extra.parameters()
        yield from self.method.new_parameters(self.body)


def has_statistics(module: nn.Module) -> bool:
    """Whether its batch norms are other than new ones: trained, or folded away with a bias left."""
    norms = [part for part in module.modules() if getattr(part, "running_mean", None) is not None]
    new = {"running_mean": 0.0, "running_var": 1.0, "bias": 0.0}
    found = ((getattr(part, name, None), value) for part in norms for name, value in new.items())
    return any(tensor is not None and bool((tensor != value).any()) for tensor, value in found)


def has_batch_norm(module: nn.Module) -> bool:
    """Whether outputs in training mode depend on the rest of the batch."""
    return any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in module.modules())


def keeps_norm_statistics(run: SingleRun) -> bool:
    """As it was asked for; else in short runs, at rates that networks with norms that stay were seen to bear."""
    asked, body = run.asked, run.model.module
    if asked.frozen_norm_statistics is not None:
        return asked.frozen_norm_statistics
    assert asked.learning_rate is not None
    assert body is not None
    per_epoch = BatchPlan(len(run.task.train), asked.batch_size, asked.seed).batches_per_epoch
    short = asked.length(per_epoch) <= SHORT_RUN
    slow = asked.learning_rate <= rates_of(asked.optimizer, run.task.modality).default
    if not (short and slow and has_statistics(body)) or run.method.moves_norms:
        return False
    run.note(
        f"Batch norms keep the statistics they came with, as in every run of at most {SHORT_RUN} steps; "
        "frozen_norm_statistics=False lets them move."
    )
    return True


def check_batches(network: Network, plan: BatchPlan, processes: int) -> None:
    """Refuse a batch size that leaves a process without samples, or a batch norm with a single one."""
    least = 2 if has_batch_norm(network.body) else 1
    smallest = plan.samples // plan.batches_per_epoch // processes
    if smallest < least:
        reason = " (batch norm needs two)" if least == 2 else ""
        raise InputError(
            f"batch_size={plan.batch_size} leaves {smallest} samples for each of {processes} processes; at least "
            f"{least} are needed{reason}. The train split has {plan.samples}."
        )


def take_fast_layout(network: Network, batch: Batch, device: torch.device) -> None:
    """Channels last where convolutions are faster so, and the network can do with it."""
    if not wants_channels_last(network.body, device.type):
        return
    network.lay_out(torch.channels_last)
    try:
        with network.evaluating(), torch.no_grad():
            network.features(batch)
    except RuntimeError as error:
        if not needs_usual_layout(error):
            raise
        network.lay_out(torch.contiguous_format)


def check_width(network: Network, batch: Batch) -> None:
    """Refuse a model whose features on this task have another width than its card says, which heads are built by."""
    with network.evaluating(), torch.no_grad():
        found = network.features(batch).shape[-1]
    card, expected = network.backbone.card, getattr(network.head, "in_features", found)
    if found != expected:
        raise InputError(
            f"model={card.identifier!r} gives {found} features on this task, and {expected} were expected: it can be "
            "ranked but not tuned."
        )


def silence_unused(network: Network, batch: Batch) -> list[str]:
    """Freeze what does not reach the features (a source head, say) and name it.

    Such parameters never get a gradient, and several processes would wait for it. One pass in eval mode tells, except
    of what a method put in, which may be at work in training only.
    """
    own = {id(parameter) for parameter in network.method.new_parameters(network.body)}
    wanted = {name: p for name, p in network.body.named_parameters() if p.requires_grad and id(p) not in own}
    if not wanted:
        return []
    with network.evaluating(), torch.enable_grad():
        gradients = torch.autograd.grad(network.features(batch).sum(), list(wanted.values()), allow_unused=True)
    unused = [name for (name, _), gradient in zip(wanted.items(), gradients, strict=True) if gradient is None]
    for name in unused:
        wanted[name].requires_grad_(False)
    return unused
