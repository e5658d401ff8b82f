"""The training loop: steps, validation, checkpoints. Devices, precision and processes are accelerate's."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hubscout.errors import DivergedError, InterruptedRunError
from hubscout.runs.events import Finished, Message, Observer, Progress, Validated
from hubscout.runs.tuning_record import Curves
from hubscout.tuning.arguments import TuningArguments
from hubscout.tuning.batches import Batches, BatchPlan, Share
from hubscout.tuning.checkpoints import Checkpoints, TrainState
from hubscout.tuning.companions import WeightAverage
from hubscout.tuning.divergence import LossWatch
from hubscout.tuning.losses import Rows
from hubscout.tuning.methods.method import FineTune, Method
from hubscout.tuning.network import Network
from hubscout.tuning.processes import share_from_main
from hubscout.tuning.rates import cooled, rate_factor
from hubscout.tuning.train_step import TrainStep

if TYPE_CHECKING:
    from accelerate import Accelerator

    from hubscout.tasks.task_metrics import Outcome

CHECKED = 10
"""Steps of a branch after which its weights are looked at."""


@dataclass
class Loop:
    """One run over its steps. `validate` predicts for the validation split; None without one."""

    network: Network
    batches: Batches
    rows: Rows
    plan: BatchPlan
    steps: int
    arguments: TuningArguments
    accelerator: Accelerator
    validate: Callable[[], Outcome] | None
    served: Mapping[str, str]
    """View of a name → the view that really is there (equal preprocessings share one)."""
    watch: LossWatch = field(default_factory=LossWatch)
    checkpoints: Checkpoints | None = None
    journal: Curves = field(default_factory=Curves)
    observer: Observer = lambda event: None
    train_state: TrainState = field(default_factory=TrainState)
    restarts: tuple[str, ...] = ()
    """Why earlier runs diverged, at higher learning rates."""
    deadline: float | None = None
    """By `time.perf_counter()` of the main process: a run that is late by then stops there, and can go on."""
    began: float = field(default_factory=time.perf_counter)
    """By `time.perf_counter()`; earlier than it was, by what earlier calls have taken."""

    def __post_init__(self) -> None:
        chosen = self.arguments
        self.stepper = TrainStep(self.network, self.rows, self.plan, chosen, self.accelerator, self.served, self._note)
        self.optimizer = self.stepper.optimizer
        self.average = WeightAverage(self.network, chosen.ema) if chosen.ema else None
        self.pending: list[tuple[int, dict[str, Tensor]]] = []
        self.reported_at = time.perf_counter()
        self.seconds_trained = 0.0
        """By all calls of `run`."""
        self.seconds_per_step = 0.0
        """Of the last `run` or `branch`, its first step left out: that has waited for the data."""

    def run(self, until: int | None = None) -> None:
        """Train from where the run stands to its end, or to the step `until`; it can go on from there."""
        started = time.perf_counter()
        end = self.steps if until is None else min(until, self.steps)
        try:
            self._run(self._shares(self.train_state.step, end), end)
        except KeyboardInterrupt as error:
            told = f"stopped after step {self.train_state.step}. {self._last_checkpoint()}"
            goes_on = self.checkpoints is not None and self.checkpoints.latest() is not None
            told += " Make the same call again to go on from there." if goes_on else ""
            raise InterruptedRunError(told) from error
        self.seconds_trained += time.perf_counter() - started
        if until is None:
            self.observer(Finished("", self.seconds_trained, steps=self.train_state.step))

    @property
    def validation_interval(self) -> int:
        """Steps between two validations."""
        return max(1, round(self.arguments.validate_every_epochs * self.plan.batches_per_epoch))

    @property
    def is_late(self) -> bool:
        """Whether the deadline is over, by the clock of the main process."""
        return self._late(self.deadline)

    def _shares(self, first: int, end: int) -> Iterator[Share]:
        self.network.train()
        accelerator = self.accelerator
        return self.batches.train(self.plan, range(first, end), accelerator.process_index, accelerator.num_processes)

    def follow(self, method: Method) -> None:
        """Go on with another method, which brings no modules of its own."""
        self.network.method = method
        self.stepper.drop_graphs()  # which have the terms of the other recorded

    @contextmanager
    def without_method(self) -> Iterator[None]:
        """In a `with` block, steps have the task's loss alone."""
        method = self.network.method
        self.follow(FineTune())
        try:
            yield
        finally:
            self.follow(method)

    @contextmanager
    def cooled_down(self, steps: int) -> Iterator[None]:
        """The network as it would be if the run ended with a cool-down of so many steps from here.

        A branch: inside the `with` block the network has gone through these steps, afterwards it stands where it
        stood. Without a cool-down the last noisy steps hide what a network has learnt.
        """
        with self.branch([cooled(number, steps) for number in range(steps)]):
            yield

    @contextmanager
    def branch(self, factors: Sequence[float], deadline: float | None = None) -> Iterator[None]:
        """The network after steps at these factors of its rates; afterwards it stands where it stood.

        After `deadline`, by `time.perf_counter()`, no further step is begun, nor after weights that are no numbers.
        """
        network = {name: value.detach().clone() for name, value in self.network.state_dict().items()}
        optimizer = copy.deepcopy(self.optimizer.state_dict())
        first, number = self.train_state.step, 0
        try:
            began = time.perf_counter()
            for number, share in enumerate(self._shares(first, first + len(factors))):
                losses = self.stepper.take(first + number, share, factors[number])
                if number == 0 or deadline is not None:
                    _wait_for(losses)
                if number == 0:
                    self.seconds_per_step, began = time.perf_counter() - began, time.perf_counter()
                if self._late(deadline) or (number % CHECKED == CHECKED - 1 and not self._finite()):
                    break
            if number:
                _wait_for(losses)
                self.seconds_per_step = (time.perf_counter() - began) / number
            yield
        finally:
            self.network.load_state_dict(network)
            self.optimizer.load_state_dict(optimizer)

    def _run(self, shares: Iterator[Share], end: int) -> None:
        train_state, chosen, validate_every = self.train_state, self.arguments, self.validation_interval
        checkpoint_every = chosen.checkpoint_every_steps or validate_every
        first, since = train_state.step + 1, time.perf_counter()
        while train_state.step < end and not train_state.stopped:
            step = train_state.step
            factor = rate_factor(step, self.steps, chosen.schedule, chosen.warmup, chosen.cooldown)
            self.pending.append((step, self.stepper.take(step, next(shares), factor)))
            if self.average is not None:
                self.average.update(self.network)
            train_state.step += 1
            late = self._late(self.deadline)
            if late and train_state.falling:
                train_state.length = train_state.step  # its time is over: whoever resumes it trains no further
            last = train_state.step == end or late
            if train_state.step == first:
                self.seconds_per_step, since = time.perf_counter() - since, time.perf_counter()
            elif last:
                self.seconds_per_step = (time.perf_counter() - since) / (train_state.step - first)
            due = train_state.step % validate_every == 0
            evaluates = due or last
            # The end of a part is not that of the run: under a limit of time the next begins at once.
            over = train_state.step == self.steps or (late and train_state.falling > 0)
            validates = self.validate is not None and (due or over)
            writes = self.checkpoints is not None and (train_state.step % checkpoint_every == 0 or last)
            if evaluates or writes or train_state.step % chosen.log_every_steps == 0:
                self._report()
            if evaluates and (wrong := self.watch.exploded(validate_every)):
                self._diverged(step, wrong)
            if validates:
                self._validate()
            if writes or (self.checkpoints is not None and train_state.stopped):
                self.write_checkpoint()
            if late:
                return

    def _late(self, deadline: float | None) -> bool:
        if deadline is None:
            return False
        late = time.perf_counter() > deadline
        # Clocks differ between processes: all stop at the same step, when that of the main one says so.
        return late if self.accelerator.num_processes == 1 else share_from_main(self.accelerator)(lambda: late)

    def _report(self) -> None:
        """Read the losses back, stop where one is not finite, write them down."""
        if not self.pending:
            return
        names = list(self.pending[0][1])
        table = torch.stack([torch.stack([losses[name] for name in names]) for _, losses in self.pending]).double()
        values = self.accelerator.reduce(table, reduction="sum").cpu()
        first_bad = next((k for k, row in enumerate(values) if not torch.isfinite(row).all()), None)
        if first_bad is not None:
            finite = torch.isfinite(values[first_bad]).tolist()
            bad = ", ".join(name for name, good in zip(names, finite, strict=True) if not good)
            self._diverged(self.pending[first_bad][0], f"the loss became NaN or infinite (part: {bad})")
        seconds, now = time.perf_counter() - self.reported_at, time.perf_counter()
        samples = sum(len(self.plan.batch(step)) for step, _ in self.pending)
        for (step, _), row in zip(self.pending, values, strict=True):
            parts = dict(zip(names, row.tolist(), strict=True))
            self.watch.losses.append(parts["task"])
            self._write("step", step=step + 1, loss=sum(parts.values()), parts=parts)
        means = dict(zip(names, values.mean(dim=0).tolist(), strict=True))
        step, rate = self.train_state.step, self.optimizer.param_groups[0]["lr"]
        epoch, pace = step / self.plan.batches_per_epoch, samples / max(seconds, 1e-9)
        self.observer(Progress("", step, self.steps, epoch, means, rate, pace))
        self.accelerator.log({**{f"loss/{name}": value for name, value in means.items()}, "rate": rate}, step=step)
        self.pending, self.reported_at = [], now

    def averaged(self) -> AbstractContextManager[None]:
        """In a `with` block the network has the average of its weights, where one is kept."""
        return self.average.applied(self.network) if self.average is not None else nullcontext()

    def _validate(self) -> None:
        assert self.validate is not None
        train_state = self.train_state
        with self.averaged():
            outcome = self.validate()
        metrics, likelihood = outcome.values(), outcome.mean_log_likelihood
        self.network.train()
        name, primary = next(iter(metrics.items()))
        if not math.isfinite(primary):
            self._diverged(train_state.step - 1, f"the validation {name} became NaN or infinite")
        train_state.stale = 0 if primary > train_state.best else train_state.stale + 1
        improved = (primary, likelihood) > (train_state.best, train_state.best_likelihood)
        if improved:
            train_state.best, train_state.best_likelihood = primary, likelihood
        if improved and (primary, likelihood) >= (train_state.floor, train_state.floor_likelihood):
            train_state.best_step = train_state.step
            if self.arguments.keep_best:
                weights = self.average.average if self.average is not None else self.network.state_dict()
                train_state.best_state = {name: value.detach().to("cpu", copy=True) for name, value in weights.items()}
        # It has a third of the run to come back; where no lower rate is left to try there may be nothing to learn.
        watched = 3 * train_state.step >= self.steps and len(self.restarts) < self.arguments.restarts
        if watched and (wrong := self.watch.collapsed(self.validation_interval, name, train_state.best)):
            self._diverged(train_state.step - 1, wrong)
        train_state.stopped = self.arguments.patience is not None and train_state.stale >= self.arguments.patience
        epoch = train_state.step / self.plan.batches_per_epoch
        self._write("validation", step=train_state.step, epoch=epoch, metrics=metrics, best=improved)
        self.observer(Validated("", train_state.step, epoch, metrics, improved))
        self.accelerator.log({f"validation/{name}": value for name, value in metrics.items()}, step=train_state.step)
        self.reported_at = time.perf_counter()

    def _note(self, text: str) -> None:
        self.observer(Message("", text))
        self.journal.add("note", step=self.train_state.step, text=text)

    def _write(self, kind: str, **values: Any) -> None:
        if self.accelerator.is_main_process:
            self.journal.add(kind, **values)

    def write_checkpoint(self) -> None:
        """Write where the run stands, if it has a folder."""
        if self.checkpoints is None:
            return
        if not self._finite():
            self._diverged(self.train_state.step - 1, "weights became NaN or infinite")
        self.train_state.seconds = time.perf_counter() - self.began
        if self.accelerator.is_main_process:
            scaler = self.accelerator.scaler
            state = {
                "network": self.network.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "average": self.average.state() if self.average is not None else None,
                "scaler": scaler.state_dict() if scaler is not None else None,
                "train_state": {**vars(self.train_state)},
                "journal": self.journal.lines,
                "restarts": list(self.restarts),
            }
            self.checkpoints.write(self.train_state.step, state)
        self.accelerator.wait_for_everyone()
        self.reported_at = time.perf_counter()

    def _finite(self) -> bool:
        """Whether all weights are numbers, which are the same in every process."""
        norms = torch._foreach_norm([p.detach() for p in self.network.parameters()])
        return bool(torch.isfinite(torch.stack([norm.double() for norm in norms])).all())

    def take_rates(self, arguments: TuningArguments) -> None:
        """Go on with the learning rates of these arguments."""
        self.arguments, self.reported_at = arguments, time.perf_counter()
        self.stepper.take_rates(arguments)

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's state."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.average is not None:
            self.average.resume(state["average"])
        if state["scaler"] is not None and self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        self.train_state = TrainState(**state["train_state"])
        self.began -= self.train_state.seconds
        self.watch.losses = [line["parts"]["task"] for line in state["journal"] if line["event"] == "step"]
        if self.accelerator.is_main_process:
            self.journal.resume(state["journal"])

    def end(self) -> None:
        """Take the best weights, where they were to be kept."""
        if self.train_state.best_state is not None:
            self.network.load_state_dict(self.train_state.best_state)
        elif self.average is not None:
            self.network.load_state_dict(self.average.average)

    def _diverged(self, step: int, what: str) -> None:
        lower = "learning_rate or trade_off" if getattr(self.network.method, "trade_off", 0) else "learning_rate"
        raise DivergedError(
            f"At step {step + 1} (epoch {step / self.plan.batches_per_epoch:.1f}) {what}.",
            f"{self._last_checkpoint()} Lower {lower}, or set gradient_clip or warmup.",
        )

    def _last_checkpoint(self) -> str:
        latest = self.checkpoints.latest() if self.checkpoints is not None else None
        return f"The last good checkpoint is {latest}." if latest else "No checkpoint was written."


def _wait_for(losses: Mapping[str, Tensor]) -> None:
    """Until a device that works on its own has come to the end of a step."""
    next(iter(losses.values())).item()
