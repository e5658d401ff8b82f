"""The teachers' features as a second thing to learn: beside their answers, and in shares of their variance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from hubscout.tuning.opened_models import feature_width

if TYPE_CHECKING:
    from hubscout.tuning.methods.method import Preparation

_PACE = 0.2
"""Learning rate of the maps times the largest curvature that they can have: far below 2, where steps overshoot."""


class FeatureTerm:
    """Features that the model should explain.

        λ · mean_k ‖t_k(x_i) − W_k φ(x_i) − b_k‖²      t_k = (φ_k − mean φ_k) / √(Σ_d var φ_kd)

    φ_k are the features of teacher k for the sample as it is, φ those of the model for what it is shown. Mean and
    variance are those of the train split: the squared distance is a share of variance, 1 for a map that knows nothing,
    and λ means the same for 64 features as for 2,048. W_k and b_k are learnt along from zero and thrown away, so that
    nothing pulls at the model before they know a direction. The model's features are measured in their own size, such
    that the maps learn as fast as is stable at the learning rate of new modules.
    """

    def __init__(self, preparation: Preparation, trade_off: float) -> None:
        arguments, frozen, device = preparation.arguments, preparation.frozen_features, preparation.device
        self.trade_off = trade_off
        model, teachers = preparation.model, preparation.teachers
        width, *widths = (feature_width(one, preparation.task) for one in (model, *teachers))
        self.maps = nn.ModuleList(nn.Linear(width, size) for size in widths)
        for linear in self.maps:
            for parameter in linear.parameters():
                nn.init.zeros_(parameter)

        def study() -> tuple[list[np.ndarray], float]:
            own = np.asarray(frozen.features(model), dtype=np.float64)
            return [standardized(frozen.features(t)) for t in teachers], float(np.square(own).sum(axis=1).mean())

        targets, size = frozen.shared(study)
        self.targets = [torch.as_tensor(one, dtype=torch.float32).to(device) for one in targets]
        pace = 1.0
        if arguments.optimizer == "sgd":
            assert arguments.head_learning_rate is not None
            pace = _PACE / (2 * trade_off * arguments.head_learning_rate)
        self.gain = (pace / max(size, 1e-12)) ** 0.5

    def references(self, rows: Tensor) -> dict[str, Tensor]:
        """Each teacher's features of each row, whichever view of it is shown."""
        return {f"features-{k}": kept[rows % len(kept)] for k, kept in enumerate(self.targets)}

    def of(self, maps: nn.Module, features: Tensor, references: Mapping[str, Tensor]) -> Tensor:
        """(rows,) λ times the mean over the teachers of the squared distance."""
        assert isinstance(maps, nn.ModuleList)
        shown = self.gain * features
        distances = [(references[f"features-{k}"] - linear(shown)).square().sum(dim=1) for k, linear in enumerate(maps)]
        return self.trade_off * torch.stack(distances).mean(dim=0)


def standardized(features: np.ndarray) -> np.ndarray:
    """(rows, D) features with mean zero, whose variances sum to one.

    >>> standardized(np.array([[0.0, 5.0], [4.0, 5.0]])).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    centred = np.asarray(features, dtype=np.float64)
    centred = centred - centred.mean(axis=0)
    total = float(np.square(centred).sum(axis=1).mean())
    return centred / max(total, np.finfo(float).tiny) ** 0.5
