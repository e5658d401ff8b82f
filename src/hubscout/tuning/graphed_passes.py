"""The two passes of a step, forward and backward, recorded once as a CUDA graph and played back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hubscout.errors import first_line

WARM_UP = 3
"""Steps of a shape that are taken one kernel after another, so that libraries are set up and have chosen theirs."""
MOST_GRAPHS = 4
"""Shapes that are recorded: batches of an epoch have one or two."""

Inputs = dict[str, Tensor]
Passes = Callable[[Inputs], dict[str, Tensor]]
"""From the tensors of a step to its losses, with gradients left in the parameters."""


@dataclass(frozen=True)
class _Recorded:
    graph: Any
    inputs: Inputs
    losses: dict[str, Tensor]
    gradients: list[Tensor | None]


class GraphedPasses:
    """Plays the passes of steps whose tensors have the same shapes.

    For: small images, of which a step is hundreds of kernels of a few microseconds. Launching them one by one takes the
    processor longer than the GPU takes to run them; a graph launches all of them at once. What is computed is the same.
    """

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters
        self.stream, self.pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
        self.seen: Counter[Any] = Counter()
        self.recorded: dict[Any, _Recorded] = {}
        self.failure = ""
        """Why a step could not be recorded."""

    def take(self, inputs: Inputs, passes: Passes, also: Any = None) -> dict[str, Tensor] | None:
        """The losses of a step, gradients in the parameters; `also` is what else the passes depend on.

        None where the passes cannot be recorded: `failure` says why, and no gradient is left. What they raise when they
        are not recorded is theirs, such as that memory runs out.
        """
        key = (also, *((name, tuple(t.shape), t.dtype, t.stride()) for name, t in inputs.items()))
        self.seen[key] += 1
        if key not in self.recorded and self.seen[key] > WARM_UP and len(self.recorded) < MOST_GRAPHS:
            try:
                self.recorded[key] = self._record(inputs, passes)
            except RuntimeError as error:  # a network may do what a graph cannot hold
                self.failure = first_line(error)
                return None
        if key in self.recorded:
            return self._play(self.recorded[key], inputs)
        # On the stream that is recorded later: gradients are accumulated where they were first asked for.
        current = torch.cuda.current_stream()
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            losses = passes(inputs)
        current.wait_stream(self.stream)
        return losses

    def _record(self, inputs: Inputs, passes: Passes) -> _Recorded:
        held = {name: tensor.clone() for name, tensor in inputs.items()}
        self._set_gradients([None] * len(self.parameters))
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads may go on, such as the one that pins the next batches in memory.
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
                losses = passes(held)
        except BaseException:
            self._set_gradients([None] * len(self.parameters))
            _leave_recording()
            raise
        return _Recorded(graph, held, losses, [parameter.grad for parameter in self.parameters])

    def _play(self, recorded: _Recorded, inputs: Inputs) -> dict[str, Tensor]:
        for name, tensor in inputs.items():
            recorded.inputs[name].copy_(tensor, non_blocking=True)
        recorded.graph.replay()
        self._set_gradients(recorded.gradients)
        return {name: loss.clone() for name, loss in recorded.losses.items()}

    def _set_gradients(self, gradients: list[Tensor | None]) -> None:
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient


def _leave_recording() -> None:
    """A new state for the generator: torch leaves it in a recording that failed, where dropout cannot draw from it."""
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    with suppress(RuntimeError):  # networks without dropout go on all the same
        generator.graphsafe_set_state(generator.clone_state())


def can_be_graphed(device: torch.device, processes: int, views: Mapping[str, Mapping[str, Tensor]]) -> bool:
    """Whether steps can be recorded: images on one GPU, of which all batches are alike."""
    shapes = (tensor.ndim == 4 for batch in views.values() for tensor in batch.values())
    return device.type == "cuda" and processes == 1 and all(shapes)
