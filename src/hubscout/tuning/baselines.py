"""What tuning is compared with: saying the same of every input (the null model), and the probe of frozen features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import torch

from hubscout.runs.tuning_record import Probe
from hubscout.tasks import task_metrics
from hubscout.tasks.kinds import kind_of
from hubscout.tasks.task_metrics import MetricValue, Outcome
from hubscout.tuning.methods.zoo import is_mixture
from hubscout.tuning.network import posterior_head

if TYPE_CHECKING:
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


def guess_metric(task: Task, split: str) -> float:
    """The metric that validation goes by, of the guess on a split."""
    said, truth = guess(task), Outcome.of(task, task.splits[split], np.empty(0))
    found = task_metrics.guess_values(
        task.kind, said, truth.targets, groups=truth.groups, target_names=task.target_names
    )
    return next(iter(found.values()))


def worse_than_guessing(
    task: Task, metrics: Mapping[str, Mapping[str, MetricValue]], guesses: Mapping[str, float]
) -> str:
    """A warning; empty where a model is at least as good as the guess on every split that was measured."""
    by = kind_of(task.kind).null_words(guess(task), task.target_names)
    worse = []
    for split, found in metrics.items():
        name, metric = next(iter(found.items()))
        if not metric.value >= guesses[split] - 1e-9:  # NaN is worse as well
            worse.append(f"{split} {name} {metric.value:.4f}, and {guesses[split]:.4f} by {by}")
    if not worse:
        return ""
    return (
        f"This model is worse than guessing: {'; '.join(worse)}. Do not use it. Try another learning rate, more "
        "epochs, frozen norm statistics (frozen_norm_statistics), or another model."
    )


def probe(frozen_features: FrozenFeatures, backbone: Backbone, splits: Sequence[str] = ("validation", "test")) -> Probe:
    """What the posterior weights m make of a model's frozen features."""
    there = [name for name in splits if len(getattr(frozen_features.task, name))]
    found = {name: probe_outcome(frozen_features, backbone, name).values() for name in there}
    # It goes into checkpoints, which hold plain values alone: not a name with the file that it stands in.
    return Probe(model=str(backbone.card.identifier), metrics=found)


def probe_outcome(frozen_features: FrozenFeatures, backbone: Backbone, split: str) -> Outcome:
    """What the probe says of each sample of a split."""
    task, posterior = frozen_features.task, frozen_features.posterior(backbone)
    features = np.asarray(frozen_features.features(backbone, split), dtype=np.float64)
    return Outcome.of(task, getattr(task, split), features @ posterior.weights.T + posterior.intercept)


def measure_probes(run: SingleRun, splits: Sequence[str] = ("validation", "test")) -> None:
    """Measure the probes of the model and of its teachers; the model's is the best network so far."""
    network, train_state, frozen_features = run.loop.network, run.loop.train_state, run.frozen_features

    def measured() -> tuple[Probe, list[Probe], dict[str, torch.Tensor], float]:
        head = posterior_head(frozen_features, run.model, run.loop.rows.targets, network.loss)
        own, *others = (probe(frozen_features, backbone, splits) for backbone in (run.model, *run.teachers))
        likelihood = -np.inf
        if own.metric("validation") is not None:
            features = torch.as_tensor(frozen_features.features(run.model, "validation"), dtype=torch.float32)
            said = network.loss.decode(head(features).detach())
            likelihood = Outcome.of(run.task, run.task.validation, said).mean_log_likelihood
        return own, others, {f"head.{name}": value.detach() for name, value in head.state_dict().items()}, likelihood

    own, others, head, likelihood = run.shared(measured)
    frozen_features.forget()
    train_state.probes = {"model": asdict(own)}
    if others:
        split = "validation" if len(run.task.validation) else "test"
        best = max(others, key=lambda one: -np.inf if (value := one.metric(split)) is None else value)
        train_state.probes["teacher"] = asdict(best)
    value = own.metric("validation")
    # A mixture is not the model alone, not even before its first step.
    if value is not None and np.isfinite(value) and run.arguments.keep_best and not is_mixture(network.body):
        body = {name: value.detach().to("cpu", copy=True) for name, value in network.state_dict().items()}
        train_state.floor, train_state.floor_likelihood = value, likelihood
        train_state.best_step, train_state.best_state = 0, body | head
