"""What several teachers say of each row: posterior predictions, mixed, and the same as outputs of a head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hubscout.errors import InputError
from hubscout.evidence import Evidence
from hubscout.hubs import Backbone, Batch
from hubscout.runs.events import Advanced, Started
from hubscout.runs.files import temporary_file
from hubscout.runs.texts import LONGEST_IN_A_LINE, names_by_model
from hubscout.tasks.kinds import kind_of
from hubscout.tuning.batches import MODEL, BatchPlan, distinct_views
from hubscout.tuning.losses import Rows, TaskLoss
from hubscout.tuning.network import best_stretch

if TYPE_CHECKING:
    from hubscout.tuning.methods.method import Preparation
    from hubscout.tuning.single_run import SingleRun


def mixing_weights(posteriors: Sequence[Evidence], rule: str, temperature: float = 0.1) -> np.ndarray:
    """How much each teacher counts for each target.

    `softmax`: π_k = softmax(LogME_k / temperature), the paper's, the same for all targets. `bayes-factor`: per target,
    the posterior probability of each teacher under equal priors, softmax(n · log evidence per sample): with much data
    each target listens to the one teacher that explains it best. `uniform`: all teachers alike. `precision` has no
    fixed weights: see `precision_weights`.

    Args:
        posteriors: of each of the K teachers.
        rule: `softmax`, `bayes-factor` or `uniform`.
        temperature: of the softmax.

    Returns:
        (K, C) weights, columns that sum to one.

    Example:
        >>> from hubscout import logme
        >>> labels = np.repeat([0, 1], 20)
        >>> noise = np.random.default_rng(0).normal(size=(40, 2))
        >>> good, bad = logme(np.eye(2)[labels] + 0.1 * noise, labels), logme(noise, labels)
        >>> weights = mixing_weights([good, bad], "softmax")
        >>> bool((weights[0] > 0.9).all())
        True

    """
    if rule == "uniform":
        exponents = np.zeros((len(posteriors), len(posteriors[0].weights)))
    elif rule == "bayes-factor":
        # A class without a sample has no evidence under any teacher: all count alike.
        exponents = np.nan_to_num(np.stack([evidence.n * evidence.per_target for evidence in posteriors]))
    else:
        scores = np.array([evidence.score for evidence in posteriors]) / temperature
        exponents = np.repeat(scores[:, None], len(posteriors[0].weights), axis=1)
    shares = np.exp(exponents - exponents.max(axis=0))
    return shares / shares.sum(axis=0)


def precision_weights(variances: np.ndarray) -> np.ndarray:
    """(K, rows, C) weights from predictive variances of the same shape: each teacher by its own certainty.

    >>> precision_weights(np.array([[[1.0]], [[3.0]]])).ravel()
    array([0.75, 0.25])
    """
    # A class without a sample has no variance under any teacher: all count alike.
    precisions = 1.0 / np.where(variances > 0, variances, 1.0)
    return precisions / precisions.sum(axis=0)


class TeacherPanel:
    """Frozen teachers with their posteriors on the train split and the weights they are mixed with."""

    def __init__(self, preparation: Preparation) -> None:
        self.teachers, self.device = preparation.teachers, preparation.device
        self.frozen_features = preparation.frozen_features
        self.rule, self.temperature = preparation.arguments.teacher_weights, preparation.arguments.temperature
        self.by_view = {f"teacher-{k}": teacher for k, teacher in enumerate(self.teachers)}
        self.posteriors: list[Evidence] = []
        """The teachers' posteriors, in order; empty until `study`."""
        self._placed = False

    def study(self) -> None:
        """Fit the teachers' posteriors on the train split."""
        self.posteriors = self.frozen_features.shared(
            lambda: [self.frozen_features.posterior(teacher) for teacher in self.teachers]
        )

    def weights(self) -> np.ndarray:
        """(K, C) fixed mixing weights."""
        return mixing_weights(self.posteriors, self.rule, self.temperature)

    def summary(self) -> str:
        """Who teaches, how well they explain the labels and how much they count."""
        if not self.teachers:
            return (
                "No teachers: the model follows the labels, through heads that have not seen the sample; "
                "method='fine-tune' is without that."
            )
        scores = [evidence.score for evidence in self.posteriors]
        called = names_by_model((t.card.identifier for t in self.teachers), room=LONGEST_IN_A_LINE)
        told = [f"{called[t.card.identifier]} (LogME {s:.3f}" for t, s in zip(self.teachers, scores, strict=True)]
        if self.rule == "precision":
            return "Teachers weighted by their precision for each sample: " + ", ".join(f"{one})" for one in told)
        shares = self.weights().mean(axis=1)
        return "Teachers: " + ", ".join(f"{one}, weight {s:.2f})" for one, s in zip(told, shares, strict=True))

    def cached_predictions(self, *, left_out: bool = False) -> np.ndarray:
        """(rows, C) mixed posterior predictions for the train split, unaugmented.

        With `left_out` each row is predicted from the others: a posterior that was fitted to a row gives back much of
        the row's own label, and little of what the teacher would say of a new sample.
        """
        frozen = self.frozen_features
        apart = [frozen.left_out(teacher) for teacher in self.teachers] if left_out else None
        return self._mix([frozen.features(teacher) for teacher in self.teachers], apart)

    def live_features(self, views: Mapping[str, Batch]) -> list[Tensor]:
        """Each teacher's features of the inputs it is shown now."""
        for teacher in () if self._placed else self.teachers:
            teacher.to(self.device)
            if teacher.module is not None:
                teacher.module.eval().requires_grad_(False)
                if self.device.type == "cuda":
                    teacher.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._placed = True
        with torch.no_grad():
            return [teacher.forward(views[name]).features.float() for name, teacher in self.by_view.items()]

    def live_predictions(self, views: Mapping[str, Batch]) -> Tensor:
        """(rows, C) mixed posterior predictions for the inputs the teachers are shown now."""
        features = self.live_features(views)
        if self.rule == "precision":
            mixed = self._mix([matrix.double().cpu().numpy() for matrix in features])
            return torch.as_tensor(mixed, dtype=torch.float32).to(self.device)
        matrices, constant = self._folded
        with torch.autocast(self.device.type, enabled=False):
            return torch.stack([f @ m.T for f, m in zip(features, matrices, strict=True)]).sum(dim=0) + constant

    @cached_property
    def _folded(self) -> tuple[list[Tensor], Tensor]:
        """π_k is folded into m_k: one matrix product per teacher and step."""
        shares = list(zip(self.posteriors, self.weights(), strict=True))
        products = [evidence.weights * share[:, None] for evidence, share in shares]
        intercept = np.sum([evidence.intercept * share for evidence, share in shares], axis=0)
        matrices = [torch.as_tensor(matrix, dtype=torch.float32).to(self.device) for matrix in products]
        return matrices, torch.as_tensor(intercept, dtype=torch.float32).to(self.device)

    def _mix(self, features: Sequence[np.ndarray], predictions: Sequence[np.ndarray] | None = None) -> np.ndarray:
        """Mixed predictions: of the posteriors, or others of the same rows."""
        seen = list(zip(self.posteriors, features, strict=True))
        predictions = [e.predict(f) for e, f in seen] if predictions is None else predictions
        if self.rule == "precision":
            shares = precision_weights(np.stack([e.predict_variance(f) for e, f in seen]))
        else:
            shares = self.weights()[:, None, :]
        return (shares * np.stack(predictions)).sum(axis=0)


class JointAnswers:
    """One answer of all teachers: their posterior predictions, mixed and then stretched to outputs of a head.

    Posterior predictions of classes lie near 0 and 1, far too flat for logits: they are stretched by the one factor
    under which predictions for samples left out explain the labels best.
    """

    def __init__(self, preparation: Preparation, panel: TeacherPanel, loss: TaskLoss) -> None:
        self.panel, self.loss = panel, loss

        def study() -> tuple[np.ndarray, float]:
            left_out = panel.cached_predictions(left_out=True)
            stretch = best_stretch(left_out, Rows.of(preparation.task.train, loss).targets, loss)
            fitted = preparation.arguments.teacher_targets == "cached"
            return panel.cached_predictions() if fitted else left_out, stretch

        answers, self.stretch = preparation.frozen_features.shared(study)
        self._cached = torch.as_tensor(answers, dtype=torch.float32).to(preparation.device)

    def cached(self) -> Tensor:
        """(rows, C) answers for the train split, unaugmented."""
        return as_outputs(self._cached, self.stretch, self.loss)

    def live(self, views: Mapping[str, Batch]) -> Tensor:
        """(rows, C) answers for the inputs that the teachers are shown now."""
        return as_outputs(self.panel.live_predictions(views), self.stretch, self.loss)


def as_outputs(predictions: Tensor, stretch: float, loss: TaskLoss) -> Tensor:
    """Posterior predictions (rows, C) as outputs of a head."""
    if loss.offset is not None and loss.scale is not None:
        offset, scale = (torch.as_tensor(a).to(predictions) for a in (loss.offset, loss.scale))
        return (predictions - offset) / scale
    return stretch * (predictions - loss.likelihood.middle)


@dataclass(frozen=True)
class TeacherHead:
    """From a teacher's features (rows, D) to outputs of a head (rows, C)."""

    weight: Tensor
    bias: Tensor
    loss: TaskLoss
    stretch: float | None = None
    """Of the posterior weights m of frozen features. None: the head that the teacher was tuned with, whose values are
    logits, or numbers in the targets' own units."""

    def __call__(self, features: Tensor) -> Tensor:
        values = features @ self.weight.to(features).T + self.bias.to(features)
        logits = self.stretch is None and self.loss.likelihood.to_values is not None
        return values if logits else as_outputs(values, self.stretch or 1.0, self.loss)


class SeparateAnswers:
    """An answer of each teacher, through the head that it was tuned with or else a probed one; then mixed.

    `temperature` None mixes outputs, Σ_k π_k z_k. Else probabilities at that temperature are mixed, Σ_k π_k p_k, and
    given as the outputs that have them: KL(Σ_k π_k p_k ‖ q) differs from Σ_k π_k KL(p_k ‖ q) by a constant.
    """

    def __init__(
        self, preparation: Preparation, panel: TeacherPanel, loss: TaskLoss, temperature: float | None = None
    ) -> None:
        if panel.rule == "precision":
            raise InputError(
                "teacher_weights='precision' weighs posterior predictions for each sample; teachers that answer each "
                "for itself have one weight each: allowed are 'softmax', 'bayes-factor', 'uniform'."
            )
        self.preparation, self.panel, self.loss, self.temperature = preparation, panel, loss, temperature
        # One weight per teacher: the answer of a mixture is a distribution over the classes.
        self.shares = torch.as_tensor(panel.weights().mean(axis=1), dtype=torch.float32)
        self._heads, answers = preparation.frozen_features.shared(self._study)
        self._cached = answers.float().to(preparation.device)

    def _study(self) -> tuple[list[TeacherHead], Tensor]:
        frozen_features, preparation = self.preparation.frozen_features, self.preparation
        heads: list[TeacherHead] = []
        outputs: list[Tensor] = []
        for teacher, layer, evidence in zip(
            self.panel.teachers, preparation.teacher_heads, self.panel.posteriors, strict=True
        ):
            features = np.asarray(frozen_features.features(teacher), dtype=np.float64)
            if layer is not None:
                heads.append(TeacherHead(layer.weight.detach().double(), layer.bias.detach().double(), self.loss))
                outputs.append(heads[-1](torch.as_tensor(features)))
                continue
            left_out = frozen_features.left_out(teacher)
            stretch = best_stretch(left_out, Rows.of(preparation.task.train, self.loss).targets, self.loss)
            weight, bias = torch.as_tensor(evidence.weights), torch.as_tensor(evidence.intercept)
            heads.append(TeacherHead(weight, bias, self.loss, stretch))
            if preparation.arguments.teacher_targets == "left-out":
                outputs.append(as_outputs(torch.as_tensor(left_out), stretch, self.loss))
            else:
                outputs.append(heads[-1](torch.as_tensor(features)))
        return heads, self._mixed(outputs)

    def cached(self) -> Tensor:
        """(rows, C) answers for the train split, unaugmented."""
        return self._cached

    def live(self, views: Mapping[str, Batch]) -> Tensor:
        """(rows, C) answers for the inputs that the teachers are shown now."""
        features = self.panel.live_features(views)
        with torch.autocast(self.panel.device.type, enabled=False):
            return self._mixed([head(matrix) for head, matrix in zip(self._heads, features, strict=True)])

    def _mixed(self, outputs: Sequence[Tensor]) -> Tensor:
        stacked = torch.stack(list(outputs))
        shares = self.shares.to(stacked)[:, None, None]
        likelihood = self.loss.likelihood
        if self.temperature is None or likelihood.to_values is None or likelihood.to_outputs is None:
            return (shares * stacked).sum(dim=0)
        flat = (stacked / self.temperature).flatten(0, 1)
        values = (shares * likelihood.to_values(flat).view_as(stacked)).sum(dim=0)
        tiny = torch.finfo(values.dtype).eps
        return self.temperature * likelihood.to_outputs(values.clamp(tiny, 1 - tiny))


def answers_of_views(
    run: SingleRun, teachers: Mapping[str, Backbone], answer: Callable[[Mapping[str, Batch]], Tensor]
) -> Tensor:
    """(views · rows, C): what `answer` makes of each fixed view of each sample of train; view v is that of epoch v.

    Under a budget there are as many views as there is time for.

    The model is shown the same views in turn, by the same seeds: `tuning.batches.view_of`.
    """
    arguments, device, count = run.arguments, run.accelerator.device, len(run.task.train)
    preprocessings = {name: teacher.preprocessing for name, teacher in teachers.items()}
    varies = any(p.augmented().key != p.key for p in preprocessings.values()) and arguments.augment != "none"
    if not varies or kind_of(run.task.kind).rows_are_words:
        raise InputError(
            "teacher_targets='views' needs inputs that are augmented: images, with augment='standard'. Of these all "
            "views would be the same: choose 'cached'."
        )
    views, served = distinct_views({MODEL: next(iter(preprocessings.values())), **preprocessings})

    def answered() -> np.ndarray:
        kept = run.kept_views
        if kept is not None and run.resumed:
            with suppress(OSError, ValueError, EOFError):  # lost or damaged: they answer again
                return np.load(kept)
        table = asked()
        if kept is not None:
            kept.unlink(missing_ok=True)
            with suppress(OSError), temporary_file(kept) as partial:
                with partial.open("wb") as file:
                    np.save(file, table)
                partial.replace(kept)
        return table

    def asked() -> np.ndarray:
        plan = BatchPlan(count, arguments.batch_size, arguments.seed)
        steps = range(arguments.teacher_views * plan.batches_per_epoch)
        batches = run.batches_of(run.task.train, views, augment=True)
        table = np.empty((0, 0), dtype=np.float32)
        if (watch := run.teaching_time.watch_views()) is not None:
            watch(Started("", count))
        for step, share in zip(steps, batches.train(plan, steps, 0, 1), strict=True):
            placed = share.to(device).views
            with torch.no_grad():
                found = answer({name: placed[served[name]] for name in teachers}).float().cpu().numpy()
            if not len(table):
                table = np.empty((arguments.teacher_views * count, found.shape[1]), dtype=np.float32)
            table[plan.epoch(step) * count + share.samples.numpy()] = found
            if watch is not None:
                watch(Advanced("", len(share.samples)))
                made, rest = divmod(step + 1, plan.batches_per_epoch)
                if not rest and not watch.allows_another(made):
                    return table[: made * count]
        return table

    table = run.shared(answered)
    made, wanted = len(table) // count, arguments.teacher_views
    short = f", not for {wanted}: there is no time for more" if made < wanted else ""
    run.note(f"The teachers' answers are cached for {made} views of each sample{short}.")
    return torch.as_tensor(table).to(device)
