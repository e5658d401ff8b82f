"""Knowledge distillation in the space of answers: the model's probabilities follow the teachers' mixed ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hubscout.hubs import Backbone, Batch
from hubscout.tuning.companions.head import best_stretch
from hubscout.tuning.losses import TaskLoss
from hubscout.tuning.methods.method import METHODS, Method, Preparation
from hubscout.tuning.row_targets import Rows
from hubscout.tuning.teacher_panel import TeacherPanel

DEFAULT_TRADE_OFF = 1.0


@METHODS.register("logit-kd")
class LogitDistillation(Method):
    """Distillation of answers (Hinton et al., 2015) from frozen teachers with probed heads.

    For: a model that fits the budget, and better-ranked teachers of any architecture.

        loss = L_task + λ · T² · KL( p̄(x_i) ‖ softmax(z(x_i) / T) )
        p̄ = softmax( s · (Σ_k π_k f_k(x_i)ᵀm_k) / T )

    z are the outputs of the model's head, T is `kd_temperature`. The teachers have no head for these labels: theirs is
    the posterior m on the train split, mixed as in `b-tuning`, and stretched by the one factor s under which
    predictions for samples left out explain the labels best. Multi-label tasks compare each label's two
    probabilities; regression compares the numbers themselves, squared, in deviations of the train split.

    Requirements: at least one teacher; a fine-tuned one (a `Tuned`) teaches through its own, tuned features.
    `teacher_targets` as for `b-tuning`: with `"live"` model and teachers see the same crop.

    Beside `b-tuning` it compares what the two models answer, through the head that is trained, and not through a
    posterior head of the model's frozen features.

    Example: `tune(task, model, teachers=ranking.top(3), method="logit-kd")`.
    """

    name = "logit-kd"
    uses_teachers = True

    def prepare(self, preparation: Preparation) -> None:
        """Posteriors of the teachers, their mixed answers where they are cached, and how far they are stretched."""
        arguments, frozen_features = preparation.arguments, preparation.frozen_features
        self.trade_off = arguments.trade_off if arguments.trade_off is not None else DEFAULT_TRADE_OFF
        self.kd_temperature = arguments.kd_temperature
        self.loss = TaskLoss.of(preparation.task)
        self.panel = TeacherPanel.of(preparation)
        self.panel.study()
        answers, self.stretch = frozen_features.shared(lambda: self._study(preparation))
        self.cached: Tensor | None = None
        if arguments.teacher_targets != "live":
            self.cached = self._as_outputs(torch.as_tensor(answers, dtype=torch.float32).to(preparation.device))
        self.notes.append(self.panel.summary())

    def _study(self, preparation: Preparation) -> tuple[np.ndarray, float]:
        left_out = self.panel.cached_predictions(left_out=True)
        stretch = 1.0
        if self.loss.likelihood.to_values is not None:
            outputs = torch.as_tensor(left_out) - self.loss.likelihood.middle
            stretch = best_stretch(outputs, Rows.of(preparation.task.train, self.loss).targets, self.loss)
        fitted = preparation.arguments.teacher_targets == "cached"
        return self.panel.cached_predictions() if fitted else left_out, stretch

    def _as_outputs(self, predictions: Tensor) -> Tensor:
        """Posterior predictions as outputs of a head."""
        if self.loss.offset is not None and self.loss.scale is not None:
            offset, scale = (torch.as_tensor(a).to(predictions) for a in (self.loss.offset, self.loss.scale))
            return (predictions - offset) / scale
        return self.stretch * (predictions - self.loss.likelihood.middle)

    def live_teachers(self) -> Mapping[str, Backbone]:
        """All of them, unless their answers are cached."""
        return {} if self.cached is not None else self.panel.by_view

    def references(self, rows: Tensor, views: Mapping[str, Batch]) -> dict[str, Tensor]:
        """The teachers' mixed answer for each row."""
        if self.cached is not None:
            return {"teachers": self.cached[rows]}
        return {"teachers": self._as_outputs(self.panel.live_predictions(views))}

    def terms(
        self, extra: nn.Module, features: Tensor, outputs: Tensor, references: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """λ·T² times the divergence of the model's answer from the teachers'."""
        divergence = answer_divergence(outputs, references["teachers"], self.loss, self.kd_temperature)
        return {"teachers": self.trade_off * divergence}


def answer_divergence(outputs: Tensor, teacher_outputs: Tensor, loss: TaskLoss, temperature: float) -> Tensor:
    """(rows,) T²·KL of the model's answers from the teachers', both as head outputs (rows, C)."""
    likelihood = loss.likelihood
    if likelihood.to_values is None:
        return (outputs - teacher_outputs).square().mean(dim=1)
    ours, theirs = outputs / temperature, teacher_outputs.to(outputs.dtype) / temperature
    if likelihood.takes_ids:
        wanted = functional.log_softmax(theirs, dim=1)
        found = functional.kl_div(functional.log_softmax(ours, dim=1), wanted, reduction="none", log_target=True)
        return temperature**2 * found.sum(dim=1)
    wanted = theirs.sigmoid()
    crossed = functional.binary_cross_entropy_with_logits(ours, wanted, reduction="none")
    own = functional.binary_cross_entropy_with_logits(theirs, wanted, reduction="none")
    return temperature**2 * (crossed - own).mean(dim=1)
