"""Knowledge distillation in feature space."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from hubscout.errors import InputError
from hubscout.hubs import Backbone, Batch
from hubscout.tuning.batches import mixed_seed
from hubscout.tuning.methods.method import METHODS, Method, Preparation
from hubscout.tuning.opened_models import feature_width
from hubscout.tuning.teacher_panel import TeacherPanel

DEFAULT_TRADE_OFF = 0.01


@METHODS.register("kd")
class Distillation(Method):
    """Feature distillation from several teachers (the paper's section 5.3).

    For: a baseline that, like `b-tuning`, takes teachers of any architecture.

        loss = L_task + λ · mean_i mean_k ‖φ_k(x_i) − W_k φ_t(x_i)‖²

    φ_k are the features of teacher k, φ_t those of the model, W_k a matrix that is learnt along and thrown away.

    Requirements: at least one teacher. `teacher_targets="cached"` keeps all teachers' features of the train split on
    the device (4 bytes × rows × ΣD_k), and so does `"left-out"`, features being fitted to no row; `"live"` computes
    them at each step. The squared norm sums over the teacher's D_k features, so a useful λ is small: 1e-4 to 1.

    Beside `b-tuning` it must learn how the feature spaces lie to each other, and spends the model's capacity on
    features that the task may not need.

    Example: `tune(task, model, teachers=ranking.top(3), method="kd", trade_off=0.01)`.
    """

    name = "kd"
    uses_teachers = True

    def prepare(self, preparation: Preparation) -> None:
        """The matrices W_k, and the teachers' features where they are cached."""
        arguments = preparation.arguments
        self.trade_off = arguments.trade_off if arguments.trade_off is not None else DEFAULT_TRADE_OFF
        self.panel = TeacherPanel(preparation)
        width, *widths = (feature_width(m, preparation.task) for m in (preparation.model, *preparation.teachers))
        self.extra = nn.ModuleList(nn.Linear(width, teachers, bias=False) for teachers in widths)
        # A generator of their own: the head's initial weights must not depend on whether there are teachers.
        generator = torch.Generator().manual_seed(mixed_seed(arguments.seed, 2))
        for linear in self.extra:
            nn.init.normal_(linear.weight, std=width**-0.5, generator=generator)  # type: ignore[arg-type]
        if arguments.teacher_targets == "views":
            raise InputError(
                "teacher_targets='views' keeps answers, and kd compares features, which would be kept for every view: "
                "allowed are 'cached' and 'live'; or choose b-tuning, logit-kd or distill-weighted."
            )
        self.cached: list[Tensor] | None = None
        if arguments.teacher_targets != "live":
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
