"""The end of a run: its best weights, saved, then measured."""

from __future__ import annotations

import copy
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from hubscout.tuning.baselines import guess_metric, worse_than_guessing
from hubscout.tuning.batches import MODEL
from hubscout.tuning.companions import merge_adapters
from hubscout.tuning.evaluator import Outcome, details
from hubscout.tuning.methods.zoo import is_mixture, merge
from hubscout.tuning.network import Network
from hubscout.tuning.processes import end_run
from hubscout.tuning.tuned import Tuned
from hubscout.tuning.tuned_folder import save_record

if TYPE_CHECKING:
    from hubscout.tasks.task_metrics import MetricValue
    from hubscout.tuning.single_run import SingleRun


def finish(run: SingleRun) -> Tuned:
    """Take the best weights, save them and measure them."""
    loop, network, train_state = run.loop, run.loop.network, run.loop.train_state
    loop.end()
    if train_state.best < train_state.floor:
        run.note(
            f"Validation never reached the linear probe of the frozen features ({train_state.best:.4f} at best, "
            f"against {train_state.floor:.4f}): the result is that probe, with the backbone as it was."
        )
    network.eval()
    if run.arguments.lora_rank is not None:
        merge_adapters(network.body)
    run.method.finish(run.model)
    tuned = snapshot(run)
    folder = run.folder if run.accelerator.is_main_process else None
    if folder is not None:
        try:
            tuned.save(folder)  # before it is tested: whatever happens there, the training is kept
        except NotImplementedError as error:
            run.note(f"The model itself is not written: {error}")
    tuned = _measured(run, tuned)
    end_run(run.accelerator)
    if folder is not None:
        save_record(tuned, folder)
    return tuned


def snapshot(run: SingleRun) -> Tuned:
    """The network as it stands, without having been measured."""
    loop, network = run.loop, run.loop.network
    return Tuned(
        backbone=run.model,
        head=network.head,
        loss=network.loss,
        task_name=run.task.name,
        task_fingerprint=run.task.fingerprint,
        target_names=run.task.target_names,
        method=run.method.name,
        model=run.model.card.identifier,
        teachers=tuple(teacher.card.identifier for teacher in run.teachers),
        arguments=run.arguments,
        curves=tuple(loop.journal.lines),
        best_step=loop.train_state.best_step if loop.train_state.best_state is not None else loop.train_state.step,
        steps=loop.train_state.step,
        notes=tuple(run.notes),
        sizes={name: len(split) for name, split in run.task.splits.items()},
        environment=run.environment,
    )


def _measured(run: SingleRun, tuned: Tuned) -> Tuned:
    """The tuned model with its metrics, and with a warning where they are worse than guessing."""
    loop, network, task = run.loop, run.loop.network, run.task
    test = run.batches_of(task.test, {MODEL: run.model.preprocessing}, augment=False)
    parts = {"validation": run.validation, "test": test}

    def measured(network: Network) -> tuple[dict[str, Outcome], dict[str, dict[str, MetricValue]]]:
        found = {n: run.outcome(part, task.splits[n], network) for n, part in parts.items() if len(task.splits[n])}
        return found, {name: outcome.with_intervals(run.arguments) for name, outcome in found.items()}

    outcomes, metrics = measured(network)
    merged = None
    if is_mixture(network.body):
        plain = copy.deepcopy(run.model)
        assert plain.module is not None
        merge(plain.module)
        outcomes, merged = measured(Network(plain, network.head, network.loss, run.method))
    # What is saved of a mixture is the merged network.
    guesses = {split: guess_metric(task, split) for split in metrics}
    warning = worse_than_guessing(task, merged or metrics, guesses)
    if warning:
        run.note(warning)
    tuned = replace(
        tuned,
        metrics=metrics,
        merged_metrics=merged,
        guess=guesses,
        warning=warning,
        notes=tuple(run.notes),
        seconds=time.perf_counter() - run.began,
    )
    if outcomes and run.accelerator.is_main_process:
        split, found = list(outcomes.items())[-1]
        tuned = replace(tuned, evaluation=details(found, split, run.arguments.shown_samples))
    if run.accelerator.is_main_process:
        probes = {"probes": loop.train_state.probes} if loop.train_state.probes else {}
        loop.journal.add("result", step=tuned.steps, metrics=tuned.metrics_record(), **probes)
    return replace(tuned, curves=tuple(loop.journal.lines))
