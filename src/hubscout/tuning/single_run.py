"""One run of tuning at given learning rates: its parts put together, started or resumed, finished."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from hubscout.features import FeatureCache
from hubscout.features.extraction import downloads_told
from hubscout.features.feature_keys import identity
from hubscout.hubs import Backbone
from hubscout.runs.events import Message, Observer, silent
from hubscout.runs.run_folder import CHECKPOINTS, CURVES, TEACHING, describe_environment
from hubscout.runs.tuning_record import Curves
from hubscout.tasks import Split, Task
from hubscout.tasks.kept_images import let_go_of_pixels
from hubscout.tasks.kinds import kind_of
from hubscout.tasks.task_metrics import Outcome
from hubscout.tuning.arguments import TuningArguments
from hubscout.tuning.baselines import guess_metric
from hubscout.tuning.batches import MODEL, Batches, BatchPlan, StreamedBatches, default_workers, distinct_views
from hubscout.tuning.checkpoints import Checkpoints
from hubscout.tuning.companions import check_mixable, restrict
from hubscout.tuning.decoded_batches import HeldBatches, augments, fits
from hubscout.tuning.default_method import (
    ALL_THE_SAME,
    may_teach,
    note_unheeded,
    settle_untaught,
)
from hubscout.tuning.divergence import LossWatch
from hubscout.tuning.evaluator import predict_split
from hubscout.tuning.frozen_features import FrozenFeatures
from hubscout.tuning.loop import Loop
from hubscout.tuning.losses import Rows, TaskLoss, check_trainable, null_loss
from hubscout.tuning.methods import METHODS, Method, Preparation
from hubscout.tuning.methods.zoo import is_mixture
from hubscout.tuning.network import (
    Network,
    check_batches,
    check_width,
    keeps_norm_statistics,
    new_head,
    posterior_head,
    silence_unused,
    take_fast_layout,
)
from hubscout.tuning.opened_models import feature_width, open_model_to_tune, open_teacher
from hubscout.tuning.pass_time import TooSlowError
from hubscout.tuning.processes import end_run, make_accelerator, share_from_main
from hubscout.tuning.rates import RateChoice
from hubscout.tuning.readable import decoded_once, find_unreadable, without
from hubscout.tuning.resuming import checkpoints_of, last_checkpoint, start, take_over
from hubscout.tuning.teacher_answers import answers_of_views
from hubscout.tuning.teaching_time import TeachingTime

if TYPE_CHECKING:
    from accelerate import Accelerator


class SingleRun:
    """The parts of one run, put together.

    `restarts` says of each earlier run why it diverged: this one has learning rates that much lower, and the
    `identities` of the same models, so that nobody works them out again. `begin` makes
    the `loop`, which can then be run in parts; `finish` of `tuning_run` ends it.
    """

    loop: Loop
    validation: Batches

    def __init__(
        self,
        task: Task,
        model: str | Backbone,
        teachers: Sequence[Any],
        method: str,
        arguments: TuningArguments,
        out: Path | None,
        cache: FeatureCache | None,
        observer: Observer,
        *,
        skip_bad: bool = False,
        restarts: Sequence[str] = (),
        rate: RateChoice | None = None,
        identities: Sequence[str] = (),
        began: float | None = None,
        budget: float | None = None,
        method_is_open: bool = False,
    ) -> None:
        self.began = began if began is not None else time.perf_counter()
        self.budget = float(arguments.budget) if arguments.budget is not None else budget
        """Seconds from there on, less what earlier calls have `spent`."""
        self.spent = 0.0
        left = bool(method_is_open and teachers and not may_teach(task.kind))
        if left:
            method, teachers = "fine-tune", ()
        self.method_asked, self.method_is_open = method, method_is_open
        """`method_is_open`: nobody asked for the method, so that teachers may be left where they are of no use."""
        self.method: Method = METHODS[method]()
        check_trainable(task)
        self.asked, self.restarts = arguments, tuple(restarts)
        self.take_rate(rate)
        self.folder = out
        self.accelerator: Accelerator = make_accelerator(arguments, self.folder)
        self.observer = observer if self.accelerator.is_main_process else silent
        self.probed: Outcome | None = None
        """What the linear probe of the model makes of validation; None where it was not measured."""
        self.known: dict[str, Outcome] = {}
        """Of a linear probe that is taken as it is: what it says of a split, so that nobody asks it again."""
        self.notes: list[str] = [*([rate.reason] if rate else []), *restarts]
        if left:
            self.note(f"Teachers of tags were no gain where they were tried: it is tuned without ({ALL_THE_SAME}).")
        self.environment = describe_environment(device=str(self.accelerator.device))
        self.shared = share_from_main(self.accelerator)
        with downloads_told("", self.observer):
            self.model = open_model_to_tune(model, task)
            opened = [open_teacher(teacher, task) for teacher in teachers] if self.method.uses_teachers else []
        self.teachers, self.teacher_heads = [teacher for teacher, _ in opened], [head for _, head in opened]
        if cache is None and out is not None and arguments.budget is not None and self.method.uses_teachers:
            cache = FeatureCache(out / TEACHING)  # whoever resumes the run has no time for these passes again
        self.teachers_asked = [teacher.card.identifier for teacher in self.teachers]
        self.taught_by = list(range(len(self.teachers)))
        """Of those that were asked for, the places of those that teach: where time is short, not all of them."""
        # Of the weights as they are now: a network in memory may have been trained since its card was written.
        self.identities = list(identities) or [identity(one) for one in (self.model, *self.teachers)]
        if self.identities[0] in self.identities[1:]:
            self.note(f"The model {self.model.card.identifier} is among its own teachers.")
        task = decoded_once(task, arguments.data_in_memory)
        self.task = without(task, self.shared(lambda: find_unreadable(task)), skip_bad=skip_bad)
        for said in self.task.notes[len(task.notes) :]:
            self.note(said)
        check_trainable(self.task)
        check_mixable(self.task, arguments.mixup)
        device = str(self.accelerator.device)
        self.frozen_features = FrozenFeatures(
            self.task,
            device,
            cache,
            arguments.workers,
            self.shared,
            self.observer,
            untouched=self.model,
            hurried=self.budget is not None,
        )
        self.left_teachers = False
        """Whether a short run said that they are of no use, where nobody had asked for a method."""
        self.searches = self.weighs = True
        """Whether there is time for a search for a rate, and for a short run that weighs the teachers."""
        self.untaught = "fine-tune"
        """The method where nobody teaches and none was asked for, or where no teacher is left."""
        settle_untaught(self)

    @property
    def kept_views(self) -> Path | None:
        """Where the teachers' answers for views are kept for whoever resumes a run under a budget; None elsewhere."""
        return None if self.folder is None or self.asked.budget is None else self.folder / TEACHING / "views.npy"

    def go_on_at(self, choice: RateChoice) -> None:
        """Take the learning rate that a search has chosen."""
        self.take_rate(choice)
        self.loop.take_rates(self.arguments)
        self.keep_rate(choice)
        self.note(choice.reason)

    def take_rate(self, choice: RateChoice | None) -> None:
        """Have the arguments at this rate, or at that of the defaults."""
        self.rate = choice
        self.arguments = self.asked.at_rate(choice.learning_rate if choice else None).slower(len(self.restarts))

    def keep_rate(self, choice: RateChoice) -> None:
        """In checkpoints and in the journal: who resumes the run does not search again."""
        self.loop.train_state.rate, self.loop.train_state.rate_reason = choice.learning_rate, choice.reason
        if self.accelerator.is_main_process:
            self.loop.journal.add("note", step=0, text=choice.reason)

    def begin(self, resume: bool = False) -> None:
        """Build the network and its loop, at the first step or where an earlier run stopped."""
        found = last_checkpoint(self, resume)
        self.resumed = found is not None
        if found is not None:
            take_over(self, found[1]["train_state"])
        accelerator, arguments = self.accelerator, self.arguments
        loss = TaskLoss.of(self.task, label_smoothing=arguments.label_smoothing)
        rows = Rows.of(self.task.train, loss, accelerator.device)
        self.teaching_time = TeachingTime(self, limited=not self.resumed and self.budget is not None)
        network = self._build(loss, rows)
        if found is not None and hasattr(self.method, "bound"):  # its own, like λ: there was none before
            self.method.bound = found[1]["train_state"].get("bound")
        plan = BatchPlan(len(self.task.train), arguments.batch_size, arguments.seed)
        check_batches(network, plan, accelerator.num_processes)
        live = {name: teacher.preprocessing for name, teacher in self.method.live_teachers().items()}
        views, served = distinct_views({MODEL: self.model.preprocessing, **live})
        train = self.batches_of(
            self.task.train, views, augment=arguments.augment == "standard", fixed_views=self.method.views
        )
        moves = arguments.augment == "standard" and augments({MODEL: views[MODEL]})
        if moves and kind_of(self.task.kind).is_real_valued:
            self.note(
                "Images are cropped and mirrored at random while their numbers stay: where those say where something "
                "is or how large, set augment='none'."
            )
        example = next(train.evaluate(np.arange(1), 1)).to(accelerator.device).views[MODEL]
        if not is_mixture(network.body):  # which stacks its teachers' kernels: five axes
            take_fast_layout(network, example, accelerator.device)
        check_width(network, example)
        unused = silence_unused(network, example)
        for note in restrict(network, arguments, unused, accelerator.device):
            self.note(note)
        self.validate_on(self.task.validation)
        validates = len(self.task.validation) > 0
        self.loop = Loop(
            network,
            train,
            rows,
            plan,
            arguments.length(plan.batches_per_epoch),
            arguments,
            accelerator,
            (lambda: self.outcome(self.validation, self.task.validation)) if validates else None,
            served,
            LossWatch(
                null_loss(self.task, loss, rows),
                guess_metric(self.task, "validation") if validates else -math.inf,
            ),
            checkpoints_of(self),
            Curves(self.folder / CURVES if self.folder and accelerator.is_main_process else None),
            self.observer,
            began=self.began,
        )
        start(self, found)

    @property
    def seconds_left(self) -> float | None:
        """Of the budget; None without one."""
        return None if self.budget is None else self.began - self.spent + self.budget - time.perf_counter()

    def keep_teachers(self, places: Sequence[int], untaught: str = "") -> None:
        """Go on with these of the teachers; with `untaught` where there are none of them, or as without teachers."""
        self.teachers = [self.teachers[place] for place in places]
        self.teacher_heads = [self.teacher_heads[place] for place in places]
        self.taught_by = [self.taught_by[place] for place in places]
        self.method = METHODS[self.method_asked if places else untaught or self.untaught]()

    def leave_teachers(self) -> None:
        """Go on with fine-tuning, from the first step."""
        self.forget_method_notes()
        self.keep_teachers([], "fine-tune")
        self.loop.follow(self.method)
        self.left_teachers = True
        self.loop.train_state.probes.pop("teacher")
        self.keep_method()
        note_unheeded(self)

    def forget_method_notes(self) -> None:
        """Say nothing of who teaches in the result: nobody does any more, or nothing is trained."""
        self.notes = [note for note in self.notes if note not in self.method.notes]

    def _build(self, loss: TaskLoss, rows: Rows) -> Network:
        """Head, method and network, without teachers that are too slow for the budget."""
        frozen, device = self.frozen_features, self.accelerator.device
        while True:
            try:
                with frozen.watched(self.teaching_time.watch):
                    head = self._prepare(loss, rows)
                break
            except TooSlowError as error:
                self.teaching_time.leave_out(error)
        for note in (self.teaching_time.told(), *self.method.notes):
            if note:
                self.note(note)
        note_unheeded(self)
        network = Network(self.model, head, loss, self.method, frozen_norm_statistics=keeps_norm_statistics(self))
        network.to(device)
        return network

    def _prepare(self, loss: TaskLoss, rows: Rows) -> nn.Linear:
        """The head, and the method made ready: with whatever they want to know of frozen features."""
        arguments, frozen = self.arguments, self.frozen_features
        if arguments.head_init == "random" or self.resumed:  # its weights are in the checkpoint
            head = new_head(feature_width(self.model, self.task), loss, arguments.seed)
        else:
            head = self.shared(lambda: posterior_head(frozen, self.model, rows.targets, loss))
        self.method.prepare(
            Preparation(
                self.task,
                self.model,
                self.teachers,
                arguments,
                self.accelerator.device,
                frozen,
                self.teacher_heads,
                partial(answers_of_views, self),
            )
        )
        return head

    def batches_of(self, split: Split, views: Mapping[str, Any], *, augment: bool, fixed_views: int = 0) -> Batches:
        """Batches of a split, in the views of some preprocessings."""
        arguments = self.arguments
        held = arguments.data_in_memory
        if held is None:  # only what comes out the same
            held = not (augment and augments(views)) and fits(split.inputs, views, self.accelerator.device)
        batches: Batches = (HeldBatches if held else StreamedBatches)(
            split.inputs,
            views,
            seed=arguments.seed,
            augment=augment,
            workers=default_workers(arguments.workers, len(split), self.accelerator.num_processes),
            device=self.accelerator.device,
            fixed_views=fixed_views,
        )
        if arguments.data_in_memory:  # what is trained on is there; the next model may decode again
            let_go_of_pixels(split.inputs)
        return batches

    def validate_on(self, split: Split) -> None:
        """Prepare batches of what the run is validated on."""
        self.validation = self.batches_of(split, {MODEL: self.model.preprocessing}, augment=False)

    def outcome(self, batches: Batches, split: Split, network: Network | None = None) -> Outcome:
        """What the network of the run, or another one, makes of the first samples of some batches."""
        size = self.arguments.evaluation_batch_size or 2 * self.arguments.batch_size
        network = network or self.loop.network
        predict = partial(predict_split, network, batches, len(split), self.accelerator, size)
        try:
            return Outcome.of(self.task, split, predict())
        except torch.OutOfMemoryError:
            if not self.loop.stepper.forget_graphs():
                raise
        return Outcome.of(self.task, split, predict())  # outside the handler, which holds on to what did not fit

    def keep_method(self) -> None:
        """In checkpoints: who resumes the run follows whom it followed, as strictly."""
        state, method = self.loop.train_state, self.method
        state.taught_by, state.teacher_views, state.method = self.taught_by, method.views, method.name
        state.left_teachers = self.left_teachers
        for name in ("trade_off", "bound", "label_share"):
            setattr(state, name, getattr(method, name, None))

    def announce(self) -> None:
        """Write down where the run stands and how long it is."""
        loop = self.loop
        loop.journal.announce(
            time=time.time(),
            step=loop.train_state.step,
            steps=loop.steps,
            batch_size=self.arguments.batch_size,
            pid=os.getpid(),
            host=platform.node(),
        )

    def let_go(self) -> None:
        """Forget everything, at the end.

        A run, its loop and the loop's parts know each other. Until a collection, their network would hold the memory of
        a device, whoever has let go of it.
        """
        for one in (vars(self).get("loop"), self):
            if one is not None:
                vars(one).clear()

    def clear(self) -> None:
        """Give up this run, for one that starts anew in its place."""
        if self.accelerator.is_main_process and self.folder is not None:
            Checkpoints(self.folder / CHECKPOINTS, {}).clear()
        end_run(self.accelerator)

    def note(self, text: str) -> None:
        """Tell the user, now and in the notes of the result."""
        self.notes.append(text)
        self.observer(Message("", text))
