"""`soup`: several tuned runs of one model, averaged into one network of the same size."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hubscout.errors import InputError
from hubscout.metric_texts import metric_text
from hubscout.runs.run_folder import describe_environment
from hubscout.tasks import Split, Task, open_task, task_metrics
from hubscout.tasks.task_metrics import Outcome
from hubscout.tuning.baselines import guess_metric, guessing_notes, worse_than_guessing
from hubscout.tuning.choices import check_souped
from hubscout.tuning.evaluator import details
from hubscout.tuning.losses import TaskLoss
from hubscout.tuning.tuned import Tuned
from hubscout.tuning.tuned_folder import give_own_card

State = dict[str, Tensor]


def soup(
    task: Any, models: Sequence[Tuned | Path | str], *, out: Path | str | None = None, allow_code: bool = False
) -> Tuned:
    """Average the weights of runs that started from the same model: the greedy soup (Wortsman et al., ICML 2022).

    The runs are taken in the order of their validation metric. Each is averaged in, and stays where the validation
    metric of the average does not fall. The result is one network, as fast as each of them, and on validation no worse
    than the best of them. Runs that differ in seed, learning rate or method may go in; those of another model may not.
    Statistics of batch norms are averaged like weights.

    Args:
        task: the data that they were tuned on, or what `hubscout.open_task` opens; its `validation` split decides.
        models: two or more tuned models: `Tuned`, or the folders that they were saved in.
        out: a folder for the result; without one nothing is written.
        allow_code: let the folders name a `python:` function that builds the network.

    Returns:
        The averaged model, measured on `validation` and `test`; its notes say what went in.

    Raises:
        InputError: fewer than two models, models of different shapes or targets, no validation split.

    Example:
        `hs.soup(task, ["runs/seed-0", "runs/seed-1", "runs/seed-2"], out="my-model")`

    """
    began = time.perf_counter()
    check_souped(models)
    task = open_task(task)
    if not len(task.validation):
        raise InputError(f"{task.name!r} has no validation split, by which a soup is chosen.")
    opened = (one if isinstance(one, Tuned) else Tuned.load(one, allow_code=allow_code) for one in models)
    runs = [_plain(tuned) for tuned in opened]
    names = [str(model) if isinstance(model, str | Path) else f"run {n}" for n, model in enumerate(models, start=1)]
    for name, run in zip(names, runs, strict=True):
        _check(run, name, runs[0], names[0], task)
    alone = [_outcome(run, task.validation, task).primary for run in runs]
    order = sorted(range(len(runs)), key=lambda k: -alone[k])
    states = [{name: v.detach() for name, v in _whole(run).state_dict().items()} for run in runs]
    chosen, best = [order[0]], alone[order[0]]
    made = copy.deepcopy(runs[order[0]])
    for candidate in order[1:]:
        _whole(made).load_state_dict(average([states[k] for k in (*chosen, candidate)]))
        value = _outcome(made, task.validation, task).primary
        if value >= best:
            chosen, best = [*chosen, candidate], value
    _whole(made).load_state_dict(average([states[k] for k in chosen]))
    metric = task_metrics.primary(task.kind, task.target_names)
    left_out = ", ".join(names[k] for k in order if k not in chosen)
    note = (
        f"Soup of {len(chosen)} of {len(runs)} runs ({', '.join(names[k] for k in chosen)}): validation {metric} "
        f"{metric_text(metric, best)}, against {metric_text(metric, alone[order[0]])} of the best of them alone."
        + (f" Left out, since validation fell with them: {left_out}." if left_out else "")
    )
    outcomes = {
        name: _outcome(made, split, task) for name in ("validation", "test") if len(split := getattr(task, name))
    }
    last = list(outcomes)[-1]
    metrics = {name: outcome.with_intervals(**made.arguments.intervals) for name, outcome in outcomes.items()}
    guesses = {name: guess_metric(task, name) for name in metrics}
    made = replace(
        made,
        method="soup",
        task_name=task.name,
        task_fingerprint=task.fingerprint,
        metrics=metrics,
        guess=guesses,
        warning=worse_than_guessing(task, metrics, guesses),
        evaluation=details(task, last, outcomes[last], made.arguments.shown_samples),
        curves=(),
        notes=tuple(filter(None, (note, *guessing_notes(task, metrics, guesses)))),
        sizes={name: len(split) for name, split in task.splits.items()},
        environment=describe_environment(device=made.environment.get("device")),
        seconds=time.perf_counter() - began,
    )
    if out is not None:
        made.save(out)
    give_own_card(made.backbone, made.model, Path(out) if out is not None else None)
    return made


def average(states: Sequence[State]) -> State:
    """The mean of several state dicts; what is no number with a fraction (counts) is that of the first.

    >>> average([{"w": torch.tensor([1.0])}, {"w": torch.tensor([3.0])}])
    {'w': tensor([2.])}
    """
    return {
        name: torch.stack([state[name].double() for state in states]).mean(dim=0).to(value.dtype)
        if value.is_floating_point()
        else value.clone()
        for name, value in states[0].items()
    }


def _plain(tuned: Tuned) -> Tuned:
    """The model as it is saved: its head gives logits, or numbers in the targets' own units."""
    backbone, head = tuned.deployable()
    # Where the head is a part of the network, the two stay the same weights.
    return replace(tuned, backbone=backbone, head=head, loss=TaskLoss(tuned.kind, len(tuned.target_names)))


def _whole(tuned: Tuned) -> nn.Module:
    """Backbone and head as one module."""
    assert tuned.backbone.module is not None
    return nn.ModuleDict({"body": tuned.backbone.module, "head": tuned.head})


def _check(run: Tuned, name: str, first: Tuned, first_name: str, task: Task) -> None:
    if (run.kind, tuple(run.target_names)) != (task.kind, tuple(task.target_names)):
        raise InputError(f"{name} was tuned for other targets than those of {task.name!r}: it cannot go into its soup.")
    shapes, wanted = ({key: v.shape for key, v in _whole(tuned).state_dict().items()} for tuned in (run, first))
    if shapes != wanted:
        raise InputError(
            f"{name} ({run.model}) and {first_name} ({first.model}) are different networks, whose weights have no "
            "average: a soup takes runs of one model."
        )


def _outcome(tuned: Tuned, split: Split, task: Task) -> Outcome:
    return Outcome.of(task, split, tuned.predict(split.inputs).values)
