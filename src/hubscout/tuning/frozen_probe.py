"""The linear probe of frozen features: what tuning is compared with, and what it must not fall below."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.tasks import task_metrics
from hubscout.tasks.kinds import kind_of

if TYPE_CHECKING:
    from hubscout.hubs import Backbone
    from hubscout.tuning.frozen_features import FrozenFeatures


@dataclass(frozen=True)
class FrozenProbe:
    """What the posterior weights m make of a model's frozen features: split → metric → value."""

    model: str
    metrics: Mapping[str, Mapping[str, float]]

    @classmethod
    def of(cls, frozen_features: FrozenFeatures, backbone: Backbone) -> FrozenProbe:
        """Measured on validation and test, where they have samples."""
        task = frozen_features.task
        kind, names, posterior = kind_of(task.kind), task.target_names, frozen_features.posterior(backbone)
        found = {}
        for split in ("validation", "test"):
            if not len(task.splits[split]):
                continue
            features = np.asarray(frozen_features.features(backbone, split), dtype=np.float64)
            targets = task.splits[split].targets
            found[split] = task_metrics.values(
                task.kind,
                features @ posterior.weights.T + posterior.intercept,
                kind.rows_of(targets),
                groups=kind.sample_of_row(targets),
                target_names=names,
            )
        return cls(backbone.card.identifier, found)

    def metric(self, split: str) -> float | None:
        """The metric that validation goes by, on a split; None where it has no samples."""
        return next(iter(self.metrics[split].values())) if split in self.metrics else None

    @property
    def merit(self) -> float:
        """By which probes are compared: on validation, where there is one."""
        return next(iter(next(iter(self.metrics.values())).values()), -np.inf) if self.metrics else -np.inf


def read_probes(curves: tuple[Mapping[str, Any], ...]) -> tuple[FrozenProbe | None, FrozenProbe | None]:
    """The probe of the model and that of its best teacher, from the last line of a run."""
    probes: Mapping[str, Any] = next(
        (line.get("probes", {}) for line in reversed(curves) if line["event"] == "result"), {}
    )
    own, teacher = (FrozenProbe(**probes[of]) if of in probes else None for of in ("model", "teacher"))
    return own, teacher
