"""The forward pass itself: one prepared batch in, arrays out, whatever memory and number format allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.errors import AccelerationError, HubscoutError, ModelError
from hubscout.features.pipeline import collate
from hubscout.features.precision import (
    SAFE_RELATIVE_ERROR,
    BatchSize,
    Precision,
    is_out_of_memory,
    move,
    relative_error,
    release_memory,
    wants_channels_last,
)
from hubscout.features.shards import FINAL, LOGITS
from hubscout.hubs.cost import switches_of_torch
from hubscout.runs.profiler import is_profiling, step

if TYPE_CHECKING:
    from hubscout.features.accelerated import Graph
    from hubscout.hubs import Backbone, Batch, Output


class Runner:
    """Runs a backbone in inference: on its device, in eval mode, in the format and layout that suit it.

    Use it as a context manager; leaving it puts the network back into the mode it was in.
    """

    def __init__(
        self,
        backbone: Backbone,
        *,
        device: str,
        precision: Precision,
        layers: Sequence[str],
        size: BatchSize,
        tell: Callable[[str], None],
    ) -> None:
        self.backbone = backbone
        # A network that torch does not run takes its batches from main memory.
        self.device = device if backbone.module is not None else "cpu"
        self.precision = precision if backbone.module is not None else Precision("float32", "cpu")
        self.layers = tuple(layers)
        self.size = size
        self.tell = tell
        self.keep: Callable[[Batch], None] | None = None
        """Takes the batch as it is on the device."""
        self.make_room: Callable[[], bool] = lambda: False
        """Lets go of what is kept on the device; whether there was anything."""
        self.graph: Graph | None = None
        """Runs the batches in place of the backbone."""
        self._channels_last = wants_channels_last(backbone.module, self.device)
        self._training: dict[Any, bool] = {}

    def __enter__(self) -> Runner:
        import torch

        module = self.backbone.module
        if module is not None:
            self._training = {part: part.training for part in module.modules()}
            module.eval()
            try:
                self._place()
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                raise ModelError(f"The model does not fit into the memory of {self.device}.") from error
            if self._channels_last:
                module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return self

    def _place(self) -> None:
        """Move the network to its device; what is kept there makes room for it."""
        try:
            self.backbone.to(self.device)
            return
        except RuntimeError as error:
            if not is_out_of_memory(error) or not self.make_room():
                raise
        release_memory(self.device)
        self.backbone.to(self.device)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for part, training in self._training.items():
            part.training = training
        if error is not None:
            release_memory(self.device)

    def run(self, batch: Batch, samples: Sequence[Any], counts: np.ndarray) -> dict[str, np.ndarray]:
        """Arrays for a batch; `counts` says how many rows of features each sample must give."""
        # Batches that were prepared before memory ran out are larger than what is known to fit now.
        if len(samples) > self.size.size:
            return self._run_in_pieces(samples, counts)
        try:
            return self._arrays(batch, counts)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise ModelError(f"The forward pass fails: {error}") from error
            self.keep = None
            if not self.make_room():
                self.size.halve(len(samples), error)
        except HubscoutError:
            raise
        except Exception as error:
            raise ModelError(f"The forward pass fails: {type(error).__name__}: {error}") from error
        # Outside the handler: the exception held on to the tensors of the pass that failed.
        release_memory(self.device)
        return self._run_in_pieces(samples, counts)

    def _run_in_pieces(self, samples: Sequence[Any], counts: np.ndarray) -> dict[str, np.ndarray]:
        pieces = []
        start = 0
        while start < len(samples):
            piece = slice(start, start + self.size.size)
            batch = collate(self.backbone.preprocessing, samples[piece])
            pieces.append(self.run(batch, samples[piece], counts[piece]))
            start = piece.stop
        return {name: np.concatenate([arrays[name] for arrays in pieces]) for name in pieces[0]}

    def eager(self, batch: Batch) -> Output:
        """What the backbone itself gives for a batch, in float32."""
        import torch

        with torch.inference_mode():
            return self.backbone.forward(self._moved(batch, channels_last=self._channels_last), self.layers)

    def _arrays(self, batch: Batch, counts: np.ndarray) -> dict[str, np.ndarray]:
        import torch

        with torch.inference_mode():
            on_device = self._moved(batch, channels_last=self._channels_last and self.graph is None)
            if self.keep is not None:
                self.keep(on_device)
            output = self._output(on_device)
            if self.precision.checked:
                output = self._check_precision(on_device, output)
            arrays = self._to_numpy(output, int(counts.sum()))
            if self.precision.reduced and not all(np.isfinite(array).all() for array in arrays.values()):
                self.tell(f"{self.precision.name} overflows: going on in float32")
                self.precision = Precision("float32", self.precision.device_type)
                arrays = self._to_numpy(self._output(on_device), int(counts.sum()))
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                bad = int((~np.isfinite(array)).any(axis=1).sum())
                where = "source logits" if name == LOGITS else f"features{f' of layer {name}' if name else ''}"
                raise ModelError(f"The {where} of {bad} of {len(array)} rows in a batch are not finite.")
        return arrays

    def _moved(self, batch: Batch, *, channels_last: bool) -> Batch:
        with step("transfer"):
            moved = move(batch, self.device, channels_last=channels_last)
            self._wait()
            return moved

    def _output(self, batch: Batch) -> Output:
        with step("forward"):
            output = self._forward(batch)
            self._wait()
            return output

    def _wait(self) -> None:
        """A GPU works on while the caller goes on: to say how long a step took, wait for its end."""
        if is_profiling() and self.device.startswith("cuda"):
            import torch

            torch.cuda.synchronize(self.device)

    def _forward(self, batch: Batch) -> Output:
        if self.graph is not None:
            try:
                return self.graph(batch)
            except Exception as error:  # also where memory ran out: torch goes on with smaller batches
                reason = next(iter(str(error).splitlines()), "")
                raise AccelerationError(f"{type(error).__name__}: {reason}") from error
        with switches_of_torch, self.precision.autocast():
            return self.backbone.forward(batch, self.layers)

    def _check_precision(self, batch: Batch, output: Output) -> Output:
        """Compare the first batch with float32; stay with the reduced format only where the features agree."""
        reduced = self.precision
        self.precision = Precision("float32", reduced.device_type)
        exact = self._output(batch)
        error = relative_error(output.features, exact.features)
        if error > SAFE_RELATIVE_ERROR:
            self.tell(f"{reduced.name} changes the features by {error:.1%}: going on in float32")
        else:
            self.precision = Precision(reduced.name, reduced.device_type)
        return exact

    def _to_numpy(self, output: Output, rows: int) -> dict[str, np.ndarray]:
        named = {FINAL: output.features, **output.layers}
        if output.logits is not None:
            named[LOGITS] = output.logits
        if missing := [name for name in self.layers if name not in output.layers]:
            raise ModelError(f"The model did not give the layers {', '.join(missing)}.")
        arrays = {}
        for name, value in named.items():
            if value.ndim != 2 or value.shape[0] != rows:
                what = f"layer {name!r}" if name else "features"
                raise ModelError(f"Expected {rows} rows of {what}, got the shape {tuple(value.shape)}.")
            with step("transfer"):
                arrays[name] = value.detach().float().cpu().numpy()
        return arrays
