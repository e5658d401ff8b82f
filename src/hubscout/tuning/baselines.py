"""What tuning is compared with: saying the same of every input (the null model), and the probe of frozen features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import torch

from hubscout.metric_texts import interval_text, metric_text
from hubscout.runs.tuning_record import Probe
from hubscout.tasks.kinds import kind_of
from hubscout.tasks.task_metrics import Metrics, MetricValue, Outcome
from hubscout.tuning.losses import Rows, guess
from hubscout.tuning.methods.zoo import is_mixture
from hubscout.tuning.network import posterior_head

if TYPE_CHECKING:
    from hubscout.hubs import Backbone
    from hubscout.tasks import Task
    from hubscout.tuning.frozen_features import FrozenFeatures
    from hubscout.tuning.single_run import SingleRun

_ROUNDING = 1e-9
"""Of a metric: what is nearer to the guess is equal to it."""


def guess_metric(task: Task, split: str) -> float:
    """The metric that validation goes by, of the guess on a split."""
    return next(iter(Outcome.of(task, task.splits[split], np.empty(0)).guessed(guess(task)).values()))


def worse_than_guessing(task: Task, metrics: Metrics, guesses: Mapping[str, float]) -> str:
    """A warning; empty where no interval of a split lies below the guess: few samples may be unlucky ones."""
    by = _guess_words(task)
    worse = [
        f"{split} {name} {metric_text(name, metric.value)}, and {metric_text(name, guesses[split])} by {by}"
        for split, name, metric in _below(metrics, guesses)
        if not metric.high >= guesses[split]  # NaN is worse as well
    ]
    if not worse:
        return ""
    return (
        f"This model is worse than guessing: {'; '.join(worse)}. Do not use it. Try another learning rate, more "
        "epochs, frozen norm statistics (frozen_norm_statistics), or another model."
    )


def not_told_from_guessing(task: Task, metrics: Metrics, guesses: Mapping[str, float]) -> str:
    """A note on splits where the guess was better, but is inside the interval; empty where there is none."""
    by, sizes = _guess_words(task), {name: len(split) for name, split in task.splits.items()}
    below = [
        f"{split} {name} {interval_text(name, *metric)} on {sizes[split]:,} samples, and "
        f"{metric_text(name, guesses[split])} by {by}"
        for split, name, metric in _below(metrics, guesses)
        if metric.high >= guesses[split]
    ]
    told = f"This model is not told apart from guessing: {'; '.join(below)}. Measure it on more labelled samples."
    return told if below else ""


def no_better_than_guessing(task: Task, metrics: Metrics, guesses: Mapping[str, float]) -> str:
    """A note on splits where the model is as good as the guess; empty where there is none, or no other guess."""
    equal = []
    for split, found in metrics.items():
        name, metric = next(iter(found.items()))
        if abs(metric.value - guesses[split]) <= _ROUNDING and _only_class(task, split) is None:
            equal.append(f"{split} {name} {metric_text(name, metric.value)}")
    told = f"This model is no better than guessing: {' and '.join(equal)}, the same as by {_guess_words(task)}."
    return told if equal else ""


def guessing_notes(task: Task, metrics: Metrics, guesses: Mapping[str, float]) -> list[str]:
    """What to know of a model that is hardly told from guessing, or measured on samples that cannot tell."""
    alone = {split: _only_class(task, split) for split in metrics}
    told = [
        f"The {split} samples are all of the class {name!r}: they do not say how well others are told from it."
        for split, name in alone.items()
        if name is not None
    ]
    compared = task, metrics, guesses
    return [note for note in (not_told_from_guessing(*compared), no_better_than_guessing(*compared), *told) if note]


def _only_class(task: Task, split: str) -> str | None:
    """The class of all rows of a split; None where there are several, or other targets."""
    kind = kind_of(task.kind)
    if not kind.has_classes:
        return None
    present = np.unique(kind.rows_of(task.splits[split].targets))
    return str(task.target_names[int(present[0])]) if len(present) == 1 else None


def _below(metrics: Metrics, guesses: Mapping[str, float]) -> Iterator[tuple[str, str, MetricValue]]:
    """Split, metric and value where a model is not as good as the guess."""
    for split, found in metrics.items():
        name, metric = next(iter(found.items()))
        if not metric.value >= guesses[split] - _ROUNDING:
            yield split, name, metric


def _guess_words(task: Task) -> str:
    return kind_of(task.kind).null_words(guess(task), task.target_names)


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


def measure_probes(
    run: SingleRun, splits: Sequence[str] = ("validation", "test"), samples: int | None = None
) -> Outcome | None:
    """Measure the probes of the model and of its teachers; the model's is the best network so far.

    With `samples` it is that of the model alone, fitted on so many train samples. What it makes of validation comes
    back where its weights may be the result.
    """
    network, train_state, frozen_features = run.loop.network, run.loop.train_state, run.frozen_features
    targets, teachers = run.loop.rows.targets, run.teachers if samples is None else []
    if samples is not None and samples < len(run.task.train):
        frozen_features = frozen_features.on(run.task.subset(samples, seed=run.arguments.seed))
        targets = Rows.of(frozen_features.task.train, network.loss).targets

    def measured() -> tuple[Probe, list[Probe], dict[str, torch.Tensor], Outcome | None]:
        head = posterior_head(frozen_features, run.model, targets, network.loss)
        own, *others = (probe(frozen_features, backbone, splits) for backbone in (run.model, *teachers))
        outcome = None
        if own.metric("validation") is not None:
            features = torch.as_tensor(frozen_features.features(run.model, "validation"), dtype=torch.float32)
            said = network.loss.decode(head(features).detach())
            outcome = Outcome.of(run.task, run.task.validation, said)
        return own, others, {f"head.{name}": value.detach() for name, value in head.state_dict().items()}, outcome

    own, others, head, outcome = run.shared(measured)
    run.frozen_features.forget()
    run.probed = outcome
    train_state.probes = {"model": asdict(own)}
    if others:
        split = "validation" if len(run.task.validation) else "test"
        best = max(others, key=lambda one: -np.inf if (value := one.metric(split)) is None else value)
        train_state.probes["teacher"] = asdict(best)
    value = own.metric("validation")
    # A mixture is not the model alone, not even before its first step.
    mixed = is_mixture(network.body)
    if outcome is None or value is None or not np.isfinite(value) or not run.arguments.keep_best or mixed:
        return None
    body = {name: value.detach().to("cpu", copy=True) for name, value in network.state_dict().items()}
    train_state.floor, train_state.floor_likelihood = value, outcome.mean_log_likelihood
    train_state.best_step, train_state.best_state = 0, body | head
    return outcome
