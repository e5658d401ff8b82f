"""`race()`: evidence, then rungs of real tuning, then the winner."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hubscout.amounts import parse_seconds
from hubscout.engines import Engine
from hubscout.engines.engine import running_engine
from hubscout.engines.job import forget
from hubscout.errors import InputError, InterruptedRunError, RunError, TuningError, check_least, keywords
from hubscout.features.options import check_acceleration
from hubscout.features.precision import check_device
from hubscout.hubs import load
from hubscout.hubs.backbone import check_modality
from hubscout.hubs.hub_registry import check_identifier
from hubscout.racing.arms import LIVE
from hubscout.racing.contest import Contest
from hubscout.racing.final_stages import DEPLOY_ENDS, FinalStages
from hubscout.racing.held_out_samples import for_race
from hubscout.racing.outcome import Race
from hubscout.racing.prior import add_to_store, with_prior
from hubscout.racing.race_journal import RaceJournal, clear, evidence_seconds, tidy
from hubscout.racing.race_plan import RacePlan
from hubscout.racing.rungs import Clock
from hubscout.ranking import rank
from hubscout.ranking.candidates import find_candidates
from hubscout.ranking.rank_models import check_choices
from hubscout.runs.display import shown
from hubscout.runs.events import Message, silent
from hubscout.runs.paired_comparison import over_limit
from hubscout.runs.race_record import read_race, write_race
from hubscout.runs.ranking import check_limits
from hubscout.runs.row import BUDGET_SPENT
from hubscout.runs.run_folder import RACE_EVIDENCE, RACE_LINES, RACE_WINNER, RANKING, FolderLock, check_folder
from hubscout.runs.texts import counted, human_seconds
from hubscout.tasks import Task, open_task
from hubscout.tuning import TuningArguments
from hubscout.tuning.arguments import check_names
from hubscout.tuning.choices import FOLLOWS_LABELS, check_heeded, unheeded
from hubscout.tuning.readable import read_through

SETTINGS = {
    "schedule": "wsd",
    "warmup": 0.02,
    "frozen_norm_statistics": True,
    "keep_best": False,
    "keep_checkpoints": 1,
}
"""Of every arm: a rate that stays constant can be prolonged; short runs do better with the norms' own statistics."""
TRACES = (RACE_LINES, f"{RACE_EVIDENCE}/{RANKING}")
"""Files that a race leaves from its first result on."""
EVIDENCE_SHARE = 0.25
"""Of the budget, at most: a ranking that would take longer goes by growing subsets."""
KEPT_WITHIN = 1.05
"""Times the budget: a race that takes longer says so."""
TIMED_FROM = 15.0
"""Seconds of evidence per model from which latency is measured that nobody has asked for: it takes half a second."""


def race(
    task: Any,
    models: Any = None,
    *,
    budget: float | str | None = None,
    began: float | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    max_params: float | str | None = None,
    max_flops: float | str | None = None,
    max_latency: float | str | None = None,
    refit: bool = False,
    deploy: str | None = None,
    folds: int = 1,
    prior: bool = False,
    device: str = "auto",
    accelerate: str = "auto",
    limit: int | str | None = None,
    seed: int = 0,
    skip_bad: bool = False,
    engine: str | Engine = "local",
    engine_options: Mapping[str, Any] | None = None,
    observer: Any = None,
    progress: bool = True,
    **options: Any,
) -> Race:
    """Find the model that will be best once tuned, and tune it, within a budget of time.

    Every model is ranked by its evidence. Then each is tuned a little at several learning rates, judged on the same
    held-out samples, and those without a chance are given up; the rest go on from where they are. The winner is tuned
    to its end. All of this is fine-tuning, also where `tune` without a method would follow labels by B-Tuning; a model
    to `deploy` is tuned as by `tune` without a method, but that nobody weighs teachers of numbers: it follows them.

    Args:
        task: the labelled data, or what `hubscout.open_task` opens.
        models: identifiers, patterns, models in memory or a size, as for `rank`.
        budget: seconds, or a text such as "30min"; None races without a limit. Half-done work is kept in `out`.
        began: the moment, by `time.perf_counter()`, that the budget counts from; None is this call.
        out: a folder for everything; the winner is in `out`/winner. The same call goes on where it stopped.
        resume: refuse to start where `out` holds no race to go on with.
        overwrite: start anew, and replace the race that `out` holds.
        max_params: race only models of at most so many parameters, such as 5e6 or "5M"; a larger one takes no time. To
            have larger ones as teachers, let them race and name the small model in `deploy`.
        max_flops: race only models of at most so many operations per sample.
        max_latency: race only models of at most so many seconds for one sample, or a text such as "20ms".
        refit: tune the winner again on train and validation together, with the learning rate that won.
        deploy: a model that is tuned after the race by B-Tuning, with the winner and those that are tied with it as
            its teachers (but for tags, where teachers were no gain); it is in `out`/deployed. Where there is no time
            for teachers, classes follow their labels.
        folds: finalists that the last rung cannot tell apart are also trained and judged on so many folds in all, for
            small data; 1 judges them on one.
        prior: add to the evidence what earlier races of the same recipe on this machine showed of each model.
        device: "auto", "cpu" or "cuda".
        accelerate: "auto", "off", "onnxruntime" or "openvino": how models run for the evidence, as for `rank`.
        limit: use at most so many train samples for the evidence, such as 2000 or "2k".
        seed: of splits, order and augmentation.
        skip_bad: leave out samples that cannot be read.
        engine: where arms run: "local", "ray", or an engine.
        engine_options: for the engine, such as `address`.
        observer: hears of progress, of ranking and of tuning alike, in place of the display.
        progress: show progress in a terminal or a notebook; False shows nothing.
        options: fields of `TuningArguments`, such as `epochs`, `steps` or `batch_size`.

    Returns:
        The race: `winner`, `tuned`, `deployed`, `ranking`, `order`, `answer`.

    Raises:
        InputError: no model is left to race.
        OtherRunError: `out` holds another race.
        InterruptedRunError: Ctrl-C; the best so far is in `out`/winner.

    Example:
        >>> race("flowers/", ["timm/resnet18.a1_in1k", "timm/mobilenetv3_small_100.lamb_in1k"],
        ...      budget="30min", out="run/").winner  # doctest: +SKIP

    """
    check_least("folds", folds)
    check_names(options, keywords(race))
    clock = Clock(None if budget is None else parse_seconds(budget), time.perf_counter() if began is None else began)
    check_folder(out, *TRACES, resume=resume, overwrite=overwrite)
    arguments = arguments_of(options, device, seed, deploy)
    check_wishes(engine, engine_options, device=device, accelerate=accelerate, deploy=deploy)
    limits: dict[str, Any] = {"max_params": max_params, "max_flops": max_flops, "max_latency": max_latency}
    check_limits(**limits)
    opened = open_task(task)
    divided = for_race(opened, seed)
    if deploy is not None:
        _check_deployable(deploy, opened)
    candidates = find_candidates(models, opened.modality, device)  # they hold what is in memory until the race is over
    with ExitStack() as stack:
        observer = stack.enter_context(
            shown(observer, progress, candidates.identifiers, title="race", notes=candidates.notes)
        )
        heard = observer or silent
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) if out is None else Path(out)
        lock = FolderLock(folder)
        lock.take()
        stack.callback(lock.release)
        wanted = None if clock.seconds is None else EVIDENCE_SHARE * clock.seconds
        share, again = evidence_seconds(folder, clock.seconds, wanted)
        ranking = rank(
            opened,
            candidates.models,
            device=device,
            accelerate=accelerate,
            limit=limit,
            seed=seed,
            skip_bad=skip_bad,
            out=folder / RACE_EVIDENCE,
            overwrite=overwrite or again,
            engine=engine,
            engine_options=engine_options,
            observer=observer,
            progress=progress,
            budget=share,
            measure_latency=share is None or share > TIMED_FROM * len(candidates.models),
            **limits,
            drop=False,  # on far domains the best was 5th, 6th and 8th of 17 by evidence
        )
        # The folder may hold rows of models that were not asked for: they do not race.
        asked_for = [candidate.identifier for candidate in candidates.models]
        allowed = replace(ranking, rows=tuple(row for row in ranking if row.identifier in asked_for))
        too_costly = over_limit(ranking.failures)
        if not len(allowed):
            reasons = "; ".join(f"{one.identifier}: {one.reason}" for one in ranking.failures[:3]) or "none was given."
            costly = len(too_costly) == len(asked_for)
            told = f"all {len(too_costly)} are over the limits ({reasons})." if costly else reasons
            raise InputError(f"No model is left to race: {told}")
        runner = stack.enter_context(running_engine(engine, engine_options))
        if overwrite:
            clear(folder)
        split = read_through(divided, skip_bad=skip_bad, observer=heard, data_in_memory=arguments.data_in_memory)
        evidence, notes = with_prior(allowed, opened, arguments, use=prior)
        missed = sum(one.error == BUDGET_SPENT for one in ranking.failures)
        if missed:
            have = "has" if missed == 1 else "have"
            notes.append(f"{missed} of {len(candidates.models)} models {have} no evidence: the budget is too short")
        if too_costly:
            does = "is over the limits: it does" if len(too_costly) == 1 else "are over the limits: they do"
            notes.append(f"{len(too_costly)} of {len(asked_for)} models {does} not race")
        for note in notes:
            heard(Message("", note))
        stack.callback(forget, LIVE)
        journal = RaceJournal(folder, clock, heard, deploy or "")
        try:
            plan = RacePlan(
                task=split,
                asked_for=asked_for,
                ranking=allowed,
                evidence=evidence,
                asked=arguments,
                folder=folder,
                engine=runner,
                observer=heard,
                clock=clock,
                journal=journal,
                race=uuid.uuid4().hex,
                folds=folds,
                ends=1.0 + refit + DEPLOY_ENDS * (deploy is not None),
                deploy=deploy or "",
                notes=notes,
                evidence_seconds=share,
                whole_evidence=not missed and (not ranking.stages or ranking.stages[-1].n >= len(opened.train)),
            )
            over = journal.record.complete
            found = _run(plan, refit)
        except (KeyboardInterrupt, InterruptedRunError) as error:
            journal.stop()
            looks = len(read_race(folder).looks)
            told = f"Stopped after {counted(looks, 'look')} at arms."
            if out is not None and (folder / RACE_WINNER).is_dir():
                told += f" The best so far is in {folder / RACE_WINNER}."
            if out is not None:
                told += " Run the same command again to resume."
            raise InterruptedRunError(told) from error
        if not over:
            add_to_store(found, opened, arguments, plan.race)
        return found


def _run(plan: RacePlan, refit: bool) -> Race:
    """The rungs, the winner, and what comes after it."""
    contest, journal = Contest(plan), plan.journal
    final = FinalStages(plan, contest, refit)
    winner, tuned = final.winner(contest.leaders())
    found = Race(
        task_name=plan.task.name,
        metric=plan.metric,
        winner=winner,
        ranking=plan.ranking,
        evidence=plan.evidence,
        looks=journal.looks,
        steps=tuned.steps,  # there may have been time for more than planned, or for less
        shares=contest.shares,
        seconds={},
        tuned=tuned,
    )
    if plan.deploy:
        teachers = found.teachers(plan.deploy)
        known = {one.model: one.learning_rate for one in found.order if not one.failure}
        try:
            found = replace(found, deployed=final.deployed(winner, tuned, teachers, known.get(plan.deploy)))
        except TuningError as error:  # the winner is there all the same
            plan.note(f"{plan.deploy} could not be taught: {error}")
    if (budget := plan.clock.seconds) is not None and plan.clock.spent > KEPT_WITHIN * budget:
        plan.notes.append(
            f"the budget of {human_seconds(budget)} was not kept: the race took {human_seconds(plan.clock.spent)}"
        )
    notes = (*plan.task.notes, *plan.notes)
    if journal.record.over and journal.record.deploy == plan.deploy:  # the same call, and nothing was done
        with suppress(RunError):
            notes = read_race(plan.folder).notes or notes
    found = replace(found, seconds=journal.record.seconds, notes=notes, told=journal.record)
    write_race(plan.folder, found.record())
    journal.finish()
    # With more time a race goes on, and with it those that may still win.
    tied = {one.model for one in found.order if one.rank == 1 or one.is_tied}
    limited = plan.clock.seconds is not None
    tidy(plan.folder, [plan.runner(arm).folder for arm in found.told.arms if limited and arm.model in tied])
    return replace(found, told=journal.record)


def _check_deployable(model: str, task: Task) -> None:
    """Whether the model is there and can be tuned on the task: said before the race, not after it."""
    backbone = load(model)
    check_modality(backbone.card, task.modality, called=f"The model to deploy {model!r}")
    if backbone.module is None:
        raise InputError(f"deploy={model!r} is not a torch module and cannot be tuned.")


def check_wishes(
    engine: str | Engine, engine_options: Mapping[str, Any] | None, *, device: str, accelerate: str, deploy: str | None
) -> None:
    """Refuse what can be refused before data are read, which can take long."""
    check_choices((), engine=engine, engine_options=engine_options)
    check_acceleration(accelerate)
    if engine == "local":
        check_device(device)
    if deploy is not None:
        check_identifier(deploy)


def arguments_of(options: Mapping[str, Any], device: str, seed: int, deploy: str | None) -> TuningArguments:
    """What the arms have in common, with the settings of a race; what nothing in it would heed is an error."""
    arguments = TuningArguments.of(**{**SETTINGS, **options, "device": device, "seed": seed})
    check_heeded(arguments, FOLLOWS_LABELS, ["the winners"])
    if deploy is None:
        for name, value in unheeded(arguments, "fine-tune", ()).items():
            raise InputError(f"{name}={value!r} is for a model to deploy: give deploy=..., or leave it out.")
    return arguments
