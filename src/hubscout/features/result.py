"""`Extraction`: what running a model over a task gave, and the statistics that are made of its features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from hubscout.errors import InputError
from hubscout.features.shards import FINAL, LOGITS, Store
from hubscout.tasks.kinds import kind_of

if TYPE_CHECKING:
    import torch

    from hubscout.evidence.statistics import Statistics
    from hubscout.hubs import ModelCard
    from hubscout.tasks import Kind

_FLUSH_ROWS = 512
_FEW_ROWS = 4096


def takes_rows(n: int, dim: int, blocks: int) -> bool:
    """Whether n rows of features are looked at themselves where they are kept, and not sums over each block of them.

    With few rows for their dimensions, B matrices of D×D doubles take more memory than the rows do twice, and more time
    than all the rest of a score.

    >>> takes_rows(4_000, 64, 10), takes_rows(12_000, 1_280, 10), takes_rows(50_000, 2_048, 10)
    (True, True, False)
    """
    return n <= max(_FEW_ROWS, blocks * dim)


class BlockAccumulator:
    """Statistics of one layer. Rows are held back until a block has enough of them for one matrix product.

    An update touches a whole D×D matrix however few rows it adds; with ten blocks interleaved in every batch, adding
    them at once would cost more than the products themselves. Of each block at most `_FLUSH_ROWS` rows are held.

    On a CUDA `device` the sums are kept there: the products, and the eigenproblem that comes after them, take
    milliseconds on a GPU and seconds on the processors that are busy decoding. They have a stream of their own. Every
    look at a number waits for the stream that it is in, and in that of the forward passes there is always a batch to
    wait for.
    """

    def __init__(self, kind: Kind, target_names: tuple[str, ...], *, device: str = "cpu") -> None:
        from hubscout.evidence.statistics import Statistics

        self._statistics = Statistics(kind_of(kind).row_kind, target_names)
        self._device = device
        self._held: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}

    def add(
        self, features: np.ndarray, targets: np.ndarray, blocks: np.ndarray, kept: np.ndarray | None = None
    ) -> None:
        """Add rows; `blocks` has the block of each, `kept` its sample where the row stays, and -1 where it does not."""
        from hubscout.evidence.statistics import KeptRows

        if kept is not None and (stays := kept >= 0).any():
            self._statistics.kept.append(KeptRows(features[stays], targets[stays], kept[stays]))
        for block in np.unique(blocks).tolist():
            mine = blocks == block
            held = self._held.setdefault(block, [])
            held.append((features[mine], targets[mine]))
            if sum(len(rows) for rows, _ in held) >= _FLUSH_ROWS:
                self._flush(block)

    def finish(self) -> Statistics:
        """The statistics of everything that was added."""
        for block in sorted(self._held):
            self._flush(block)
        if self._device.startswith("cuda"):
            self._hand_over()
        return self._statistics

    def _hand_over(self) -> None:
        """Let the caller's stream read the sums: they are made, and their memory is given out again only after that."""
        import torch

        from hubscout.evidence.block import ARRAYS

        _stream_beside(self._device).synchronize()
        reading = torch.cuda.current_stream(self._device)
        for block in self._statistics.blocks.values():
            for tensor in (getattr(block, name) for name in ARRAYS):
                tensor.record_stream(reading)

    def _flush(self, block: int) -> None:
        features, targets = map(np.concatenate, zip(*self._held.pop(block), strict=True))
        if self._device.startswith("cuda"):
            import torch

            with torch.cuda.stream(_stream_beside(self._device)):
                self._statistics.update(torch.from_numpy(features).to(self._device), targets, block=block)
        else:
            self._statistics.update(features, targets, block=block)


@lru_cache(maxsize=8)
def _stream_beside(device: str) -> torch.cuda.Stream:
    """One for all models, because memory stays with its stream; what is short need not wait for what is long."""
    import torch

    return torch.cuda.Stream(device, priority=-1)


class LayerStatistics(Mapping[str, "Statistics"]):
    """Statistics by layer. Where features are kept, those of tapped layers are made when they are asked for.

    A network has many layers and ten blocks of D×D numbers for each do not fit into memory at once; the final
    features' are there from the start, unless there are so few rows that sums may never be asked for.
    """

    def __init__(self, ready: Mapping[str, Statistics], later: Mapping[str, Callable[[], Statistics]]) -> None:
        self._ready = dict(ready)
        self._later = dict(later)

    def __getitem__(self, layer: str) -> Statistics:
        return self._ready[layer] if layer in self._ready else self._later[layer]()

    def __iter__(self) -> Iterator[str]:
        yield from self._ready
        yield from self._later

    def __len__(self) -> int:
        return len(self._ready) + len(self._later)


@dataclass(frozen=True)
class Extraction:
    """What running a model over the rows of a split gave.

    `rows` are the samples that went through, in order; `targets` belong to the rows of the features (for tagging:
    to the words, all sentences one after the other). `layers` are the names that `features` and `statistics` know,
    "" being the final features. `backend` is what ran the network: "torch", "onnxruntime" or "openvino".
    `samples_per_second` is measured, in this run or in the one that filled the cache.
    """

    card: ModelCard
    """Of the model."""
    split: str
    rows: np.ndarray
    targets: np.ndarray
    layers: tuple[str, ...]
    statistics: Mapping[str, Statistics]
    seconds: float
    """How long it took."""
    samples_per_second: float
    from_cache: bool
    """Whether all features were there already."""
    device: str
    """On which the network ran."""
    precision: str
    """In which it ran, such as "float32"."""
    backend: str
    batch_size: int
    """How many samples went through at once at the end."""
    skipped: tuple[int, ...] = ()
    """Samples that could not be read."""
    messages: tuple[str, ...] = ()
    """What the user should know."""
    shards: tuple[int, ...] = ()
    """The numbers of the shards that the rows are."""
    store: Store = field(repr=False, default=None)  # type: ignore[assignment]
    """Where features are kept; None where they were not."""

    @property
    def n(self) -> int:
        """The number of rows of features: samples, or for tagging words."""
        return len(self.targets)

    def features(self, layer: str = FINAL) -> np.ndarray:
        """The (n, D) features of a layer, float32.

        Args:
            layer: one of `layers`; "" for the final features.

        Returns:
            One row per sample, or for tagging per word, in the order of `targets`.

        Raises:
            InputError: there is no such layer, or the features were not kept.

        """
        if layer not in self.layers:
            known = ", ".join(repr(name) for name in self.layers)
            raise InputError(f"layer must be one of {known}; got {layer!r}. Extract with layers=[...] to have more.")
        return self._gather(layer)

    @property
    def logits(self) -> np.ndarray | None:
        """The (n, source classes) logits of the source head; None where the model has none or they were not kept."""
        if not any(self.store.has(index, LOGITS) for index in self.shards):
            return None
        return self._gather(LOGITS)

    def _gather(self, name: str) -> np.ndarray:
        parts = [self.store.read(index, name) for index in self.shards]
        if not parts:
            return np.zeros((0, self.card.feature_dim), dtype=np.float32)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
