"""`FrozenFeatures`: frozen features and posteriors of models on the train split, computed once for whoever asks."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import call
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.errors import EvidenceWarning
from hubscout.evidence import Evidence, maximize_evidence
from hubscout.features import Extraction, extract
from hubscout.runs.events import Message
from hubscout.tasks.kinds import kind_of

if TYPE_CHECKING:
    from hubscout.features import FeatureCache
    from hubscout.hubs import Backbone
    from hubscout.tasks import Task


@dataclass
class FrozenFeatures:
    """What frozen models know of a task's train split.

    `shared` runs a function on the main process and gives its result to all: with several processes every model runs
    over the data once. What goes through it is small (posteriors, C numbers a row) unless features are asked for.
    """

    task: Task
    device: str = "auto"
    cache: FeatureCache | None = None
    workers: int | None = None
    shared: Callable[[Callable[[], Any]], Any] = call
    observer: Any = None
    untouched: Backbone | None = None
    """A model that is studied in a copy: a pass over the data may change the memory layout of weights, and with it the
    last bits of what is trained from them."""
    _extractions: dict[tuple[int, str], tuple[Backbone, Extraction]] = field(default_factory=dict, repr=False)
    _posteriors: dict[int, Evidence] = field(default_factory=dict, repr=False)

    def features(self, backbone: Backbone, split: str = "train") -> np.ndarray:
        """(rows, D) features of a split, unaugmented; on the process that asks. They are kept until `forget`."""
        return self._extraction(backbone, split).features()

    def seconds_per_sample(self, backbone: Backbone, split: str) -> float:
        """What the features of a split take; where the cache had them, what they took then: it may not have others."""
        began = time.perf_counter()
        found = self._extraction(backbone, split)
        if found.from_cache and found.samples_per_second:
            return 1 / found.samples_per_second
        return (time.perf_counter() - began) / len(found.rows)

    def posterior(self, backbone: Backbone) -> Evidence:
        """Evidence and posterior weights of Bayesian linear regression on the features.

        Classes are fitted uncentred, as in the paper. Numbers are centred: weights that must explain a large mean as
        well are large themselves, and tuning against them diverges.
        """
        if id(backbone) not in self._posteriors:
            statistics = self._extraction(backbone).statistics[""]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", EvidenceWarning)  # of a score, and here the weights are asked for
                self._posteriors[id(backbone)] = maximize_evidence(statistics, jackknife="none")
        return self._posteriors[id(backbone)]

    def labels(self) -> np.ndarray:
        """(rows, C) labels of the train split: 0/1 for classes, numbers for regression."""
        return kind_of(self.task.kind).target_columns(self.task.train.targets, len(self.task.target_names))

    def forget(self) -> None:
        """Let go of the features, which can be large; posteriors stay."""
        self._extractions.clear()

    def _extraction(self, backbone: Backbone, split: str = "train") -> Extraction:
        place = id(backbone), split
        if place not in self._extractions:
            if self.observer is not None and split == "train":
                name, rows = backbone.card.identifier, len(self.task.train)
                self.observer(Message("", f"Computing the features of {name} for the {rows:,} training samples."))
            # The backbone is kept beside its extraction so that its id stays its own.
            self._extractions[place] = (backbone, self._extract(backbone, split))
        return self._extractions[place][1]

    def _extract(self, backbone: Backbone, split: str) -> Extraction:
        return extract(
            copy.deepcopy(backbone) if backbone is self.untouched else backbone,
            self.task,
            split=split,
            statistics=split == "train",
            device=self.device,
            cache=self.cache,
            workers=self.workers,
            observer=self.observer,
        )
