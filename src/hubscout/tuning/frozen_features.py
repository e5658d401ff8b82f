"""`FrozenFeatures`: frozen features and posteriors of models on the train split, computed once for whoever asks."""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import add, call
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.evidence import Evidence, Statistics, logme, maximize_evidence
from hubscout.evidence.maximize import unwarned
from hubscout.features import Extraction, ExtractionOptions, extract
from hubscout.features.extraction import is_cached
from hubscout.grouping import stratified_folds
from hubscout.runs.events import Event, Message, Observer, silent
from hubscout.runs.texts import LONGEST_IN_A_LINE, names_by_model
from hubscout.tasks.kinds import kind_of
from hubscout.tuning.pass_time import PassWatch, TooSlowError

if TYPE_CHECKING:
    from hubscout.features import FeatureCache
    from hubscout.hubs import Backbone
    from hubscout.tasks import Task


FOLDS = 5
"""Into which train samples are cut, for heads that have not seen the samples of their fold."""
NO_FOLDS = "the train samples cannot be cut into folds: two classes need two samples or more, of different groups"


def folds_of_samples(task: Task, folds: int) -> np.ndarray | None:
    """(samples,) the fold of each train sample, groups whole; None where it cannot be cut into two or more.

    There are fewer folds where there are not so many samples or groups, or only one class has; two classes are left
    outside of each.
    """
    kind, targets, groups = kind_of(task.kind), task.train.targets, task.train.groups
    strata = kind.strata(targets)
    apart = np.arange(len(strata)) if groups is None else groups
    folds = min(folds, len(np.unique(apart)))
    if kind.classes_of_samples:
        pairs = np.unique(np.stack([strata, apart]), axis=1)
        folds = min(folds, int(np.sort(np.bincount(pairs[0], minlength=2))[-2]))
    fold = stratified_folds(strata, max(folds, 1), seed=0, groups=groups)
    alike = kind.classes_of_samples and any(len(np.unique(strata[fold != k])) < 2 for k in range(folds))
    return None if folds < 2 or alike else fold


@dataclass(frozen=True)
class CrossedHeads:
    """Posterior heads of a model, one per fold of the rows, that have not seen the rows of their fold."""

    fold: np.ndarray
    """(rows,) of each row."""
    weights: np.ndarray
    """(folds, C, D)."""
    intercept: np.ndarray
    """(folds, C)."""


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
    hurried: bool = False
    """Whether time is short: networks are then not exported to run faster, since nobody knows how long that takes."""
    watch: Callable[[Backbone], Observer] | None = None
    """See `watched`."""
    _extractions: dict[tuple[int, str], tuple[Backbone, Extraction]] = field(default_factory=dict, repr=False)
    _posteriors: dict[int, Evidence] = field(default_factory=dict, repr=False)
    _heads: dict[tuple[int, int], CrossedHeads] = field(default_factory=dict, repr=False)

    def features(self, backbone: Backbone, split: str = "train") -> np.ndarray:
        """(rows, D) features of a split, unaugmented; on the process that asks. They are kept until `forget`."""
        return self._extraction(backbone, split).features()

    def seconds_per_sample(self, backbone: Backbone, split: str, seconds: float) -> float:
        """What the features of a split take; where the cache had them, what they took then: it may not have others.

        Of a pass that would take more than these seconds in all, some batches tell.
        """
        began = time.perf_counter()
        with self.watched(lambda _: PassWatch(0, seconds)):
            try:
                found = self._extraction(backbone, split)
            except TooSlowError as error:
                return (error.needed or seconds) / len(self.task.splits[split])
        if found.from_cache and found.samples_per_second:
            return 1 / found.samples_per_second
        return (time.perf_counter() - began) / len(found.rows)

    @contextmanager
    def watched(self, watch: Callable[[Backbone], Observer]) -> Iterator[None]:
        """In a `with` block, `watch` gives what hears of a model's pass, beside the observer, and may stop it."""
        self.watch = watch
        try:
            yield
        finally:
            self.watch = None

    def posterior(self, backbone: Backbone) -> Evidence:
        """Evidence and posterior weights of Bayesian linear regression on the features.

        Classes are fitted uncentred, as in the paper. Numbers are centred: weights that must explain a large mean as
        well are large themselves, and tuning against them diverges.
        """
        if id(backbone) not in self._posteriors:
            everyone = np.ones(len(self.features(backbone)), dtype=bool)
            found = self._fit(backbone, everyone, lambda: self._extraction(backbone).statistics[""])
            self._posteriors[id(backbone)] = found
        return self._posteriors[id(backbone)]

    def crossed_heads(self, backbone: Backbone, folds: int) -> CrossedHeads:
        """For each fold of the rows the posterior of all others, with an intercept; samples of a group are in one fold.

        There are fewer folds where there are not so many samples or groups, or only one class has; with one fold: the
        posterior of all rows.
        """
        place = id(backbone), folds
        if place not in self._heads:
            self._heads[place] = self._cross(backbone, folds)
        return self._heads[place]

    def left_out(self, backbone: Backbone) -> np.ndarray:
        """(rows, C) what other train rows predict for each; with groups, the folds that its group is not in."""
        features, crossed = self.features(backbone), None
        if self.task.train.groups is not None:
            crossed = self.crossed_heads(backbone, FOLDS)
        if crossed is None or len(crossed.weights) == 1:
            return self.posterior(backbone).predict_left_out(features, self.labels())
        found = np.empty((len(features), len(self.task.target_names)))
        for k, (weights, intercept) in enumerate(zip(crossed.weights, crossed.intercept, strict=True)):
            found[crossed.fold == k] = features[crossed.fold == k] @ weights.T + intercept
        return found

    def _cross(self, backbone: Backbone, folds: int) -> CrossedHeads:
        kind, targets = kind_of(self.task.kind), self.task.train.targets
        fold = folds_of_samples(self.task, folds)
        if fold is None:
            whole = self.posterior(backbone)
            rows = int(kind.row_counts(targets).sum())
            return CrossedHeads(np.zeros(rows, dtype=np.int64), whole.weights[None], whole.intercept[None])
        folds = int(fold.max()) + 1
        samples = kind.sample_of_row(targets)
        fold = fold if samples is None else fold[samples]
        features, values = self.features(backbone), kind.rows_of(targets)

        @functools.cache
        def sums(k: int) -> Statistics:
            return Statistics(kind.row_kind, self.task.target_names).update(features[fold == k], values[fold == k])

        def without(k: int) -> Statistics:
            return functools.reduce(add, [sums(other) for other in range(folds) if other != k])

        fitted = [self._fit(backbone, fold != k, functools.partial(without, k), center=True) for k in range(folds)]
        return CrossedHeads(
            fold, np.stack([one.weights for one in fitted]), np.stack([one.intercept for one in fitted])
        )

    def _fit(
        self, backbone: Backbone, chosen: np.ndarray, sums: Callable[[], Statistics], *, center: bool | None = None
    ) -> Evidence:
        """The posterior of the chosen rows: from them where they are few, n × n in place of D × D, else from sums."""
        features, kind, names = self.features(backbone), kind_of(self.task.kind), self.task.target_names
        with unwarned():  # of a score, and here the weights are asked for
            if 2 * chosen.sum() > features.shape[1]:
                return maximize_evidence(sums(), center=center, jackknife="none")
            values = kind.rows_of(self.task.train.targets)[chosen]
            classes = range(len(names)) if values.ndim == 1 else None  # not all of them may be among so few
            return logme(
                features[chosen],
                values,
                kind=kind.row_kind,
                classes=classes,
                target_names=names,
                center=center,
                jackknife="none",
            )

    def knows(self, backbone: Backbone) -> bool:
        """Whether the features of the train split are here or in the cache."""
        return (id(backbone), "train") in self._extractions or any(
            self._is_cached(backbone, "train", accelerate) for accelerate in ("auto", "off")
        )

    def on(self, task: Task) -> FrozenFeatures:
        """The same for fewer train samples; what is known of the other splits, which are the same, is kept."""
        others = {place: found for place, found in self._extractions.items() if place[1] != "train"}
        return replace(self, task=task, _extractions=others, _posteriors={}, _heads={})

    def labels(self) -> np.ndarray:
        """(rows, C) labels of the train split: 0/1 for classes, numbers for regression."""
        return kind_of(self.task.kind).target_columns(self.task.train.targets, len(self.task.target_names))

    def forget(self) -> None:
        """Let go of the features, which can be large; posteriors stay."""
        self._extractions.clear()

    def _extraction(self, backbone: Backbone, split: str = "train") -> Extraction:
        place = id(backbone), split
        if place not in self._extractions:
            if self.observer is not None and split == "train" and not self.knows(backbone):
                (name,) = names_by_model([backbone.card.identifier], room=LONGEST_IN_A_LINE).values()
                rows = len(self.task.train)
                self.observer(Message("", f"Computing the features of {name} for the {rows:,} training samples."))
            studied = copy.deepcopy(backbone) if backbone is self.untouched else backbone
            plain = self.hurried and not self._is_cached(studied, split, "auto")
            found = extract(
                studied,
                self.task,
                split=split,
                statistics=split == "train",
                cache=self.cache,
                workers=self.workers,
                observer=self._hearer(backbone),
                options=self._options("off" if plain else "auto"),
            )
            # The backbone is kept beside its extraction so that its id stays its own.
            self._extractions[place] = (backbone, found)
        return self._extractions[place][1]

    def _options(self, accelerate: str) -> ExtractionOptions:
        return ExtractionOptions(device=self.device, accelerate=accelerate)

    def _is_cached(self, backbone: Backbone, split: str, accelerate: str) -> bool:
        return self.cache is not None and is_cached(backbone, self.task, split, self.cache, self._options(accelerate))

    def _hearer(self, backbone: Backbone) -> Observer | None:
        if self.watch is None:
            return self.observer
        watch, tell = self.watch(backbone), self.observer or silent

        def hear(event: Event) -> None:
            tell(event)
            watch(event)

        return hear
