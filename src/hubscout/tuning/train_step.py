"""One step of training: the gradient of a batch, by micro-batches that fit into memory, and the optimiser's move."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hubscout.errors import TuningError
from hubscout.grouping import grouped
from hubscout.tuning.arguments import TuningArguments
from hubscout.tuning.batches import MODEL, BatchPlan, Share, mixed_seed, view_of
from hubscout.tuning.companions import mix
from hubscout.tuning.graphed_passes import GraphedPasses, can_be_graphed
from hubscout.tuning.losses import Rows
from hubscout.tuning.network import Network, has_batch_norm

if TYPE_CHECKING:
    from accelerate import Accelerator

_PLAIN_STEPS = ("NO", "MULTI_CPU", "MULTI_GPU")
"""Kinds of processes, as accelerate names them, in which a step of the optimiser is its own and no more."""


@dataclass
class TrainStep:
    """Takes steps, each the same whether or not its batch is cut into micro-batches or shared by processes."""

    network: Network
    rows: Rows
    plan: BatchPlan
    arguments: TuningArguments
    accelerator: Accelerator
    served: Mapping[str, str]
    """View of a name → the view that really is there."""
    note: Callable[[str], None]
    """Tells the user."""

    def __post_init__(self) -> None:
        if not any(parameter.requires_grad for parameter in self.network.parameters()):
            raise TuningError("Nothing is left to train: the whole network is frozen.")
        self.optimizer = build_optimizer(self.network, self.arguments)
        self.wrapped, self.prepared = self.accelerator.prepare(self.network, self.optimizer)
        if self.accelerator.scaler is None and self.accelerator.distributed_type.value in _PLAIN_STEPS:
            # The wrapper would hand every step on, having looked twice for a package that is not installed.
            self.prepared = self.optimizer
        share = -(-self.plan.batch_size // self.accelerator.num_processes)
        self.micro_batch = self.arguments.micro_batch_size or share
        # Batch norms and spectral shrinkage look at a batch as a whole.
        self.cuts_by_length = not self.arguments.bss and not has_batch_norm(self.network)
        self.graphs: GraphedPasses | None = None
        self.may_be_graphed = self.arguments.cuda_graphs and self.accelerator.scaler is None

    def take_rates(self, arguments: TuningArguments) -> None:
        """Go on with the learning rates of these arguments."""
        fresh = {id(parameter) for parameter in self.network.new_parameters()}
        for group in self.optimizer.param_groups:
            new = id(group["params"][0]) in fresh
            group["initial_lr"] = arguments.head_learning_rate if new else arguments.learning_rate

    def take(self, step: int, share: Share, factor: float) -> dict[str, Tensor]:
        """Move the network by one step, at `factor` times its rates; the parts of the loss before it.

        Where memory runs out, micro-batches become smaller.
        """
        while True:
            try:
                return self._try_step(step, share, factor)
            except torch.OutOfMemoryError as error:
                self._make_room(error)

    def _try_step(self, step: int, share: Share, factor: float) -> dict[str, Tensor]:
        accelerator, processes = self.accelerator, self.accelerator.num_processes
        # All of a step's randomness comes from its number: a resumed run needs no memory of earlier draws.
        _seed(mixed_seed(self.arguments.seed, 7, step, accelerator.process_index), accelerator.device)
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor
        self.prepared.zero_grad()
        total_rows = self.rows.count(self.plan.batch(step))
        if self.arguments.mixup is not None:
            share = mix(share, self.arguments.mixup, mixed_seed(self.arguments.seed, 11, step))
        groups = share.by_length(accelerator.device.type) if self.cuts_by_length else [share]
        micro_batches = [micro for group in groups for micro in group.slices(self.micro_batch)]
        graphed = len(micro_batches) == 1 and share.partners is None
        # Of a method that has cached several views: the rows of the one that is shown now.
        first_row = view_of(self.plan.epoch(step), self.network.method.views) * len(self.rows.targets)
        first_row = first_row if self.network.method.views else 0
        logged: dict[str, Tensor] = {}
        for number, micro in enumerate(micro_batches):
            waits = number + 1 < len(micro_batches)
            with accelerator.no_sync(self.wrapped) if waits else nullcontext():
                parts = self._backward(micro, first_row, processes / total_rows, 1 / len(micro_batches), graphed)
            for name, value in parts.items():
                logged[name] = logged[name] + value if name in logged else value
        if self.arguments.gradient_clip is not None:
            accelerator.clip_grad_norm_(self.network.parameters(), self.arguments.gradient_clip)
        self.prepared.step()
        return logged

    def _backward(
        self, micro: Share, first_row: int, row_weight: float, penalty_weight: float, graphed: bool = False
    ) -> dict[str, Tensor]:
        """Add a micro-batch's gradient; its parts of the loss, such that their sum over processes is the batch's."""
        device, processes = self.accelerator.device, self.accelerator.num_processes
        rows = self.rows.of_samples(micro.samples)
        placed = micro.to(device)
        views = {name: placed.views[served] for name, served in self.served.items()}
        with torch.no_grad(), self.accelerator.autocast():
            references = self.network.method.references(first_row + rows, views)
        partners = self._partners(placed, first_row, references)
        targets = self.rows.targets[rows]

        def passes(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
            batch = {name: inputs[f"view/{name}"] for name in views[MODEL]}
            said = {name: inputs[f"reference/{name}"] for name in references}
            parts = self.wrapped(batch, inputs["targets"], said, partners)
            loss = sum(parts["rows"].values()) * row_weight
            if parts["penalties"]:
                loss = loss + sum(parts["penalties"].values()) * penalty_weight
            self.accelerator.backward(loss)
            logged = {name: value.detach() * (row_weight / processes) for name, value in parts["rows"].items()}
            for name, value in parts["penalties"].items():
                logged[name] = value.detach() * (penalty_weight / processes)
            return logged

        inputs = {
            "targets": targets,
            **{f"view/{name}": tensor for name, tensor in views[MODEL].items()},
            **{f"reference/{name}": tensor for name, tensor in references.items()},
        }
        if graphed and self.may_be_graphed and can_be_graphed(device, processes, {MODEL: views[MODEL]}):
            self.graphs = self.graphs or GraphedPasses(list(self.network.parameters()))
            played = self.graphs.take(inputs, passes, (row_weight, penalty_weight))
            if played is not None:
                return played
            reason = self.graphs.failure
            self.forget_graphs()
            self.note(f"The steps cannot be recorded as a CUDA graph, and are taken kernel by kernel: {reason}")
        return passes(inputs)

    def forget_graphs(self) -> bool:
        """Give back the memory of recorded passes, that of a batch, and record no more; whether there were any."""
        there = self.graphs is not None
        self.may_be_graphed = False
        self.drop_graphs()
        return there

    def drop_graphs(self) -> None:
        """Give back the memory of recorded passes; the next steps are recorded anew."""
        self.graphs = None
        self.prepared.zero_grad()  # gradients may be in their memory
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def let_go(self) -> None:
        """After the last step: drop the gradients and what the optimiser remembers, up to three times the weights."""
        self.forget_graphs()
        self.optimizer.state.clear()

    def _partners(
        self, micro: Share, first_row: int, references: Mapping[str, Tensor]
    ) -> tuple[Tensor, Mapping[str, Tensor], float] | None:
        """Of the samples that these were mixed with: targets and what teachers say; and the weight of these."""
        if micro.partners is None:
            return None
        rows = self.rows.of_samples(micro.partners)
        if not self.network.method.live_teachers():  # those have seen the mixture
            with torch.no_grad():
                references = self.network.method.references(first_row + rows, {})
        return self.rows.targets[rows], references, micro.weight

    def _make_room(self, error: torch.OutOfMemoryError) -> None:
        """Halve the micro-batch, to go on by accumulating."""
        if self.accelerator.num_processes > 1:
            raise TuningError(
                f"Out of memory at micro-batches of {self.micro_batch} samples. With several processes this cannot be "
                f"mended on the way: resume with micro_batch_size={max(self.micro_batch // 2, 1)}."
            ) from error
        if self.micro_batch == 1:
            reason = "Out of memory with a single sample: choose a smaller model or a larger device."
            raise TuningError(reason) from error
        self.micro_batch = (self.micro_batch + 1) // 2
        self.forget_graphs()
        self.note(f"Out of memory: going on with micro-batches of {self.micro_batch} samples, accumulated.")


def _seed(seed: int, device: torch.device) -> None:
    """Seed what a network draws from. `torch.manual_seed` does that for devices which are not there, and takes long."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def build_optimizer(network: Network, arguments: TuningArguments) -> torch.optim.Optimizer:
    """SGD with Nesterov momentum or AdamW, with the backbone's and the new modules' own rates in `initial_lr`."""
    fresh = {id(parameter) for parameter in network.new_parameters()}
    adamw, learnt = arguments.optimizer == "adamw", [one for one in network.parameters() if one.requires_grad]
    groups = grouped(((id(one) in fresh, adamw and one.ndim < 2), one) for one in learnt)
    settings: list[dict[str, Any]] = []
    for (new, spared), parameters in groups.items():
        rate = arguments.head_learning_rate if new else arguments.learning_rate
        # L2-SP takes the place of weight decay where the weights have a starting point.
        decay = 0.0 if spared or (arguments.l2_sp and not new) else arguments.weight_decay
        settings.append({"params": parameters, "lr": rate, "initial_lr": rate, "weight_decay": decay})
    if arguments.optimizer == "adamw":
        return torch.optim.AdamW(settings)
    return torch.optim.SGD(settings, lr=1.0, momentum=arguments.momentum, nesterov=arguments.momentum > 0)
