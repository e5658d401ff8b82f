"""The end of a run: its best weights, saved, then measured."""

from __future__ import annotations

import copy
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from hubscout.tuning.baselines import Verdict
from hubscout.tuning.batches import MODEL
from hubscout.tuning.companions import merge_adapters
from hubscout.tuning.evaluator import details
from hubscout.tuning.methods.zoo import is_mixture, merge
from hubscout.tuning.network import Network
from hubscout.tuning.processes import end_run
from hubscout.tuning.tuned import Tuned
from hubscout.tuning.tuned_folder import save_record

if TYPE_CHECKING:
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
    loop, network = run.loop, run.loop.network
    test = run.batches_of(run.task.test, {MODEL: run.model.preprocessing}, augment=False)
    parts = {"validation": (run.task.validation, run.validation), "test": (run.task.test, test)}
    outcomes = run.evaluator.outcomes(network, parts)
    metrics, merged = run.evaluator.measure(outcomes), None
    if is_mixture(network.body):
        plain = copy.deepcopy(run.model)
        assert plain.module is not None
        merge(plain.module)
        outcomes = run.evaluator.outcomes(Network(plain, network.head, network.loss, run.method), parts)
        merged = run.evaluator.measure(outcomes)
    # What is saved of a mixture is the merged network.
    verdict = Verdict(run.task)
    warning = verdict.warning(merged if merged is not None else metrics)
    if warning:
        run.note(warning)
    tuned = replace(
        tuned,
        metrics=metrics,
        merged_metrics=merged,
        guess={split: verdict.guess(split) for split in metrics},
        warning=warning,
        notes=tuple(run.notes),
        seconds=time.perf_counter() - run.began,
    )
    split = next((name for name in ("test", "validation") if name in outcomes), None)
    if split is not None and run.accelerator.is_main_process:
        shown = run.arguments.shown_samples
        tuned = replace(tuned, evaluation=details(run.task, split, *outcomes[split], shown))
    if run.accelerator.is_main_process:
        probes = {"probes": loop.train_state.probes} if loop.train_state.probes else {}
        loop.journal.add("result", step=tuned.steps, metrics=tuned.metrics_record(), **probes)
    return replace(tuned, curves=tuple(loop.journal.lines))
