"""Ways of teaching that are no option of `tune`: controls, and candidates that the product does not have.

Each is put in place for one run.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

FOLDS = 5
COMPONENTS = 64
"""Of each teacher's features, in the crossed term."""


def changed(options: dict[str, Any]) -> Iterator[AbstractContextManager[Any]]:
    """What is no option of `tune`: taken out of the options, and put in its place for a run.

    B-Tuning through crossed heads has a bound that came last: without one unless the options say so.
    """
    from hubscout.tuning.methods import b_tuning

    yield patch.object(b_tuning, "BOUND", options.pop("bound", math.inf))
    if options.pop("shuffled", False):
        yield shuffled_answers()
    if share := options.pop("share", 0.0):
        yield features_by_variance(share)
    if options.pop("zero_maps", False):
        yield zero_maps()
    if options.pop("raw_features", False):
        yield raw_features(annealed=options.pop("annealed", False), absolute=options.pop("absolute", False))
    if options.pop("relations", False):
        yield relations(annealed=options.pop("annealed", False))
    if options.pop("centred", False):
        yield centred_heads()
    if strength := options.pop("answers_beside", 0.0):
        yield answers_beside(strength)
    if options.pop("crossed_features", False):
        yield crossed_features()
    if options.pop("labels", False):
        yield labels_for_answers()
    if course := options.pop("course", ""):
        yield term_over_time(course)
    if views := options.pop("own_views", 0):
        yield heads_of_views(views)


def features_by_variance(share: float) -> AbstractContextManager[Any]:
    """Distillation of features with λ = share / variance of the teachers' features."""
    from hubscout.tuning.methods import Distillation

    given = Distillation.prepare

    def prepare(self: Any, preparation: Any) -> None:
        given(self, preparation)
        variances = [float((one - one.mean(dim=0)).square().sum(dim=1).mean()) for one in self.cached]
        self.trade_off = share * len(variances) / sum(variances)

    return patch.object(Distillation, "prepare", prepare)


def zero_maps() -> AbstractContextManager[Any]:
    """Distillation of features with maps that begin at zero, as those of `feature_trade_off` do."""
    from hubscout.tuning.methods import Distillation

    given = Distillation.prepare

    def prepare(self: Any, preparation: Any) -> None:
        given(self, preparation)
        for linear in self.extra:
            torch.nn.init.zeros_(linear.weight)

    return patch.object(Distillation, "prepare", prepare)


@contextmanager
def raw_features(*, annealed: bool, absolute: bool) -> Iterator[None]:
    """The second term of B-Tuning in the form of `kd`: features as they are, and maps that begin at random.

    Its strength is in shares of the variance all the same, unless `absolute`; annealed, it falls to nothing over the
    first half of a run.
    """
    from torch import nn

    from hubscout.tuning.methods.feature_term import FeatureTerm

    class RawFeatureTerm(FeatureTerm):
        def __init__(self, preparation: Any, trade_off: float) -> None:
            super().__init__(preparation, trade_off)
            frozen, device = preparation.frozen_features, preparation.device
            raw = [torch.as_tensor(frozen.features(t), dtype=torch.float32).to(device) for t in preparation.teachers]
            variances = [float((one - one.mean(dim=0)).square().sum(dim=1).mean()) for one in raw]
            self.targets, self.gain = raw, 1.0
            if not absolute:
                self.trade_off = trade_off * len(variances) / sum(variances)
            generator = torch.Generator().manual_seed(preparation.arguments.seed)
            self.maps = nn.ModuleList(nn.Linear(m.in_features, m.out_features, bias=False) for m in self.maps)
            for linear in self.maps:
                nn.init.normal_(linear.weight, std=linear.in_features**-0.5, generator=generator)

    with in_place(RawFeatureTerm, annealed=annealed):
        yield


@contextmanager
def relations(*, annealed: bool) -> Iterator[None]:
    """The second term of B-Tuning without maps: samples are to be as alike for the model as for its teachers.

        λ · mean_j (s_ij − s̄_ij)² / mean_j s̄_ij²       over the others j of the batch

    s are cosines of features less the mean of the train split, s̄ their mean over the teachers: there is no size in it.
    """
    from hubscout.tuning.methods.feature_term import FeatureTerm

    def unit(features: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(features, dim=1)

    class Relations(FeatureTerm):
        def __init__(self, preparation: Any, trade_off: float) -> None:
            super().__init__(preparation, trade_off)
            own = np.asarray(preparation.frozen_features.features(preparation.model), dtype=np.float64).mean(axis=0)
            self.centre = torch.as_tensor(own, dtype=torch.float32).to(preparation.device)
            self.targets, self.maps = [unit(one) for one in self.targets], None

        def of(self, maps: Any, features: torch.Tensor, references: Any) -> torch.Tensor:
            said = [references[f"features-{k}"] for k in range(len(self.targets))]
            wanted = torch.stack([one @ one.T for one in said]).mean(dim=0)
            found = unit(features.float() - self.centre)
            others = 1 - torch.eye(len(wanted), device=wanted.device)
            wrong = ((found @ found.T - wanted) * others).square().sum(dim=1)
            return self.trade_off * wrong / (wanted * others).square().sum(dim=1).clamp_min(1e-6)

    with in_place(Relations, annealed=annealed):
        yield


@contextmanager
def in_place(term: type, *, annealed: bool) -> Iterator[None]:
    """Another second term of B-Tuning; annealed, it falls to nothing over the first half of a run."""
    from hubscout.tuning.methods import method
    from hubscout.tuning.train_step import TrainStep

    class Faded(term):  # type: ignore[misc]
        def __init__(self, preparation: Any, trade_off: float) -> None:
            super().__init__(preparation, trade_off)
            self.step, self.steps = 0, preparation.arguments.steps

        def references(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
            left = max(0.0, 1 - 2 * self.step / self.steps) if annealed else 1.0
            return {**super().references(rows), "features-left": torch.full(rows.shape, left, device=rows.device)}

        def of(self, maps: Any, features: torch.Tensor, references: Any) -> torch.Tensor:
            return references["features-left"] * super().of(maps, features, references)

    take = TrainStep.take

    def numbered(self: Any, step: int, share: Any, factor: float) -> Any:
        # Not by counting: a step may be cut into micro-batches, and a search for a rate begins anew at the first one.
        self.network.method.feature_term.step = step
        return take(self, step, share, factor)

    with patch.object(method, "FeatureTerm", Faded), patch.object(TrainStep, "take", numbered):
        yield


def shuffled_answers() -> AbstractContextManager[Any]:
    """Give each sample the answer for another one: what is left of a gain is not knowledge."""
    from hubscout.tuning.teacher_answers import TeacherPanel

    given = TeacherPanel.cached_predictions

    def shuffled(self: Any, *, left_out: bool = False) -> Any:
        answers = given(self, left_out=left_out)
        return answers if left_out else answers[np.random.default_rng(0).permutation(len(answers))]

    return patch.object(TeacherPanel, "cached_predictions", shuffled)


def labels_for_answers() -> AbstractContextManager[Any]:
    """B-Tuning towards the labels: what is left of a gain needs no teacher."""
    from hubscout.tuning.teacher_answers import TeacherPanel

    def labels(self: Any, *, left_out: bool = False) -> Any:
        return self.frozen_features.labels()

    return patch.object(TeacherPanel, "cached_predictions", labels)


@contextmanager
def term_over_time(course: str) -> Iterator[None]:
    """B-Tuning whose strength falls to nothing, or rises as the learning rate falls, to four times at most."""
    from hubscout.tuning.methods import BTuning
    from hubscout.tuning.train_step import TrainStep

    referred, compared, take = BTuning.references, BTuning.distance, TrainStep.take

    def references(self: Any, rows: torch.Tensor, views: Any) -> dict[str, torch.Tensor]:
        return {**referred(self, rows, views), "strength": torch.full(rows.shape, self.strength, device=rows.device)}

    def distance(self: Any, features: torch.Tensor, outputs: torch.Tensor, references: Any) -> torch.Tensor:
        return references["strength"] * compared(self, features, outputs, references)

    def numbered(self: Any, step: int, share: Any, factor: float) -> Any:
        left = max(0.0, 1 - step / self.arguments.steps)
        self.network.method.strength = left if course == "falling" else min(4.0, 1 / max(factor, 0.25))
        return take(self, step, share, factor)

    with patch.multiple(BTuning, references=references, distance=distance), patch.object(TrainStep, "take", numbered):
        yield


@contextmanager
def heads_of_views(views: int) -> Iterator[None]:
    """B-Tuning through crossed heads that are fitted to augmented views, as the model will see them."""
    from hubscout.evidence import Statistics, maximize_evidence
    from hubscout.grouping import stratified_folds
    from hubscout.tuning.frozen_features import CrossedHeads, FrozenFeatures
    from hubscout.tuning.methods import BTuning

    prepared = BTuning.prepare

    def prepare(self: Any, preparation: Any) -> None:
        own, frozen = copy.deepcopy(preparation.model), preparation.frozen_features
        if preparation.task.modality != "image":
            prepared(self, preparation)
            return
        own.to(preparation.device)
        own.module.eval()
        shown = replace(preparation, arguments=preparation.arguments.replace(teacher_views=views))
        features = shown.answers_of_views({"own": own}, lambda batches: own.forward(batches["own"]).features.float())
        features = features.cpu().double().numpy()
        classes = frozen.labels().argmax(axis=1)
        fold = stratified_folds(classes, FOLDS, seed=0)

        def fit(k: int) -> Any:
            sums, rows = Statistics("classification", preparation.task.target_names), np.tile(fold != k, views)
            sums.update(features[rows], np.tile(classes, views)[rows], weights=np.full(rows.sum(), 1 / views))
            return maximize_evidence(sums, center=True, jackknife="none")

        found = [fit(k) for k in range(FOLDS)]
        heads = CrossedHeads(fold, np.stack([e.weights for e in found]), np.stack([e.intercept for e in found]))
        with patch.object(FrozenFeatures, "crossed_heads", lambda *_: heads):
            prepared(self, preparation)

    with patch.object(BTuning, "prepare", prepare):
        yield


_fitted: dict[tuple[str, ...], tuple[np.ndarray, ...]] = {}
"""By what is fitted: the posteriors of all folds, which all runs of a case have in common."""


def fitted_once(preparation: Any, what: str, fit: Callable[[], tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """What `fit` gives, fitted by this process once per student and data."""
    key = what, preparation.task.fingerprint, preparation.model.card.identifier
    if key not in _fitted:
        _fitted[key] = preparation.frozen_features.shared(fit)
    return _fitted[key]


def posterior(features: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights (targets, D) and intercepts (targets,)."""
    from hubscout.evidence import Statistics, maximize_evidence

    names = [str(k) for k in range(values.shape[1])]
    found = maximize_evidence(Statistics("regression", names).update(features, values), jackknife="none")
    return found.weights, found.intercept


def through_folds(features: torch.Tensor, weights: torch.Tensor, fold: torch.Tensor) -> torch.Tensor:
    """(rows, targets): each row through the head of its fold; weights (folds, targets, D)."""
    folds, targets, width = weights.shape
    every = (features @ weights.reshape(folds * targets, width).to(features.dtype).T).view(-1, folds, targets)
    return every[torch.arange(len(every), device=every.device), fold]


def centred_heads() -> AbstractContextManager[Any]:
    """B-Tuning through one head with an intercept, fitted to all samples: crossed heads without the crossing."""
    from hubscout.tuning.frozen_features import CrossedHeads, FrozenFeatures

    def whole(self: Any, backbone: Any, folds: int) -> Any:
        labels = self.labels()
        features = np.asarray(self.features(backbone), dtype=np.float64)
        weights, intercept = posterior(features, labels)
        return CrossedHeads(np.zeros(len(labels), dtype=np.int64), weights[None], intercept[None])

    return patch.object(FrozenFeatures, "_cross", whole)


def crossed_features() -> AbstractContextManager[Any]:
    """The second term of B-Tuning through fixed maps that have not seen the sample: nothing is learnt along.

    With fewer samples than features a posterior gives back what it was fitted to, and nothing is left that would teach.
    """
    from hubscout.grouping import stratified_folds
    from hubscout.tuning.methods import method
    from hubscout.tuning.methods.feature_term import FeatureTerm, standardized

    class CrossedFeatureTerm(FeatureTerm):
        def __init__(self, preparation: Any, trade_off: float) -> None:
            super().__init__(preparation, trade_off)
            frozen, device = preparation.frozen_features, preparation.device

            def study() -> tuple[np.ndarray, ...]:
                fold = stratified_folds(frozen.labels().argmax(axis=1), FOLDS, seed=0)
                own = np.asarray(frozen.features(preparation.model), dtype=np.float64)
                parts = []
                for teacher in preparation.teachers:
                    left, sizes, _ = np.linalg.svd(standardized(frozen.features(teacher)), full_matrices=False)
                    parts.append(standardized(left[:, :COMPONENTS] * sizes[:COMPONENTS]))
                wanted = np.concatenate(parts, axis=1) / len(parts) ** 0.5
                fitted = [posterior(own[fold != k], wanted[fold != k]) for k in range(FOLDS)]
                weights, intercept = (np.stack(parts) for parts in zip(*fitted, strict=True))
                return fold, weights, wanted - intercept[fold]

            fold, weights, wanted = fitted_once(preparation, "features", study)
            self.maps = None
            self.fold = torch.as_tensor(fold).to(device)
            self.weights, self.wanted = (
                torch.as_tensor(one, dtype=torch.float32).to(device) for one in (weights, wanted)
            )

        def references(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"features-fold": self.fold[rows % len(self.fold)], "features": self.wanted[rows % len(self.fold)]}

        def of(self, maps: Any, features: torch.Tensor, references: Any) -> torch.Tensor:
            found = through_folds(features, self.weights, references["features-fold"])
            return self.trade_off * (references["features"] - found).square().sum(dim=1)

    return patch.object(method, "FeatureTerm", CrossedFeatureTerm)


def answers_beside(strength: float) -> AbstractContextManager[Any]:
    """B-Tuning, and `strength` times distillation of the teachers' answers through the head that is trained."""
    from hubscout.tuning.losses import TaskLoss
    from hubscout.tuning.methods import BTuning
    from hubscout.tuning.methods.distillation import answer_divergence
    from hubscout.tuning.teacher_answers import JointAnswers

    prepared, referred, compared = BTuning.prepare, BTuning.references, BTuning.distance

    def prepare(self: Any, preparation: Any) -> None:
        prepared(self, preparation)
        self.loss = TaskLoss.of(preparation.task)
        self.said = JointAnswers(preparation, self.panel, self.loss).cached().float()

    def references(self: Any, rows: torch.Tensor, views: Any) -> dict[str, torch.Tensor]:
        return {**referred(self, rows, views), "answers": self.said[rows]}

    def distance(self: Any, features: torch.Tensor, outputs: torch.Tensor, references: Any) -> torch.Tensor:
        beside = answer_divergence(outputs, references["answers"], self.loss, 2.0)
        return compared(self, features, outputs, references) + strength * beside

    return patch.multiple(BTuning, prepare=prepare, references=references, distance=distance)
