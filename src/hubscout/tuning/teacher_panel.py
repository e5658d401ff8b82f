"""`TeacherPanel`: what several teachers say together of each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hubscout.evidence import Evidence
from hubscout.hubs import Batch

if TYPE_CHECKING:
    from hubscout.tuning.methods.method import Preparation


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
        self._folded: tuple[list[Tensor], Tensor] | None = None

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
        scores = [evidence.score for evidence in self.posteriors]
        told = [f"{t.card.identifier} (LogME {s:.3f}" for t, s in zip(self.teachers, scores, strict=True)]
        if self.rule == "precision":
            return "Teachers weighted by their precision for each sample: " + ", ".join(f"{one})" for one in told)
        shares = self.weights().mean(axis=1)
        return "Teachers: " + ", ".join(f"{one}, weight {s:.2f})" for one, s in zip(told, shares, strict=True))

    def cached_predictions(self, *, left_out: bool = False) -> np.ndarray:
        """(rows, C) mixed posterior predictions for the train split, unaugmented.

        With `left_out` each row is predicted from the others: a posterior that was fitted to a row gives back much of
        the row's own label, and little of what the teacher would say of a new sample.
        """
        labels = self.frozen_features.labels() if left_out else None
        return self._mix([self.frozen_features.features(teacher) for teacher in self.teachers], labels)

    def live_features(self, views: Mapping[str, Batch]) -> list[Tensor]:
        """Each teacher's features of the inputs it is shown now."""
        if not self._placed:
            self._place()
        with torch.no_grad():
            return [teacher.forward(views[name]).features.float() for name, teacher in self.by_view.items()]

    def _place(self) -> None:
        """Bring the teachers to the device, frozen."""
        for teacher in self.teachers:
            teacher.to(self.device)
            if teacher.module is not None:
                teacher.module.eval().requires_grad_(False)
                if self.device.type == "cuda":
                    teacher.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._placed = True

    def live_predictions(self, views: Mapping[str, Batch]) -> Tensor:
        """(rows, C) mixed posterior predictions for the inputs the teachers are shown now."""
        features = self.live_features(views)
        if self.rule == "precision":
            mixed = self._mix([matrix.double().cpu().numpy() for matrix in features])
            return torch.as_tensor(mixed, dtype=torch.float32).to(self.device)
        if self._folded is None:
            # π_k is folded into m_k: one matrix product per teacher and step.
            shares = list(zip(self.posteriors, self.weights(), strict=True))
            products = [evidence.weights * share[:, None] for evidence, share in shares]
            intercept = np.sum([evidence.intercept * share for evidence, share in shares], axis=0)
            matrices = [torch.as_tensor(matrix, dtype=torch.float32).to(self.device) for matrix in products]
            self._folded = matrices, torch.as_tensor(intercept, dtype=torch.float32).to(self.device)
        matrices, constant = self._folded
        with torch.autocast(self.device.type, enabled=False):
            parts = [f @ m.T for f, m in zip(features, matrices, strict=True)]
            return torch.stack(parts).sum(dim=0) + constant

    def _mix(self, features: Sequence[np.ndarray], labels: np.ndarray | None = None) -> np.ndarray:
        seen = list(zip(self.posteriors, features, strict=True))
        predictions = [e.predict(f) if labels is None else e.predict_left_out(f, labels) for e, f in seen]
        if self.rule == "precision":
            shares = precision_weights(np.stack([e.predict_variance(f) for e, f in seen]))
        else:
            shares = self.weights()[:, None, :]
        return (shares * np.stack(predictions)).sum(axis=0)
