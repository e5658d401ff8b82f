"""B-Tuning: the model's posterior prediction follows the teachers' mixed one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from hubscout.errors import InputError
from hubscout.hubs import Batch
from hubscout.tasks import Task
from hubscout.tasks.kinds import kind_of
from hubscout.tuning.frozen_features import FOLDS, NO_FOLDS
from hubscout.tuning.losses import TaskLoss
from hubscout.tuning.methods.method import METHODS, Preparation, TaughtMethod
from hubscout.tuning.teacher_answers import TeacherPanel

PER_CLASS = 6.0
"""λ over the number of classes, for classification."""
BOUND = 0.25
"""Distance of two predictions of a class, beyond which the loss through crossed heads grows as the distance does.

Chosen by whether a ResNet-20 on 500 images of Fashion-MNIST diverges at the rates that `tune` tries: with 0.5 it can.
"""


LABEL_SHARE = 0.5
"""s, where heads are crossed: chosen in experiments/teaching/halfway.py."""


@METHODS.register("b-tuning")
class BTuning(TaughtMethod):
    """Bayesian tuning (You et al., JMLR 23, 2022, section 5.4).

    For: a model that fits the budget, and better-ranked teachers of any architecture; or, for classification, no
    teachers at all.

        loss = L_task + λ · mean_i mean_c ( Σ_k π_k f_k(x_i)ᵀm_{k,c} − f_t(x_i)ᵀm_{t,c} )²

    f_k are the features of teacher k and f_t those of the model as it is being tuned; m are the posterior weights of
    Bayesian linear regression on the frozen features of the train split, fixed before tuning; π_k = softmax(LogME_k /
    temperature), or other weights (see `mixing_weights`).

    For classification the model's m_t is crossed, which is ours and not the paper's: the samples are cut into five
    folds, and each is compared through the m_t of the four others. One that was fitted to the sample gives its label
    back, with fewer samples than features nearly always, and then there is little left to learn from a teacher. A
    distance d of more than 0.25 then counts as 0.25 · (2d − 0.25) and not as d² (Huber's loss), so that no sample
    throws the run off. And the model follows (1 − s)·ȳ_c + s·y_c, s = 0.5 (`label_share`), in place of the teachers'
    mixed prediction ȳ_c: on some sets teachers know less than the labels say. `posterior_folds=1` is the paper's form,
    without any of the three.

    Without teachers the labels stand in their place: the features are to stay such that heads which were fitted to the
    frozen ones, and have not seen the sample, predict it. Much of the gain is that (`experiments/teaching`).

    Regression targets are centred (both predictions have an intercept) and measured in their standard deviation on the
    train split, so that columns weigh alike.

    λ is 6·C by default for classification (the authors' code has 100 for 100 classes), which taught more than 3·C and C
    at the learning rates that `tune` finds (`experiments/teaching`); from C to 10·C is worth a search, and from C/3 to
    3·C in the paper's form, which 10·C has ruined. For several labels it is C; for regression, whose own loss is a mean
    over the columns too, 1; and 1 for tagging, where more did harm. Compare with fine-tuning for numbers and tags: it
    was a gain on some sets and a loss on others.

    Requirements: at least one teacher, except for classification. With `teacher_targets="cached"` the teachers' part is
    one C-vector per row, computed once: a step costs what fine-tuning costs. `"left-out"` costs the same and has each
    row predicted from the other rows, in closed form: without that, a posterior with as many features as rows gives the
    labels back. With `"live"` the teachers run on the augmented inputs; with `"views"` they do so before tuning, for a
    few fixed views of each sample, which the model is then shown in turn.

    Beside `kd` it needs no learnt alignment of features: m maps each model's features to the targets, where they can
    be compared.

    Example: `tune(task, model, teachers=ranking.top(3), method="b-tuning", trade_off=37)`.
    """

    name = "b-tuning"

    def prepare(self, preparation: Preparation) -> None:
        """Posteriors of teachers and model; the teachers' mixed predictions where they are cached."""
        arguments = preparation.arguments
        default = default_trade_off(preparation.task)
        self.trade_off = arguments.trade_off if arguments.trade_off is not None else default
        frozen = preparation.frozen_features
        classes = kind_of(preparation.task.kind).classes_of_samples
        folds = arguments.posterior_folds or (FOLDS if classes else 1)
        if not preparation.teachers and not (classes and folds > 1):
            raise InputError(
                "method='b-tuning' without teachers follows the labels through crossed heads, which is for "
                "classification with posterior_folds of 2 or more: give teachers=..., or method='fine-tune'."
            )
        # Before its teachers: where there is no time for the model's own pass, none is lost on theirs.
        own = frozen.shared(lambda: frozen.crossed_heads(preparation.model, folds))
        crossed = classes and len(own.weights) > 1
        if not preparation.teachers and not crossed:
            raise InputError(
                "method='b-tuning' without teachers cuts the train samples into folds, for which two classes need two "
                "samples or more, of different groups: give teachers=..., or method='fine-tune'."
            )
        if classes and folds > 1 and not crossed:
            self.notes.append(
                "The model is compared with its teachers through heads that have seen the samples, as by "
                f"posterior_folds=1: {NO_FOLDS}."
            )
        self.bound = BOUND if crossed else None
        self.panel = TeacherPanel(preparation)
        self.panel.study()
        scale = 1.0 / target_scale(preparation)

        def placed(array: np.ndarray) -> Tensor:
            return torch.as_tensor(array, dtype=torch.float32).to(preparation.device)

        share = LABEL_SHARE if crossed else 0.0
        self.label_share = arguments.label_share if arguments.label_share is not None else share
        mixes = bool(self.label_share and preparation.teachers)
        self.labels = placed(frozen.labels() * scale) if mixes else None
        # Where nobody teaches, by number: a table of samples and classes takes gigabytes where there are many of both.
        ids = None if preparation.teachers else kind_of(preparation.task.kind).rows_of(preparation.task.train.targets)
        self.classes = None if ids is None else torch.as_tensor(ids).to(preparation.device)
        self.scale, self.fold = placed(scale), torch.as_tensor(own.fold).to(preparation.device)
        self.heads, self.intercepts = placed(own.weights * scale[:, None]), placed(own.intercept * scale)

        def cached() -> Tensor:
            left_out = arguments.teacher_targets == "left-out"
            return placed(frozen.shared(lambda: self.panel.cached_predictions(left_out=left_out)) * scale)

        self.take_answers(preparation, lambda views: self.panel.live_predictions(views) * self.scale, cached)

    def references(self, rows: Tensor, views: Mapping[str, Batch]) -> dict[str, Tensor]:
        """What each row follows, less the intercept of the row's head: the loss has fᵀm alone."""
        samples = rows % len(self.fold)
        fold, references = self.fold[samples], {}
        if self.classes is not None:
            followed = one_hot(self.classes[samples], self.intercepts.shape[1]).to(self.intercepts.dtype)
        else:
            references = super().references(rows, views)
            followed = references["teachers"]
        if self.labels is not None:
            followed = torch.lerp(followed, self.labels[samples], self.label_share)
        return {**references, "teachers": followed - self.intercepts[fold], "fold": fold}

    def distance(self, features: Tensor, outputs: Tensor, references: Mapping[str, Tensor]) -> Tensor:
        """λ times the mean over the targets of the squared difference, or what stands for it beyond the bound."""
        apart = references["teachers"], references["fold"]
        return self.trade_off * b_tuning_loss(features, self.heads, *apart, bound=self.bound)


def default_trade_off(task: Task) -> float:
    """In proportion to the number of targets: the mean over them becomes a sum.

    The term's curvature, 2λ/C · ‖m‖², then does not depend on C; 100 for three classes makes tuning diverge. Numbers
    have a mean over the columns on the other side as well, their squared error: the two are equal at 1. Tags have 1 by
    experience (experiments/teaching/tag_strength.py): the more they are taught, the worse.
    """
    kind = kind_of(task.kind)
    if kind.is_real_valued or kind.rows_are_words:
        return 1.0
    return (PER_CLASS if kind.classes_of_samples else 1.0) * len(task.target_names)


def b_tuning_loss(
    features: Tensor, heads: Tensor, teacher_predictions: Tensor, fold: Tensor, *, bound: float | None = None
) -> Tensor:
    """(rows,) mean_c (ȳ_c − fᵀm_c)² through the head of each row's fold.

    Args:
        features: (rows, D).
        heads: (folds, C, D).
        teacher_predictions: (rows, C).
        fold: (rows,) of each row.
        bound: a distance d beyond it counts as bound · (2d − bound), its tangent, in place of d²; None: none does.

    Returns:
        One number per row.

    >>> heads = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> b_tuning_loss(torch.tensor([[1.0, 2.0]]), heads, torch.tensor([[0.0, 0.0]]), torch.tensor([0]))
    tensor([2.5000])
    >>> b_tuning_loss(torch.tensor([[1.0, 2.0]]), heads, torch.zeros(1, 2), torch.tensor([0]), bound=1.0)
    tensor([2.])
    """
    folds, targets, width = heads.shape
    every = features @ heads.reshape(folds * targets, width).to(features.dtype).T
    own = every.view(-1, folds, targets)[torch.arange(len(features), device=features.device), fold]
    apart = (teacher_predictions - own).abs()
    within = apart if bound is None else apart.clamp(max=bound)
    return (within * (2 * apart - within)).mean(dim=1)


def target_scale(preparation: Preparation) -> np.ndarray:
    """The standard deviation of each regression column on the train split; ones for classes."""
    scale = TaskLoss.of(preparation.task).scale
    return np.ones(len(preparation.task.target_names)) if scale is None else scale
