"""The forward pass itself: one prepared batch in, arrays out, whatever memory and number format allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hubscout.errors import AccelerationError, HubscoutError, ModelError, first_line
from hubscout.features.freed_memory import release_memory
from hubscout.features.pipeline import collate
from hubscout.features.precision import (
    SAFE_RELATIVE_ERROR,
    BatchSize,
    Precision,
    compiling_pays,
    is_out_of_memory,
    needs_usual_layout,
    relative_error,
    wants_channels_last,
)
from hubscout.features.shards import FINAL, LOGITS
from hubscout.features.transfers import filled_up, move, on_its_way
from hubscout.hubs.cost import switches_of_torch
from hubscout.hubs.device_resizing import DeviceResizing
from hubscout.hubs.length_groups import outputs_by_length
from hubscout.runs.profiler import is_profiling, step

if TYPE_CHECKING:
    from hubscout.features.accelerated import Graph
    from hubscout.hubs import Backbone, Batch, Output, Preprocessing

T = TypeVar("T")
Fetched = Callable[[], dict[str, np.ndarray]]
"""Waits for arrays that are on their way from the device."""


class Runner:
    """Runs a backbone in inference: on its device, in eval mode, in the format and layout that suit it.

    Use it as a context manager; leaving it puts the network back into the mode it was in.
    """

    def __init__(
        self,
        backbone: Backbone,
        *,
        device: str,
        preprocessing: Preprocessing | None = None,
        precision: Precision,
        layers: Sequence[str],
        size: BatchSize,
        samples: int,
        tell: Callable[[str], None],
    ) -> None:
        self.backbone = backbone
        self.preprocessing = preprocessing or backbone.preprocessing
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
        compiling = compiling_pays(backbone.module, self.device, samples)
        if self.precision.checked and not compiling:
            self.precision = Precision("float32", self.precision.device_type)
        self._channels_last = compiling and wants_channels_last(backbone.module, self.device)
        self._most_rows = 0
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

    def _take_usual_layout(self) -> None:
        import torch

        assert self.backbone.module is not None
        self._channels_last = False
        self.backbone.module.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]

    def __exit__(self, kind: Any, error: object, trace: Any) -> None:
        for part, training in self._training.items():
            part.training = training
        if error is not None:
            release_memory(self.device)

    def run(self, batch: Batch, samples: Sequence[Any], counts: np.ndarray) -> dict[str, np.ndarray]:
        """Arrays for a batch; `counts` says how many rows of features each sample must give."""
        return self.launch(batch, samples, counts)()

    def launch(self, batch: Batch, samples: Sequence[Any], counts: np.ndarray) -> Fetched:
        """Begin with a batch; what comes back waits for its arrays.

        A GPU that is given the next batch before the arrays of this one are fetched has no pause between the two.
        """
        begun = None
        # Batches that were prepared before memory ran out are larger than what is known to fit now.
        if len(samples) <= self.size.size:
            begun = self._attempt(lambda: self._begin(batch, int(counts.sum())), len(samples))
        if begun is None:
            arrays = self._run_in_pieces(samples, counts)
            return lambda: arrays
        on_device, fetched, precision = begun

        def finish() -> dict[str, np.ndarray]:
            found = self._attempt(lambda: self._finish(on_device, fetched, precision, int(counts.sum())), len(samples))
            return self._run_in_pieces(samples, counts) if found is None else found

        return finish

    def _attempt(self, work: Callable[[], T], count: int) -> T | None:
        """What `work` gives; None where memory ran out, for which room was made."""
        try:
            return work()
        except (RuntimeError, MemoryError) as error:
            if self._channels_last and needs_usual_layout(error):
                self._take_usual_layout()
                return self._attempt(work, count)
            if not is_out_of_memory(error):
                raise ModelError(f"The forward pass fails: {error}") from error
            self.keep = None
            if not self.make_room():
                self.size.halve(count, error)
        except HubscoutError:
            raise
        except Exception as error:
            raise ModelError(f"The forward pass fails: {type(error).__name__}: {error}") from error
        # Outside the handler: the exception held on to the tensors of the pass that failed.
        release_memory(self.device)
        return None

    def _run_in_pieces(self, samples: Sequence[Any], counts: np.ndarray) -> dict[str, np.ndarray]:
        pieces = []
        start = 0
        while start < len(samples):
            piece = slice(start, start + self.size.size)
            pieces.append(self.run(collate(self.preprocessing, samples[piece]), samples[piece], counts[piece]))
            start = piece.stop
        return {name: np.concatenate([arrays[name] for arrays in pieces]) for name in pieces[0]}

    def eager(self, batch: Batch) -> Output:
        """What the backbone itself gives for a batch, in float32."""
        import torch

        with torch.inference_mode():
            return self.backbone.forward(self._moved(batch, channels_last=self._channels_last), self.layers)

    def _begin(self, batch: Batch, rows: int) -> tuple[Batch, Fetched, Precision]:
        import torch

        with torch.inference_mode():
            channels_last = self._channels_last and self.graph is None
            on_device = self._moved(batch, channels_last=channels_last)
            if self.keep is not None:
                self.keep(on_device)
            if isinstance(self.preprocessing, DeviceResizing):
                with step("resize"):
                    on_device = move(self.preprocessing.resize(on_device), self.device, channels_last=channels_last)
                    self._wait()
            output = self._output(on_device)
            if self.precision.checked:
                output = self._check_precision(on_device, output)
            return on_device, self._fetch(output, rows), self.precision

    def _finish(self, on_device: Batch, fetched: Fetched, begun_in: Precision, rows: int) -> dict[str, np.ndarray]:
        import torch

        with step("transfer"):
            arrays = fetched()
        if begun_in.reduced and not all(np.isfinite(array).all() for array in arrays.values()):
            if self.precision.reduced:  # the batch before may have shown it already
                self.tell(f"{self.precision.name} overflows: going on in float32")
                self.precision = Precision("float32", self.precision.device_type)
            with torch.inference_mode():
                arrays = self._fetch(self._output(on_device), rows)()
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
            rows = len(next(iter(batch.values())))
            fills_up = self.device.startswith("cuda") and all(value.ndim == 4 for value in batch.values())
            # Not up to a size for which memory did not suffice.
            self._most_rows = max(min(self._most_rows, self.size.size), rows) if fills_up else rows
            if rows == self._most_rows:
                output = self._forward(batch)
            else:
                output = self._forward(filled_up(batch, rows, self._most_rows)).take(slice(rows))
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
                raise AccelerationError(f"{type(error).__name__}: {first_line(error)}") from error
        with switches_of_torch, self.precision.autocast():
            run = partial(self.backbone.forward, layers=self.layers)
            return outputs_by_length(run, batch, self.device) if self.backbone.ignores_padding else run(batch)

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

    def _fetch(self, output: Output, rows: int) -> Fetched:
        """Begin to bring the arrays to main memory; the call waits for them."""
        import torch

        named = {FINAL: output.features, **output.layers}
        if output.logits is not None:
            named[LOGITS] = output.logits
        if missing := [name for name in self.layers if name not in output.layers]:
            raise ModelError(f"The model did not give the layers {', '.join(missing)}.")
        for name, value in named.items():
            if value.ndim != 2 or value.shape[0] != rows:
                what = f"layer {name!r}" if name else "features"
                raise ModelError(f"Expected {rows} rows of {what}, got the shape {tuple(value.shape)}.")
        if not self.device.startswith("cuda"):
            arrays = {name: value.detach().float().cpu().numpy() for name, value in named.items()}
            return lambda: arrays
        coming = {name: on_its_way(value.detach().float()) for name, value in named.items()}
        arrived = torch.cuda.Event()
        arrived.record(torch.cuda.current_stream(self.device))

        def wait() -> dict[str, np.ndarray]:
            arrived.synchronize()
            # A copy: memory that a GPU writes to is scarce, and is used again for the next batch.
            return {name: value.numpy().copy() for name, value in coming.items()}

        return wait
