"""Knowledge distillation: the model follows its teachers in the space of features, or of answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hubscout.hubs import Backbone, Batch
from hubscout.runs.texts import LONGEST_IN_A_LINE, names_by_model
from hubscout.tasks.kinds import kind_of
from hubscout.tuning.batches import mixed_seed
from hubscout.tuning.losses import Rows, TaskLoss, null_loss
from hubscout.tuning.methods.method import METHODS, Method, Preparation, TaughtMethod
from hubscout.tuning.opened_models import feature_width
from hubscout.tuning.teacher_answers import JointAnswers, SeparateAnswers, TeacherPanel

DEFAULT_SUM = 0.5
"""λ of `kd` times the mean number of the teachers' features, for classification."""
LABELS_SHARE, OTHERS_SHARE = 0.01, 0.1
"""For several labels, and for numbers and tags: λ of `kd` times the mean square of the teachers' features, in shares of
the loss of the null model."""
DEFAULT_TRADE_OFF = 0.3
"""λ of distillation of answers."""


@METHODS.register("kd")
class Distillation(Method):
    """Feature distillation from several teachers (the paper's section 5.3).

    For: a baseline that, like `b-tuning`, takes teachers of any architecture.

        loss = L_task + λ · mean_i mean_k ‖φ_k(x_i) − W_k φ_t(x_i)‖²

    φ_k are the features of teacher k, φ_t those of the model, W_k a matrix that is learnt along and thrown away.

    Requirements: at least one teacher. `teacher_targets="cached"` keeps all teachers' features of the train split on
    the device (4 bytes × rows × ΣD_k), and so does `"left-out"`, features being fitted to no row; `"views"` keeps them
    for every view, and `"live"` computes them at each step. The squared norm sums over the teacher's D_k features, so a
    useful λ is small: by default 0.5 over their mean for classification. With D_k = 1280 and 2048 a λ of 0.0003 teaches
    and 0.003 ruins (`experiments/teaching`). That is many times the loss of other tasks, a mean over labels or columns:
    there, by default, features that are not followed at all cost a tenth of what it costs to know nothing, and for
    several labels a hundredth.

    Beside `b-tuning` it must learn how the feature spaces lie to each other, and spends the model's capacity on
    features that the task may not need.

    Example: `tune(task, model, teachers=ranking.top(3), method="kd", trade_off=0.01)`.
    """

    name = "kd"
    uses_teachers = True

    def prepare(self, preparation: Preparation) -> None:
        """The matrices W_k, and the teachers' features where they are cached."""
        arguments = preparation.arguments
        self.panel = TeacherPanel(preparation)
        width, *widths = (feature_width(m, preparation.task) for m in (preparation.model, *preparation.teachers))
        self.trade_off = (
            default_of_features(preparation, widths) if arguments.trade_off is None else arguments.trade_off
        )
        self.extra = nn.ModuleList(nn.Linear(width, teachers, bias=False) for teachers in widths)
        # A generator of their own: the head's initial weights must not depend on whether there are teachers.
        generator = torch.Generator().manual_seed(mixed_seed(arguments.seed, 2))
        for linear in self.extra:
            nn.init.normal_(linear.weight, std=width**-0.5, generator=generator)  # type: ignore[arg-type]
        self.cached: list[Tensor] | None = None
        if arguments.teacher_targets == "views":
            table = preparation.answers_of_views(
                self.panel.by_view, lambda views: torch.cat(self.panel.live_features(views), dim=1)
            )
            self.views = len(table) // len(preparation.task.train)
            self.cached = list(table.split(widths, dim=1))
        elif arguments.teacher_targets != "live":
            frozen_features = preparation.frozen_features
            kept = frozen_features.shared(
                lambda: [frozen_features.features(teacher) for teacher in preparation.teachers]
            )
            self.cached = [torch.as_tensor(matrix, dtype=torch.float32).to(preparation.device) for matrix in kept]

    def live_teachers(self) -> Mapping[str, Backbone]:
        """All of them, unless their features are cached."""
        return {} if self.cached is not None else self.panel.by_view

    def references(self, rows: Tensor, views: Mapping[str, Batch]) -> dict[str, Tensor]:
        """Each teacher's features of each row."""
        features = [kept[rows] for kept in self.cached] if self.cached is not None else self.panel.live_features(views)
        return {f"teacher-{k}": matrix for k, matrix in enumerate(features)}

    def terms(
        self, extra: nn.Module, features: Tensor, outputs: Tensor, references: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """λ times the mean over the teachers of the squared distance."""
        assert isinstance(extra, nn.ModuleList)
        distances = [
            (references[f"teacher-{k}"] - linear(features)).square().sum(dim=1) for k, linear in enumerate(extra)
        ]
        return {"teachers": self.trade_off * torch.stack(distances).mean(dim=0)}


def default_of_features(preparation: Preparation, widths: Sequence[int]) -> float:
    """λ of `kd` for teachers with so many features."""
    task, frozen = preparation.task, preparation.frozen_features
    if kind_of(task.kind).classes_of_samples:
        return DEFAULT_SUM * len(widths) / sum(widths)

    def mean_square() -> float:
        return float(np.mean([np.square(frozen.features(one)).sum(axis=1).mean() for one in preparation.teachers]))

    share = LABELS_SHARE if kind_of(task.kind).has_label_sets else OTHERS_SHARE
    loss = TaskLoss.of(task)
    known = null_loss(task, loss, Rows.of(task.train, loss))
    return share * known / max(frozen.shared(mean_square), np.finfo(float).tiny)


@METHODS.register("logit-kd")
class LogitDistillation(TaughtMethod):
    """Distillation of answers (Hinton et al., 2015) from frozen teachers with probed heads.

    For: a model that fits the budget, and better-ranked teachers of any architecture.

        loss = L_task + λ · T² · KL( p̄(x_i) ‖ softmax(z(x_i) / T) )
        p̄ = softmax( s · (Σ_k π_k f_k(x_i)ᵀm_k) / T )

    z are the outputs of the model's head, T is `kd_temperature`. The teachers have no head for these labels: theirs is
    the posterior m on the train split, mixed as in `b-tuning`, and stretched by the one factor s under which
    predictions for samples left out explain the labels best. Multi-label tasks compare each label's two
    probabilities; regression compares the numbers themselves, squared, in deviations of the train split.

    A teacher that was tuned for these targets (a `Tuned`, or its folder) answers with its own head. As soon as there
    is one, each teacher answers for itself and the outputs are mixed, s being each probed teacher's own. Its
    `.backbone` as the teacher is probed like any other.

    Requirements: at least one teacher. λ is 0.3 by default: 1 was too much for small sets in `experiments/teaching`.
    `teacher_targets` as for `b-tuning`: with `"live"` and `"views"` model and
    teachers see the same crop. The model itself may be the teacher, as it came or tuned before (self-distillation).

    Beside `b-tuning` it compares what the two models answer, through the head that is trained, and not through a
    posterior head of the model's frozen features. Beside `distill-weighted` it mixes outputs, not probabilities.

    Example: `tune(task, model, teachers=ranking.top(3), method="logit-kd")`.
    """

    name = "logit-kd"

    def prepare(self, preparation: Preparation) -> None:
        """Posteriors of the teachers, and their answers where they are cached."""
        arguments = preparation.arguments
        self.trade_off = arguments.trade_off if arguments.trade_off is not None else DEFAULT_TRADE_OFF
        self.kd_temperature = arguments.kd_temperature
        self.loss = TaskLoss.of(preparation.task)
        self.panel = TeacherPanel(preparation)
        self.panel.study()
        answers = self.answers_of(preparation)
        self.take_answers(preparation, answers.live, answers.cached)
        own = [t.card.identifier for t, h in zip(self.panel.teachers, preparation.teacher_heads, strict=True) if h]
        if own:
            called = ", ".join(names_by_model(own, room=LONGEST_IN_A_LINE).values())
            self.notes.append(f"Answering with the head that they were tuned with: {called}.")

    def answers_of(self, preparation: Preparation) -> JointAnswers | SeparateAnswers:
        """How the teachers' answers come about."""
        kind = SeparateAnswers if any(preparation.teacher_heads) else JointAnswers
        return kind(preparation, self.panel, self.loss)

    def distance(self, features: Tensor, outputs: Tensor, references: Mapping[str, Tensor]) -> Tensor:
        """λ·T² times the divergence of the model's answer from the teachers'."""
        return self.trade_off * answer_divergence(outputs, references["teachers"], self.loss, self.kd_temperature)


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


@METHODS.register("distill-weighted")
class DistillWeighted(LogitDistillation):
    """Distillation of several teachers, each by its transferability (after DistillWeighted: Borup et al., ICCV 2023).

    For: several teachers that see the task differently, and a model that fits the budget.

        loss = L_task + λ · T² · Σ_k π_k KL( p_k(x_i) ‖ softmax(z(x_i) / T) )
        p_k = softmax( s_k · f_k(x_i)ᵀm_k / T )

    π_k comes from a metric of transferability, here LogME: softmax(LogME_k / temperature), or what `teacher_weights`
    says, one number per teacher. From the paper is the idea: several source models are distilled into one small model,
    each weighted by its relevance for the task. The rest is ours, so what the paper reports is not a promise for this
    method: the paper is semi-supervised and learns the sources' pseudo-labels, here nothing but the labelled train
    split is seen, and every teacher has a probed head for the task's own labels, stretched by its own s_k, or the head
    that it was tuned with.

    Requirements: at least one teacher; `teacher_targets` as for `b-tuning`. What is kept is one C-vector per row
    whatever the number of teachers, since Σ_k π_k KL(p_k ‖ q) is KL(Σ_k π_k p_k ‖ q) and a constant, which is left out.

    Beside `logit-kd`, which mixes outputs and so sharpens what teachers agree on, it mixes probabilities: where the
    teachers disagree, the model learns to be undecided. With one probed teacher the two are the same.

    Example: `tune(task, model, teachers=ranking.top(3), method="distill-weighted", teacher_weights="uniform")`.
    """

    name = "distill-weighted"

    def answers_of(self, preparation: Preparation) -> SeparateAnswers:
        """Each teacher answers for itself; probabilities are mixed."""
        return SeparateAnswers(preparation, self.panel, self.loss, temperature=self.kd_temperature)
