"""What `tune` does where nobody asks for a method.

Classes: B-Tuning, with teachers or without. Numbers: teachers are followed if a short run says so. Tags: fine-tuning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.errors import OtherRunError
from hubscout.metric_texts import metric_text
from hubscout.runs.tuning_record import Probe
from hubscout.tasks.kinds import kind_of
from hubscout.tasks.task_metrics import Outcome, primary
from hubscout.tuning.choices import FOLLOWS_LABELS, METHODS, unheeded_note
from hubscout.tuning.frozen_features import FOLDS, NO_FOLDS, folds_of_samples
from hubscout.tuning.rates import first_rate, short_run, steps_per_rate, why_not_clearly_ahead

if TYPE_CHECKING:
    from hubscout.tasks import Task
    from hubscout.tuning.arguments import TuningArguments
    from hubscout.tuning.single_run import SingleRun

ALL_THE_SAME = "method='b-tuning' follows them all the same"
NOT_WEIGHED = "No short run weighs the teachers, since {}: they are followed."
PASSES_PER_STEP = 3
"""What a step of training takes, in passes over its samples."""


@dataclass(frozen=True)
class Weighing:
    """What a search for a rate says of the teachers, before it tries rates."""

    told: str
    """Why they are left or followed, in words."""
    outcome: Outcome | None = None
    """Of a short run without them at the first rate that is tried, where they are left."""


def may_teach(kind: str) -> bool:
    """Whether teachers are followed by default: they were no gain for tags.

    >>> may_teach("regression"), may_teach("tagging")
    (True, False)
    """
    return not kind_of(kind).rows_are_words


def why_not_labels(task: Task, arguments: TuningArguments) -> str | None:
    """Why B-Tuning does not take the place of fine-tuning where nobody teaches; None where it does.

    It does for classes (`experiments/teaching`), and takes folds of the train samples, a pass over them, which a run of
    a few steps is not worth, and features that move. Empty for other kinds of tasks, where nobody expects it.
    """
    batches = -(-len(task.train) // arguments.batch_size)
    shown = arguments.length(batches) * arguments.batch_size
    if not kind_of(task.kind).classes_of_samples:
        return ""
    if arguments.freeze == "all":
        return "the whole backbone is frozen"
    if arguments.posterior_folds == 1:
        return "posterior_folds=1"
    if arguments.trade_off == 0:
        return "trade_off=0"
    if PASSES_PER_STEP * shown < len(task.train):
        return f"{shown:,} of {len(task.train):,} train samples are too few to look at all of them first"
    if folds_of_samples(task, arguments.posterior_folds or FOLDS) is None:
        return NO_FOLDS
    return None


def settle_untaught(run: SingleRun) -> None:
    """Choose the method for where nobody teaches and none was asked for, and take it if that is so from the start."""
    if not run.method_is_open:
        return
    why_not = why_not_labels(run.task, run.asked)
    run.untaught = FOLLOWS_LABELS if why_not is None else "fine-tune"
    if not run.teachers and run.untaught != run.method_asked:
        run.method_asked, run.method = run.untaught, METHODS[run.untaught]()
        if why_not:
            run.note(f"Not by B-Tuning towards the labels but by fine-tuning: {why_not}.")


def note_unheeded(run: SingleRun) -> None:
    """Name the options that are not heeded, where the data or the time decided for the method that runs."""
    is_another = run.method_is_open or type(run.method) is not METHODS[run.method_asked]
    if is_another and (told := unheeded_note(run.asked, run.method.name, run.teachers)):
        run.note(told)


def may_be_passed(kind: str) -> bool:
    """Whether a short run says if teachers are followed: where labels are classes they were nowhere clearly a loss.

    >>> may_be_passed("regression"), may_be_passed("classification")
    (True, False)
    """
    return kind_of(kind).is_real_valued


def may_leave_teachers(run: SingleRun) -> bool:
    """Whether teachers would be left if a short run said so: not where somebody asked for the method."""
    return run.method_is_open and bool(run.teachers) and may_be_passed(run.task.kind)


def weighs_teachers(run: SingleRun) -> bool:
    """Whether a search for a rate makes a short run that may find that teachers are not worth following."""
    return may_leave_teachers(run) and not _why_not_weighed(run)


def _why_not_weighed(run: SingleRun) -> str:
    """Why a search for a rate makes no short run without teachers; empty where it does.

    It takes the linear probes of model and teachers, validation samples that tell models apart, and teachers that take
    no part in a step but by their answers.
    """
    if run.method.extra is not None or run.method.views or run.method.live_teachers():
        return "they give more than one answer per sample"
    if run.probed is None or _best_probe(run) is None:
        return "their linear probes are not measured"
    if not np.ptp(run.task.validation.targets, axis=0).any():  # all models have the same metric then
        return "the validation samples all have the same numbers"
    return "" if run.weighs else "there is no time for it"


def weigh_teachers(run: SingleRun) -> Weighing | None:
    """Make the first short run of a search without teachers, and leave them if it says that they are of no use.

    They are, if the model then does no worse than the best linear probe of a teacher, or clearly better than its own:
    B-Tuning holds the features where heads that were fitted to the frozen ones read them, which costs where they have
    to move. See `experiments/teaching/passed.py`. None where that is not asked.
    """
    if not may_leave_teachers(run):
        return None
    if why_not := _why_not_weighed(run):
        return Weighing(NOT_WEIGHED.format(why_not))
    known = _best_probe(run)
    assert known is not None
    assert run.probed is not None
    with run.loop.without_method():
        outcome = short_run(run, first_rate(run))
    name, steps = primary(run.task.kind, run.task.target_names), steps_per_rate(run.loop.steps)
    if not np.isfinite(outcome.predicted).all():
        return Weighing(f"The teachers stay: {steps} steps without them diverge.")
    reached = f"after {steps} steps without teachers the model has a validation {name} of "
    reached += metric_text(name, outcome.primary)
    best = f"the linear probe of the best teacher has {metric_text(name, known)}"
    own = f"that of its own frozen features {metric_text(name, run.probed.primary)}"
    if outcome.primary >= known:
        why = best
    elif not why_not_clearly_ahead(outcome, run.probed, run.loop.network.loss.scale):
        why = f"the linear probe of its frozen features had {metric_text(name, run.probed.primary)}, clearly less"
    else:
        return Weighing(f"The teachers stay: {reached}, {best}, and {own}.")
    run.leave_teachers()
    told = f"{reached[0].upper()}{reached[1:]}, and {why}: it is tuned without them ({ALL_THE_SAME})."
    return Weighing(told, outcome)


def check_left_teachers(run: SingleRun, stood: Mapping[str, Any]) -> None:
    """Refuse to go on with a run whose checkpoint says that it left its teachers, where somebody asks for them now."""
    if stood.get("left_teachers") and not run.method_is_open:
        raise OtherRunError(
            f"{run.folder} holds a run that has left its teachers, as a short run without them said, since nobody had "
            f"asked for a method. To follow them by {run.method_asked}, give another folder, or overwrite it "
            "(overwrite=True, --overwrite); to go on with it, give no method."
        )


def _best_probe(run: SingleRun) -> float | None:
    """The validation metric of the best teacher's linear probe; None where there are no teachers or no probes."""
    found = run.loop.train_state.probes.get("teacher")
    return Probe(**found).metric("validation") if found is not None and run.teachers else None
