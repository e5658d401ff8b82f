"""The linear probe of frozen features: what tuning is compared with, and what it must not fall below."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hubscout.tasks import task_metrics
from hubscout.tasks.kinds import kind_of
from hubscout.tuning.methods.zoo import is_mixture
from hubscout.tuning.network import new_head, start_from_posterior
from hubscout.tuning.opened_models import feature_width

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hubscout.hubs import Backbone
    from hubscout.tasks import Task
    from hubscout.tuning.frozen_features import FrozenFeatures
    from hubscout.tuning.losses import Rows, TaskLoss
    from hubscout.tuning.single_run import SingleRun


def guess(task: Task) -> np.ndarray:
    """(C,) what to say of every input: the mean of the numbers, or how frequent each class or label is in train."""
    return kind_of(task.kind).null_prediction(task.train.targets, len(task.target_names))


def null_loss(task: Task, loss: TaskLoss, rows: Rows) -> float:
    """The mean loss of the guess on the train split."""
    targets = rows.targets.cpu()
    return float(loss(loss.outputs_of(guess(task)[None]).expand(len(targets), -1), targets).mean())


@dataclass(frozen=True)
class Verdict:
    """Whether a model is worse than the guess, and the words for it."""

    task: Task

    def warning(self, metrics: Mapping[str, Mapping[str, task_metrics.MetricValue]]) -> str:
        """Empty where the model is at least as good as the guess on every split that was measured."""
        worse = []
        for split, found in metrics.items():
            name, value = next((name, metric.value) for name, metric in found.items())
            best_guess = self.guess(split)
            if not value >= best_guess - 1e-9:  # NaN is worse as well
                worse.append(f"{split} {name} {value:.4f}, and {best_guess:.4f} by {self._what}")
        if not worse:
            return ""
        return (
            f"This model is worse than guessing: {'; '.join(worse)}. Do not use it. Try another learning_rate, more "
            "epochs, frozen_norm_statistics=True, or another model."
        )

    def guess(self, split: str) -> float:
        """The primary metric of the guess on a split."""
        task, kind, targets = self.task, kind_of(self.task.kind), self.task.splits[split].targets
        found = task_metrics.guess_values(
            task.kind,
            guess(task),
            kind.rows_of(targets),
            groups=kind.sample_of_row(targets),
            target_names=task.target_names,
        )
        return next(iter(found.values()))

    @property
    def _what(self) -> str:
        return kind_of(self.task.kind).null_words(guess(self.task), self.task.target_names)


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


def measure_probes(run: SingleRun) -> None:
    """Measure the probes of the model and of its teachers; the model's is the best network so far."""
    network, train_state, frozen_features = run.loop.network, run.loop.train_state, run.frozen_features

    def measured() -> tuple[FrozenProbe, list[FrozenProbe], dict[str, torch.Tensor]]:
        head = new_head(feature_width(run.model, run.task), network.loss, run.arguments.seed)
        posterior, features = frozen_features.posterior(run.model), frozen_features.features(run.model)
        start_from_posterior(head, posterior, features, run.loop.rows.targets, network.loss)
        own, others = (
            FrozenProbe.of(frozen_features, run.model),
            [FrozenProbe.of(frozen_features, t) for t in run.teachers],
        )
        return own, others, {f"head.{name}": value.detach() for name, value in head.state_dict().items()}

    own, others, head = run.shared(measured)
    frozen_features.forget()
    train_state.probes = {"model": asdict(own)}
    if others:
        train_state.probes["teacher"] = asdict(max(others, key=lambda probe: probe.merit))
    value = own.metric("validation")
    # A mixture is not the model alone, not even before its first step.
    if value is not None and np.isfinite(value) and run.arguments.keep_best and not is_mixture(network.body):
        body = {name: value.detach().to("cpu", copy=True) for name, value in network.state_dict().items()}
        train_state.floor, train_state.best_step, train_state.best_state = value, 0, body | head


def read_probes(curves: tuple[Mapping[str, Any], ...]) -> tuple[FrozenProbe | None, FrozenProbe | None]:
    """The probe of the model and that of its best teacher, from the last line of a run."""
    probes: Mapping[str, Any] = next(
        (line.get("probes", {}) for line in reversed(curves) if line["event"] == "result"), {}
    )
    own, teacher = (FrozenProbe(**probes[of]) if of in probes else None for of in ("model", "teacher"))
    return own, teacher
