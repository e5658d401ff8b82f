"""`tune`: a task, a model, teachers and a method become a tuned model: trained, saved, then measured."""

from __future__ import annotations

import copy
import shutil
import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.errors import DivergedError, HubscoutError, RunError, keywords
from hubscout.features import FeatureCache
from hubscout.hubs import Backbone
from hubscout.hubs.model_objects import is_model
from hubscout.hubs.saving import DESCRIPTION
from hubscout.metric_texts import metric_text
from hubscout.runs.display import shown
from hubscout.runs.events import Message, Observer, silent
from hubscout.runs.files import read_lines
from hubscout.runs.run_folder import CURVES, TEACHING
from hubscout.runs.texts import counted
from hubscout.runs.tuning_record import read_tuning
from hubscout.tasks import open_task
from hubscout.tasks.task_metrics import primary
from hubscout.tuning.arguments import TuningArguments, check_names
from hubscout.tuning.baselines import guess_metric, guessing_notes, measure_probes, worse_than_guessing
from hubscout.tuning.batches import MODEL
from hubscout.tuning.checkpoints import is_whole
from hubscout.tuning.choices import FOLLOWS_LABELS, check_choices, check_heeded
from hubscout.tuning.companions import merge_adapters
from hubscout.tuning.default_method import (
    NOT_WEIGHED,
    check_left_teachers,
    may_leave_teachers,
    weigh_teachers,
    weighs_teachers,
)
from hubscout.tuning.evaluator import details
from hubscout.tuning.methods.zoo import is_mixture, merge
from hubscout.tuning.network import Network
from hubscout.tuning.processes import end_run
from hubscout.tuning.rates import TRIALS, search_rate, steps_per_rate
from hubscout.tuning.resuming import checkpoints_of
from hubscout.tuning.single_run import SingleRun
from hubscout.tuning.time_budget import fit_to_time, plan_time, shorten_as_planned, steps_text
from hubscout.tuning.tuned import Tuned
from hubscout.tuning.tuned_folder import give_own_card, save_record

if TYPE_CHECKING:
    from hubscout.tasks.task_metrics import MetricValue, Outcome

_MEASURING = ("bootstrap_resamples", "confidence", "shown_samples")
"""Arguments that change what is told of a finished run, and not its weights."""


def tune(
    task: Any,
    model: Any,
    teachers: Any = (),
    method: str | None = None,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    skip_bad: bool = False,
    cache: FeatureCache | str | Path | bool | None = None,
    observer: Observer | None = None,
    progress: bool = True,
    began: float | None = None,
    arguments: TuningArguments | None = None,
    **options: Any,
) -> Tuned:
    """Tune a model on a task.

    Args:
        task: the labelled data, or what `hubscout.open_task` opens. It is trained on `train`, judged by
            `validation` and reported on `test`.
        model: the model to tune: an identifier, or a model in memory as for `rank` (which is copied, not changed).
        teachers: models to learn from: identifiers, models in memory, rows of a ranking, or models that were tuned
            (a `Tuned`, or its folder).
        method: `fine-tune`, `kd`, `logit-kd`, `distill-weighted`, `zoo`, `b-tuning`, or one that a plug-in added to
            `METHODS`. None: `b-tuning` for classes, which follows the labels where there are no teachers; with
            teachers for several labels too, and for numbers, unless a short run in search of a learning rate says that
            they are of no use; or `fine-tune`.
        out: a folder for the tuned model, its checkpoints and `metrics.jsonl`; without one nothing is written. The
            model is saved before it is tested. The same call goes on from the last checkpoint there, with the result
            of a run in one go; a finished run is left as it is and its result returned; a run with other arguments is
            refused.
        resume: refuse to start where `out` holds no run to resume.
        overwrite: start anew, and replace the run that `out` holds.
        skip_bad: leave samples out that cannot be read, and name them in a note, instead of stopping.
        cache: where frozen features are looked up and kept, as for `rank`: True is the folder that rankings use; None
            and False are nowhere, but under a `budget` those of teachers are in `out` until the run is over.
        observer: hears of progress in place of the display; see `hubscout.runs.events`.
        progress: show progress in a terminal or a notebook; False shows nothing.
        began: the moment, by `time.perf_counter()`, that a `budget` counts from; None is this call.
        arguments: everything else; or as keywords:
        options: fields of `TuningArguments`.

    Returns:
        The tuned model. One that is worse than guessing (the mean, the most frequent class) has a `warning`, which is
        also a Python warning where no observer hears of it.

    Raises:
        InputError: arguments that do not go together, a method without its teachers.
        TaskError: labels that the train split does not have, samples that cannot be read.
        DivergedError: the loss became NaN or far larger than that of the null model, at the first learning rate and
            at all lower ones that `restarts` allows; the last good checkpoint is kept.
        OtherRunError: `out` holds another run.

    Example:
        `tune("flowers/", "timm/resnet18.a1_in1k", teachers=ranking.top(3), epochs=10, out="my-model")`

    """
    began = time.perf_counter() if began is None else began
    check_names(options, keywords(tune))
    chosen = arguments.replace(**options) if arguments is not None else TuningArguments.of(**options)
    if isinstance(teachers, str | Backbone) or is_model(teachers):
        teachers = (teachers,)
    check_heeded(chosen, method, teachers)
    method_is_open, method = method is None, method or FOLLOWS_LABELS
    folder = Path(out) if out is not None else None
    check_choices(model, teachers, method, chosen, folder, resume=resume, overwrite=overwrite)
    task = open_task(task)
    settled = chosen.settled(task.modality, task.kind)
    if isinstance(cache, bool | str | Path):
        cache = FeatureCache(None if cache is True else cache) if cache is not False else None
    with shown(observer, progress, title="tuning") as hearer:
        told = hearer or silent
        given = (task, model, tuple(teachers), method, settled, folder, cache, told)
        start = partial(SingleRun, *given, skip_bad=skip_bad, method_is_open=method_is_open)
        run = start(began=began)
        tuned = None if overwrite else _finished(run)
        while tuned is None:
            try:
                tuned = _execute(run, resume=not overwrite)
            except DivergedError as error:
                tried, rate = len(run.restarts), run.rate
                if tried >= settled.restarts:
                    if not tried:
                        raise
                    raise DivergedError(
                        f"{error} It had restarted {tried} times, each time at a lower rate."
                    ) from error
                lower = settled.at_rate(rate.learning_rate if rate else None).slower(tried + 1).learning_rate
                why = f"{error.what} The run restarts with learning_rate={lower:g}, a fifth of what it was."
                run.clear()
                told(Message("", why))
                restarts, known, since = (*run.restarts, why), run.identities, run.began - run.spent
                left = run.left_teachers
                run = start(restarts=restarts, rate=rate, identities=known, began=since)
                if left:
                    run.keep_teachers([])
                    run.left_teachers = True
    run.let_go()
    if tuned.warning and hearer is None:
        warnings.warn(tuned.warning, stacklevel=2)
    return tuned


def _finished(run: SingleRun) -> Tuned | None:
    """The result in the folder where it is that of this very run, as it was saved; else None, and the run goes on.

    A model that cannot be saved, other samples to test and another way of measuring are reasons to go on.
    """
    taught_by = run.shared(lambda: _teachers_of_finished(run))
    if taught_by is None:
        return None
    assert run.folder is not None
    try:
        tuned = Tuned.load(run.folder, model=run.model)
    except (HubscoutError, OSError, ValueError):  # weights that were removed or damaged since are written again
        return None
    run.observer(
        Message(
            "",
            f"{run.folder} holds the result of this run ({counted(tuned.steps, 'step')}): nothing is trained. "
            "To start anew, overwrite it (overwrite=True, --overwrite).",
        )
    )
    end_run(run.accelerator)
    # Those that did teach, by the names that they were given now.
    teachers = tuple(run.teachers_asked[place] for place in taught_by)
    model = run.model.card.tuned_from or run.model.card.identifier
    return replace(tuned, model=model, teachers=teachers).to(run.accelerator.device)


def _teachers_of_finished(run: SingleRun) -> list[int] | None:
    """The places of those that taught; None where the folder holds no measured result that is the end of this run."""
    checkpoints, folder = checkpoints_of(run), run.folder
    latest = checkpoints.latest() if checkpoints is not None else None
    if checkpoints is None or folder is None or latest is None or not is_whole(latest):
        return None
    stood = checkpoints.read(latest)["train_state"]  # that of another run is refused
    check_left_teachers(run, stood)
    try:
        record, lines = read_tuning(folder), read_lines(folder / CURVES, tolerant=True)
    except RunError:  # none, or a damaged one: it is written again
        return None
    # A run that was killed later than its model was saved has no seconds; one begun anew after it has no result line.
    ended = record.seconds is not None and bool(lines) and lines[-1].get("event") == "result"
    finished = (
        ended
        and record.steps == stood["step"]
        and (folder / DESCRIPTION).is_file()
        and record.task_fingerprint == run.task.fingerprint
        and all(record.arguments.get(name) == getattr(run.asked, name) for name in _MEASURING)
    )
    taught_by: list[int] | None = stood.get("taught_by")  # None in checkpoints of before there was a choice
    return None if not finished else run.taught_by if taught_by is None else taught_by


def _execute(run: SingleRun, *, resume: bool) -> Tuned:
    """Prepare, train, evaluate; `resume` goes on from the last checkpoint in the folder, if there is one."""
    run.begin(resume)
    asked, loop, state = run.asked, run.loop, run.loop.train_state
    long_enough = asked.budget is not None or steps_per_rate(loop.steps) > 0
    fresh = run.rate is None and state.step == 0
    searches = fresh and asked.rate_search and len(run.task.validation) > 0 and long_enough
    probes = state.step == 0 and (_probes(run) if asked.linear_probe is None else asked.linear_probe)
    if probes and asked.budget is None:
        measure_probes(run)
    limit = None
    if state.step >= state.length > 0:  # its time is over
        loop.steps = state.length
        shorten_as_planned(run)
    elif asked.budget is not None:
        limit = plan_time(run, float(asked.budget), searches=searches, probes=probes)
        if limit is None:
            loop.write_checkpoint()  # by which it is known as finished
            run.forget_method_notes()
            return finish(run)
    run.frozen_features.forget()
    if searches and run.searches and (short := steps_per_rate(loop.steps)):
        first = " The first is tried without teachers, too." if weighs_teachers(run) else ""
        run.observer(
            Message("", f"No learning rate was given: {TRIALS} or {TRIALS + 1} are tried, {short} steps each.{first}")
        )
        if limit is not None:
            loop.deadline = (time.perf_counter() + limit[0]) / 2  # most of the time is for the run itself
        run.go_on_at(search_rate(run, weigh_teachers(run)))
    elif run.rate is None and asked.rate_search and not run.restarts:  # else it is a share of the default
        why = "The run is too short to compare some" if len(run.task.validation) else "There is no validation split"
        run.note(
            f"No learning rate was given. {why}: the default is taken, learning_rate={run.arguments.learning_rate:g}."
        )
    if run.rate is None and may_leave_teachers(run):  # what a search says of them stands beside the rate
        run.note(NOT_WEIGHED.format("no learning rate is searched"))
    if limit is not None:
        fit_to_time(run, *limit)
    loop.run()
    if asked.budget is not None:
        made = steps_text(state.step, loop.plan.batches_per_epoch)
        run.note(f"{made} {'was' if state.step == 1 else 'were'} made in that budget.")
    return finish(run)


def _probes(run: SingleRun) -> bool:
    """Whether the linear probe is measured where nobody says: where the rate is ours to choose, in a run that is long.

    Or in a shorter one, if it takes no longer than the training: a step is about three passes over its samples.
    """
    asked, steps = run.asked, run.loop.steps
    if not asked.rate_search or not len(run.task.validation):
        return False
    samples = sum(map(len, run.task.splits.values()))
    return asked.budget is not None or steps_per_rate(steps) > 0 or samples <= 3 * steps * asked.batch_size


def finish(run: SingleRun) -> Tuned:
    """Take the best weights, save them and measure them; on splits whose outcome is known, not again."""
    loop, network, train_state = run.loop, run.loop.network, run.loop.train_state
    loop.end()
    loop.stepper.let_go()  # before copies are made to save it, and passes to measure it
    if (train_state.best, train_state.best_likelihood) < (train_state.floor, train_state.floor_likelihood):
        equal = train_state.best == train_state.floor
        told = partial(metric_text, primary(run.task.kind, run.task.target_names))
        against = "with surer predictions of the probe" if equal else f"against {told(train_state.floor)}"
        run.note(
            f"Validation never {'exceeded' if equal else 'reached'} the linear probe of the frozen features "
            f"({told(train_state.best)} at best, {against}): the result is that probe, with the backbone as it was."
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
        shutil.rmtree(folder / TEACHING, ignore_errors=True)
    give_own_card(tuned.backbone, tuned.model, run.folder)
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
        model=run.model.card.tuned_from or run.model.card.identifier,
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
        there = {name: part for name, part in parts.items() if len(getattr(task, name))}
        found = {n: run.known.get(n) or run.outcome(part, getattr(task, n), network) for n, part in there.items()}
        return found, {name: outcome.with_intervals(**run.arguments.intervals) for name, outcome in found.items()}

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
    for said in (warning, *guessing_notes(task, merged or metrics, guesses)):
        if said:
            run.note(said)
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
        tuned = replace(tuned, evaluation=details(task, split, found, run.arguments.shown_samples))
    if run.accelerator.is_main_process:
        probes = {"probes": loop.train_state.probes} if loop.train_state.probes else {}
        loop.journal.add("result", step=tuned.steps, metrics=tuned.metrics_record(), **probes)
    return replace(tuned, curves=tuple(loop.journal.lines))
