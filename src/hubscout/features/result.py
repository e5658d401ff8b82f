"""`Extraction`: what running a model over a task gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hubscout.errors import InputError
from hubscout.features.shards import FINAL, LOGITS, Store

if TYPE_CHECKING:
    from hubscout.evidence.statistics import Statistics
    from hubscout.hubs import ModelCard


class LayerStatistics(Mapping[str, "Statistics"]):
    """Statistics by layer. Those of tapped layers are made from the kept features when they are asked for.

    A network has many layers and ten blocks of D×D numbers for each do not fit into memory at once; the final
    features' are there from the start.
    """

    def __init__(self, ready: Mapping[str, Statistics], later: Mapping[str, Callable[[], Statistics]]) -> None:
        self._ready = dict(ready)
        self._later = dict(later)

    def __getitem__(self, layer: str) -> Statistics:
        if layer in self._ready:
            return self._ready[layer]
        return self._later[layer]()

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
    "" being the final features. `backend` is what ran the network: "torch" or "onnxruntime". `samples_per_second` is
    measured, in this run or in the one that filled the cache.
    """

    card: ModelCard
    split: str
    rows: np.ndarray
    targets: np.ndarray
    layers: tuple[str, ...]
    statistics: Mapping[str, Statistics]
    seconds: float
    samples_per_second: float
    from_cache: bool
    device: str
    precision: str
    backend: str
    batch_size: int
    skipped: tuple[int, ...] = ()
    messages: tuple[str, ...] = ()
    shards: tuple[int, ...] = ()
    store: Store = field(repr=False, default=None)  # type: ignore[assignment]

    @property
    def n(self) -> int:
        """The number of rows of features: samples, or for tagging words."""
        return len(self.targets)

    def features(self, layer: str = FINAL) -> np.ndarray:
        """The (n, D) features of a layer, float32."""
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
