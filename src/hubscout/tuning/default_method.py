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
from hubscout.tuning.frozen_features import FOLDS, folds_of_samples
from hubscout.tuning.rates import first_rate, short_run, steps_per_rate, why_not_clearly_ahead

if TYPE_CHECKING:
    from hubscout.tasks import Task
    from hubscout.tuning.arguments import TuningArguments
    from hubscout.tuning.single_run import SingleRun

ALL_THE_SAME = "method='b-tuning' follows them all the same"
PASSES_PER_STEP = 3
"""What a step of training takes, in passes over its samples."""


@dataclass(frozen=True)
class Untaught:
    """A short run without teachers after which they are not followed."""

    outcome: Outcome
    """Of the first rate that a search tries."""
    told: str
    """Why the run goes on without teachers, in words."""


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
    if PASSES_PER_STEP * shown < len(task.train):
        return f"{shown:,} of {len(task.train):,} train samples are too few to look at all of them first"
    if folds_of_samples(task, arguments.posterior_folds or FOLDS) is None:
        return "the train samples cannot be cut into folds: two classes need two samples or more, of different groups"
    return None


def may_be_passed(kind: str) -> bool:
    """Whether a short run says if teachers are followed: where labels are classes they were nowhere clearly a loss.

    >>> may_be_passed("regression"), may_be_passed("classification")
    (True, False)
    """
    return kind_of(kind).is_real_valued


def weighs_teachers(run: SingleRun) -> bool:
    """Whether a search for a rate may find that teachers are not worth following.

    Not where somebody asked for the method. It takes the linear probes of model and teachers, and teachers that take no
    part in a step but by their answers.
    """
    return (
        run.method_is_open
        and run.weighs
        and may_be_passed(run.task.kind)
        and run.probed is not None
        and _best_probe(run) is not None
        and run.method.extra is None
        and not run.method.views
        and not run.method.live_teachers()
    )


def try_without_teachers(run: SingleRun) -> Untaught | None:
    """Make the first short run of a search without teachers, and leave them if it says that they are of no use.

    They are, if the model then does no worse than the best linear probe of a teacher, or clearly better than its own:
    B-Tuning holds the features where heads that were fitted to the frozen ones read them, which costs where they have
    to move. See `experiments/teaching/passed.py`. None where they stay.
    """
    known = _best_probe(run)
    if known is None or run.probed is None or not weighs_teachers(run):
        return None
    with run.loop.without_method():
        outcome = short_run(run, first_rate(run))
    name, steps = primary(run.task.kind, run.task.target_names), steps_per_rate(run.loop.steps)
    if not np.isfinite(outcome.predicted).all():
        run.note(f"The teachers stay: {steps} steps without them diverge.")
        return None
    reached = f"after {steps} steps without teachers the model has a validation {name} of "
    reached += metric_text(name, outcome.primary)
    best = f"the linear probe of the best teacher has {metric_text(name, known)}"
    own = f"that of its own frozen features {metric_text(name, run.probed.primary)}"
    if outcome.primary >= known:
        why = best
    elif not why_not_clearly_ahead(outcome, run.probed, run.loop.network.loss.scale):
        why = f"the linear probe of its frozen features had {metric_text(name, run.probed.primary)}, clearly less"
    else:
        run.note(f"The teachers stay: {reached}, {best}, and {own}.")
        return None
    run.leave_teachers()
    told = f"{reached[0].upper()}{reached[1:]}, and {why}: it is tuned without them ({ALL_THE_SAME})."
    return Untaught(outcome, told)


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
