"""What a race has for sure: the linear probe of a model's frozen features, fitted and saved before the first rung."""

from __future__ import annotations

import pickle
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.errors import InterruptedRunError
from hubscout.racing.arms import Runner, outcome_of_arm
from hubscout.racing.race_journal import BEST
from hubscout.runs.files import write_atomically
from hubscout.tasks.task_metrics import Outcome

if TYPE_CHECKING:
    from hubscout.tasks import Task
    from hubscout.tuning import Tuned
    from hubscout.tuning.single_run import SingleRun

PROBE = "probe.pt"
MOST_ROWS = 20_000
"""Train samples of a probe, at most: more make it hardly better, and take the time for training."""
TIME_SHARE = 0.5
"""Of the time that is left: what a probe may take. Training makes a third of its passes over the data in that time."""


@dataclass(frozen=True)
class Floor:
    """The probe of a model: what can be used is in `best` of its folder, and its weights for a run are beside that."""

    model: str
    metric: float
    """On the first `held_out` of the held-out samples."""
    held_out: int
    fitted_on: int
    """Train samples."""
    seconds: float
    folder: Path
    predicted: np.ndarray | None = field(default=None, repr=False, compare=False)
    """What it says of each of those samples."""

    @classmethod
    def read(cls, folder: Path, model: str) -> Floor | None:
        """The probe in a folder; None where there is none, or a damaged one."""
        try:
            told = _read(folder)
            known = {name: told[name] for name in ("metric", "held_out", "fitted_on", "seconds")}
            return cls(model=model, folder=folder, predicted=told["predicted"].numpy(), **known)
        except (OSError, RuntimeError, KeyError, TypeError, EOFError, pickle.UnpicklingError):
            return None

    def on_first(self, task: Task, rows: int) -> tuple[int, float]:
        """The first so many held-out samples, or as many of them as the probe was measured on, and its metric there."""
        rows = min(rows, self.held_out)
        if rows == self.held_out or self.predicted is None:
            return self.held_out, self.metric
        some = task.validation.take(np.arange(self.held_out))
        return rows, Outcome.of(task, some, self.predicted).first(rows).primary

    def told(self) -> dict[str, Any]:
        """As the first line of a race has it."""
        return {"model": self.model, "metric": self.metric, "fitted_on": self.fitted_on}

    def reached_by(self, run: SingleRun) -> bool:
        """Whether a trained network is at least as good; where it is not, the probe becomes the best of its run."""
        with run.loop.averaged():
            reached = outcome_of_arm(run, self.held_out).primary
        good = reached >= self.metric  # NaN is not
        if not good:
            self.give_to(run, reached)
        return good

    def start(self, run: SingleRun) -> None:
        """Let a run that has not begun start from the probe: few steps do not bring a random head up to it.

        A head that is fitted already moves at the rate of the backbone: at ten times that rate, which new heads have,
        a dozen steps threw SqueezeNet on Omniglot from 75% to 30%, at the backbone's to 71%.
        """
        run.loop.network.load_state_dict(_read(self.folder)["state"])
        run.arguments = run.arguments.replace(head_learning_rate=run.arguments.learning_rate)
        run.loop.take_rates(run.arguments)
        run.note("Training starts from the linear probe of the frozen features.")

    def give_to(self, run: SingleRun, reached: float) -> None:
        """Make the probe the best of a run that has `reached` less."""
        told, state = _read(self.folder), run.loop.train_state
        state.best, state.floor, state.probes = reached, self.metric, told["probes"]
        state.best_step, state.best_state = 0, told["state"]


def _read(folder: Path) -> dict[str, Any]:
    import torch

    return torch.load(folder / PROBE, map_location="cpu", weights_only=True)


def metric_on_first(task: Task, tuned: Tuned, rows: int) -> float:
    """The metric of a tuned model on the first so many held-out samples."""
    if rows >= len(task.validation):
        return tuned.metric("validation").value
    some = task.validation.take(np.arange(rows))
    return Outcome.of(task, some, tuned.predict(list(some.inputs)).values).primary


@dataclass(frozen=True)
class FitProbe:
    """Fit the probe of a model and save it: a job."""

    runner: Runner
    rows: int
    """Train samples that there is time for."""

    def __call__(self) -> Floor | None:
        try:
            return self._fitted()
        except InterruptedRunError as error:
            raise KeyboardInterrupt from error
        except Exception:  # a model that cannot be run shows that in the race, where it is said
            return None

    def _fitted(self) -> Floor | None:
        import torch

        from hubscout.tuning.baselines import measure_probes, probe_outcome
        from hubscout.tuning.tuning_run import snapshot

        began, folder = time.perf_counter(), self.runner.folder
        # Without its teachers: their frozen features take time, and only the model's own probe is wanted.
        arguments = self.runner.arguments.replace(keep_best=True)
        run = replace(self.runner, teachers=None, arguments=arguments).begin(None, self.rows)
        said = probe_outcome(run.frozen_features, run.model, "validation").predicted
        measure_probes(run, splits=("validation",))
        state = run.loop.train_state
        if state.best_state is None:
            return None
        run.loop.end()
        snapshot(run).save(folder / BEST)
        told = {
            "metric": state.floor,
            "held_out": len(run.task.validation),
            "fitted_on": len(run.task.train),
            "seconds": time.perf_counter() - began,
            "state": state.best_state,
            "probes": state.probes,
            "predicted": torch.from_numpy(np.ascontiguousarray(said)),
        }
        write_atomically(folder / PROBE, lambda path: torch.save(told, path))
        return Floor.read(folder, self.runner.arm.model)
