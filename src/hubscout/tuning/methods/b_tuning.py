"""B-Tuning: the model's posterior prediction follows the teachers' mixed one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from hubscout.hubs import Batch
from hubscout.tasks import Task
from hubscout.tasks.kinds import kind_of
from hubscout.tuning.losses import TaskLoss
from hubscout.tuning.methods.method import METHODS, Preparation, TaughtMethod
from hubscout.tuning.teacher_answers import TeacherPanel

PER_CLASS = 3.0
"""λ over the number of classes, for classification: several labels and tagging were not measured."""


@METHODS.register("b-tuning")
class BTuning(TaughtMethod):
    """Bayesian tuning (You et al., JMLR 23, 2022, section 5.4).

    For: a model that fits the budget, and better-ranked teachers of any architecture.

        loss = L_task + λ · mean_i mean_c ( Σ_k π_k f_k(x_i)ᵀm_{k,c} − f_t(x_i)ᵀm_{t,c} )²

    f_k are the features of teacher k and f_t those of the model as it is being tuned; m are the posterior weights of
    Bayesian linear regression on the frozen features of the train split, fixed before tuning; π_k = softmax(LogME_k /
    temperature), or other weights (see `mixing_weights`). Regression targets are centred (both predictions
    have an intercept) and measured in their standard deviation on the train split, so that columns weigh alike.

    λ is 3·C by default for classification (the authors' code has 100 for 100 classes), which taught more than C at the
    learning rates that `tune` finds (`experiments/teaching`); from C/3 to 3·C is worth a search. 10·C wants a low
    learning rate, and has ruined runs without one. For several labels and for tagging it is C; for regression, whose
    own loss is a mean over the columns too, 1.

    Requirements: at least one teacher. With `teacher_targets="cached"` the teachers' part is one C-vector per row,
    computed once: a step costs what fine-tuning costs. `"left-out"` costs the same and has each row predicted from the
    other rows, in closed form: without that, a posterior with as many features as rows gives the labels back. With
    `"live"` the teachers run on the augmented inputs; with `"views"` they do so before tuning, for a few fixed views of
    each sample, which the model is then shown in turn.

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
        self.panel = TeacherPanel(preparation)
        self.panel.study()
        frozen, device = preparation.frozen_features, preparation.device
        own = frozen.shared(lambda: frozen.posterior(preparation.model))
        scale = 1.0 / target_scale(preparation)
        self.scale = torch.as_tensor(scale, dtype=torch.float32).to(device)
        self.target_weights = torch.as_tensor(own.weights * scale[:, None], dtype=torch.float32).to(device)
        # The model's intercept is taken off the teachers' side: the loss compares with fᵀm alone.
        self.intercept = torch.as_tensor(own.intercept * scale, dtype=torch.float32).to(device)

        def cached() -> Tensor:
            left_out = arguments.teacher_targets == "left-out"
            mixed = frozen.shared(lambda: self.panel.cached_predictions(left_out=left_out))
            return torch.as_tensor((mixed - own.intercept) * scale, dtype=torch.float32).to(device)

        self.take_answers(preparation, self._live, cached)

    def _live(self, views: Mapping[str, Batch]) -> Tensor:
        return self.panel.live_predictions(views) * self.scale - self.intercept

    def distance(self, features: Tensor, outputs: Tensor, answers: Tensor) -> Tensor:
        """λ times the mean squared difference over the targets."""
        return self.trade_off * b_tuning_loss(features, self.target_weights, answers)


def default_trade_off(task: Task) -> float:
    """In proportion to the number of targets: the mean over them becomes a sum.

    The term's curvature, 2λ/C · ‖m‖², then does not depend on C; 100 for three classes makes tuning diverge. Numbers
    have a mean over the columns on the other side as well, their squared error: the two are equal at 1.
    """
    kind = kind_of(task.kind)
    if kind.is_real_valued:
        return 1.0
    return (PER_CLASS if kind.classes_of_samples else 1.0) * len(task.target_names)


def b_tuning_loss(features: Tensor, target_weights: Tensor, teacher_predictions: Tensor) -> Tensor:
    """(rows,) mean_c (ȳ_c − fᵀm_c)²: features (rows, D), target_weights (C, D), teacher_predictions (rows, C).

    >>> b_tuning_loss(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.0, 0.0]]))
    tensor([2.5000])
    """
    difference = teacher_predictions - features @ target_weights.to(features.dtype).T
    return difference.square().mean(dim=1)


def target_scale(preparation: Preparation) -> np.ndarray:
    """The standard deviation of each regression column on the train split; ones for classes."""
    scale = TaskLoss.of(preparation.task).scale
    return np.ones(len(preparation.task.target_names)) if scale is None else scale
