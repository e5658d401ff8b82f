"""`race()`: evidence, then rungs of real tuning, then the winner."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.amounts import parse_seconds
from hubscout.engines import Engine, open_engine
from hubscout.errors import InputError, InterruptedRunError
from hubscout.file_identifiers import IdentifierFromFile
from hubscout.racing.contest import LOOKS, Contest, clear
from hubscout.racing.held_out_samples import for_race
from hubscout.racing.outcome import Race
from hubscout.ranking import Ranking, rank
from hubscout.ranking.candidates import find_candidates
from hubscout.runs.display import shown
from hubscout.runs.file_names import RANKING
from hubscout.runs.run_folder import check_folder

if TYPE_CHECKING:
    from hubscout.tasks import Task
    from hubscout.tuning import TuningArguments

SETTINGS = {"schedule": "wsd", "frozen_norm_statistics": True, "keep_best": False, "keep_checkpoints": 1}
"""Of every arm: a rate that stays constant can be prolonged; short runs do better with the norms' own statistics."""
WARMUP = 0.02
EVIDENCE = "evidence"
"""The folder of the ranking, in that of the race."""
EVIDENCE_SHARE = 0.25
"""Of the budget, at most: a ranking that would take longer goes by growing subsets."""


def race(
    task: Task | str | Path,
    models: Any = None,
    *,
    budget: float | str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    max_params: float | str | None = None,
    max_flops: float | str | None = None,
    max_latency: float | str | None = None,
    refit: bool = False,
    device: str = "auto",
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
    to its end.

    Args:
        task: the labelled data, or what `hubscout.open_task` opens.
        models: identifiers, patterns or a size, as for `rank`.
        budget: seconds, or a text such as "30min"; None races without a limit. Half-done work is kept in `out`.
        out: a folder for everything; the winner is in `out`/winner. The same call goes on where it stopped.
        resume: refuse to start where `out` holds no race to go on with.
        overwrite: start anew, and replace the race that `out` holds.
        max_params: race only models of at most so many parameters, such as 5e6 or "5M".
        max_flops: race only models of at most so many operations per sample.
        max_latency: race only models of at most so many seconds for one sample, or a text such as "20ms".
        refit: tune the winner again on train and validation together, with the learning rate that won.
        device: "auto", "cpu" or "cuda".
        limit: use at most so many train samples for the evidence, such as 2000 or "2k".
        seed: of splits, order and augmentation.
        skip_bad: leave out samples that cannot be read.
        engine: where arms run: "local", "ray", or an engine.
        engine_options: for the engine, such as `address`.
        observer: hears of progress, of ranking and of tuning alike, in place of the display.
        progress: show progress in a terminal or a notebook; False shows nothing.
        options: fields of `TuningArguments`, such as `epochs`, `steps` or `batch_size`.

    Returns:
        The race: `winner`, `tuned`, `ranking`, `order`, `answer`.

    Raises:
        InputError: no model is left to race.
        RunError: `out` holds another race.
        InterruptedRunError: Ctrl-C; the best so far is in `out`/winner.

    Example:
        >>> race("flowers/", ["timm/resnet18.a1_in1k", "timm/mobilenetv3_small_100.lamb_in1k"],
        ...      budget="30min", out="run/").winner  # doctest: +SKIP

    """
    from hubscout.tasks import open_task

    started = time.perf_counter()
    seconds = None if budget is None else parse_seconds(budget)
    check_folder(out, LOOKS, f"{EVIDENCE}/{RANKING}", resume=resume, overwrite=overwrite)
    arguments = _arguments(options, device, seed)  # before anything runs: a wrong name is said at once
    opened = open_task(task) if isinstance(task, str | Path) else task
    candidates = find_candidates(models, opened.modality, device)
    with ExitStack() as stack:
        observer = stack.enter_context(
            shown(observer, progress, len(candidates.models), title="race", notes=candidates.notes)
        )
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) if out is None else Path(out)
        ranking = rank(
            opened,
            candidates.models,
            device=device,
            limit=limit,
            seed=seed,
            skip_bad=skip_bad,
            out=folder / EVIDENCE,
            overwrite=overwrite,
            engine=engine,
            engine_options=engine_options,
            observer=observer,
            progress=progress,
            budget=None if seconds is None else EVIDENCE_SHARE * seconds,
        )
        # The folder may hold rows of models that were not asked for: what a file names does not race.
        named = tuple(row for row in ranking if not isinstance(row.identifier, IdentifierFromFile))
        allowed = replace(ranking, rows=named).within(
            max_params=max_params, max_flops=max_flops, max_latency=max_latency
        )
        if not len(allowed):
            raise InputError("No model is left to race: " + _why_none(ranking, allowed))
        runner = open_engine(engine, **(engine_options or {})) if isinstance(engine, str) else engine
        if isinstance(engine, str):
            stack.callback(runner.close)
        if overwrite:
            clear(folder)
        contest = Contest(
            for_race(opened, seed),
            allowed,
            arguments,
            folder,
            runner,
            observer,
            seconds,
            started,
            ranking.seconds,
        )
        try:
            return contest.run(refit=refit)
        except (KeyboardInterrupt, InterruptedRunError) as error:
            told = f"Stopped after {len(contest.looks)} looks at arms."
            if out is not None and (folder / "winner").is_dir():
                told += f" The best so far is in {folder / 'winner'}."
            if out is not None:
                told += " Run the same command again to resume."
            raise InterruptedRunError(told) from error


def _why_none(ranking: Ranking, allowed: Ranking) -> str:
    if len(ranking) and not len(allowed):
        return f"none of {len(ranking)} keeps the limits."
    return "; ".join(f"{one.identifier}: {one.reason}" for one in ranking.failures[:3]) or "none was given."


def _arguments(options: Mapping[str, Any], device: str, seed: int) -> TuningArguments:
    from hubscout.tuning import TuningArguments

    return TuningArguments.of(**{**SETTINGS, "warmup": WARMUP, **options, "device": device, "seed": seed})
