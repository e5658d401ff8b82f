"""`tune`: a task, a model, teachers and a method become a tuned model."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.errors import DivergedError, InputError
from hubscout.features.precision import pick_device
from hubscout.hubs import Backbone
from hubscout.hubs.hub_registry import check_identifier
from hubscout.hubs.model_objects import is_model
from hubscout.runs.display import showing
from hubscout.runs.events import Message, Observer, silent
from hubscout.runs.run_folder import check_folder
from hubscout.tasks import open_task
from hubscout.tuning.arguments import TuningArguments
from hubscout.tuning.checkpoints import CHECKPOINTS
from hubscout.tuning.methods import METHODS
from hubscout.tuning.rates import RateChoice
from hubscout.tuning.single_run import SingleRun
from hubscout.tuning.tuned import Tuned

if TYPE_CHECKING:
    from hubscout.features import FeatureCache


@showing("tuning")
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
    cache: FeatureCache | None = None,
    observer: Observer | None = None,
    progress: bool = True,
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
            `METHODS`. None: `b-tuning` where there are teachers, `fine-tune` where there are none.
        out: a folder for the tuned model, its checkpoints and `metrics.jsonl`; without one nothing is written. The
            model is saved before it is tested. The same call goes on from the last checkpoint there, with the result
            of a run in one go; a run with other arguments is refused.
        resume: refuse to start where `out` holds no run to go on with.
        overwrite: start anew, and replace the run that `out` holds.
        skip_bad: leave samples out that cannot be read, and name them in a note, instead of stopping.
        cache: where frozen features are looked up and kept.
        observer: hears of progress in place of the display; see `hubscout.runs.events`.
        progress: show progress in a terminal or a notebook; False shows nothing.
        arguments: everything else; or as keywords:
        options: fields of `TuningArguments`.

    A model that is worse than guessing (the mean, the most frequent class) has a `warning`, which is also a Python
    warning where no observer hears of it.

    Raises:
        InputError: arguments that do not go together, a method without its teachers.
        TaskError: labels that the train split does not have, samples that cannot be read.
        DivergedError: the loss became NaN or far larger than that of the null model, at the first learning rate and
            at all lower ones that `restarts` allows; the last good checkpoint is kept.
        CheckpointError: `out` holds a checkpoint of another run.

    """
    began = time.perf_counter()
    chosen = arguments.replace(**options) if arguments is not None else TuningArguments.of(**options)
    if isinstance(teachers, str | Backbone) or is_model(teachers):
        teachers = (teachers,)
    method = method or ("b-tuning" if teachers else "fine-tune")
    folder = Path(out) if out is not None else None
    check_choices(model, teachers, method, chosen, folder, resume=resume, overwrite=overwrite)
    task = open_task(task)
    settled = chosen.settled(task.modality, task.kind)
    told = observer or silent
    restarts: tuple[str, ...] = ()
    rate: RateChoice | None = None
    while True:
        run = SingleRun(
            task,
            model,
            tuple(teachers),
            method,
            settled,
            folder,
            cache,
            told,
            skip_bad=skip_bad,
            restarts=restarts,
            rate=rate,
            began=began,
        )
        try:
            tuned = run.execute(resume=not overwrite)
            break
        except DivergedError as error:
            tried = len(run.restarts)
            if tried >= settled.restarts:
                if not tried:
                    raise
                raise DivergedError(f"{error} It had started anew {tried} times, each time slower.") from error
            rate = run.rate
            found = settled.at_rate(rate.learning_rate if rate else None)
            restarts = (*run.restarts, _restarted(error, found.slower(tried + 1)))
            run.clear()
        told(Message("", restarts[-1]))
    if tuned.warning and observer is None:
        warnings.warn(tuned.warning, stacklevel=3)
    return tuned


def check_choices(
    model: Any,
    teachers: Any,
    method: str,
    arguments: TuningArguments,
    folder: Path | None,
    *,
    resume: bool = False,
    overwrite: bool = False,
) -> None:
    """Refuse what can be refused before data are read, which can take long."""
    uses_teachers = METHODS[method].uses_teachers
    if uses_teachers and not teachers:
        raise InputError(f"method={method!r} learns from teachers: give at least one, or method='fine-tune'.")
    if teachers and not uses_teachers:
        raise InputError(f"method={method!r} has no teachers: leave teachers=... out, or choose another method.")
    if isinstance(model, str):
        check_identifier(model)
    pick_device(arguments.device)
    check_folder(folder, f"{CHECKPOINTS}/step-*.pt", resume=resume, overwrite=overwrite)


def _restarted(error: DivergedError, slower: TuningArguments) -> str:
    return f"{error.what} The run starts anew with learning_rate={slower.learning_rate:g}, a fifth of what it was."
