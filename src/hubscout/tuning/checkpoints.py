"""Where a run stands, and its checkpoints: written atomically, read as data alone, refused where they are another's.

The name of a file ends in the first digits of its content's SHA-256: a byte that changed on the disk is found.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hubscout.errors import CheckpointError, OtherRunError, TuningError, first_line
from hubscout.interrupts import uninterrupted
from hubscout.runs.files import temporary_file, why_not_written

_FORMAT = 3
_OTHERS = {
    "task": "the data are others, in train or validation",
    "model": "the model is another one, or has other weights",
    "teachers": "the teachers are others, or have other weights",
}
"""Of what has digits for a name: what is said where those differ."""
_RATES = "learning_rate", "head_learning_rate"


@dataclass
class TrainState:
    """Where a run stands: what a checkpoint holds beside weights and optimiser."""

    step: int = 0
    best: float = -math.inf
    """The best validation metric, and the mean log-likelihood of the samples of validation there: of two equal metrics
    the weights that are surer of what is true are kept."""
    best_likelihood: float = -math.inf
    best_step: int = -1
    best_state: dict[str, Tensor] | None = None
    stale: int = 0
    stopped: bool = False
    floor: float = -math.inf
    """The validation metric of `best_state` before the first step; weights below it are not kept."""
    floor_likelihood: float = -math.inf
    probes: dict[str, Any] = field(default_factory=dict)
    """What linear probes of frozen features achieve: of the model, and of its best teacher."""
    rate: float | None = None
    """The learning rate that a search chose, and why."""
    rate_reason: str = ""
    trade_off: float | None = None
    """λ of the method, also where it was left to the method."""
    bound: float | None = None
    """Of the method's distance, where it has one."""
    label_share: float | None = 0.0
    """Of the labels in what the method follows, where it has teachers."""
    method: str = ""
    """That runs: another one than was asked for where there was no time for that."""
    taught_by: list[int] | None = None
    """Which of the teachers that were asked for teach, by their places: under a limit of time, not all may do."""
    left_teachers: bool = False
    """Whether a short run said that they are of no use, where nobody had asked for a method."""
    teacher_views: int = 0
    """How many fixed views of each sample they have answered for."""
    seconds: float = 0.0
    """That the run has taken, all calls together."""
    length: int = 0
    """Under a limit of time: how many steps the run has, once its cool-down has begun or it is too short for one."""
    falling: int = 0
    """Steps of that cool-down."""
    tested: int = 0
    """Under a limit of time: how many samples of test there is time for; 0 for all of them."""
    validated: int = 0
    """The same of validation."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run, in one folder.

    `identity` is what must be equal for a checkpoint to be continued: data, model, teachers, method and every
    argument that decides what comes out.
    """

    folder: Path
    identity: Mapping[str, Any]
    keep: int = 2
    method_is_open: bool = False
    """Whether nobody asked for the method: then it may be another one than it was."""

    def write(self, step: int, state: Mapping[str, Any]) -> Path:
        """Write the state after `step` steps; older checkpoints beyond the last `keep` are removed.

        The file gets its name when it is whole and on disk. A write that fails leaves the older ones alone.
        """
        name = f"step-{step:08d}"
        try:
            # A Ctrl-C within torch.save would come out of it as an error of the file.
            with uninterrupted(), temporary_file(self.folder / name) as partial:
                with partial.open("wb") as file:
                    torch.save({"format": _FORMAT, "identity": dict(self.identity), "step": step, **state}, file)
                    file.flush()
                    os.fsync(file.fileno())
                path = self.folder / f"{name}-{_digest(partial)}.pt"
                partial.replace(path)
        except (OSError, RuntimeError) as error:
            latest = self.latest()
            kept = f"The last good checkpoint is {latest}." if latest else "There is no earlier checkpoint."
            raise TuningError(
                f"The checkpoint {self.folder / name} could not be written: {why_not_written(error)}. {kept} Make room "
                "and resume."
            ) from error
        for old in self.files()[: -self.keep]:
            old.unlink(missing_ok=True)
        return path

    def files(self) -> list[Path]:
        """The checkpoints that were written, the latest last."""
        return sorted(self.folder.glob("step-*.pt"))

    def latest(self) -> Path | None:
        """The last checkpoint, or None."""
        return max(self.files(), default=None)

    def last_whole(self) -> tuple[Path | None, list[Path]]:
        """The last checkpoint that is as it was written, or None; and the later ones that are not, now set aside."""
        damaged: list[Path] = []
        for path in reversed(self.files()):
            if is_whole(path):
                return path, damaged
            damaged.append(path.rename(path.with_suffix(".damaged")))
        return None, damaged

    def clear(self) -> None:
        """Remove all of them."""
        for path in self.files():
            path.unlink(missing_ok=True)

    def read(self, path: Path) -> dict[str, Any]:
        """A checkpoint's state, on the CPU. Only data is read: a file that holds anything else is refused."""
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise CheckpointError(
                f"{path} cannot be read as a checkpoint: {first_line(error)}. Remove it to resume from the "
                "one before, or start the run anew."
            ) from error
        if not isinstance(state, dict) or state.get("format") != _FORMAT:
            raise CheckpointError(f"{path} is no checkpoint of this version of hubscout.")
        found, wanted = state["identity"], self.identity
        if differing := differences(found, wanted):
            hint, method = "", found.get("method")
            if self.method_is_open and method != wanted.get("method"):
                hint = f" (method={method!r} too: without it another one is taken now)"
            raise OtherRunError(
                f"{path} belongs to another run: {'; '.join(differing)}. Give the same arguments to resume it{hint}, "
                "or another folder, or overwrite it (overwrite=True, --overwrite)."
            )
        return state


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """How a run differs from the one that is asked for, in words.

    Rates that nobody gave are not named; nor is that of the head where it goes with that of the backbone.

    >>> searched = {"task": "80e2", "learning_rate": 0.001, "head_learning_rate": 0.01, "rate_search": True}
    >>> differences(searched, searched | {"learning_rate": 0.002, "head_learning_rate": 0.02, "rate_search": False})
    ['learning_rate was left to hubscout and is 0.002']
    >>> differences(searched | {"seed": 0}, searched | {"seed": 1, "task": "61a6"})
    ['seed was 0 and is 1', 'the data are others, in train or validation']
    """
    names = {name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)}
    if "rate_search" in names:
        names = names - {"rate_search"} | {*_RATES}
    elif wanted.get("rate_search"):
        names -= {*_RATES}
    if all(one.get("rate_search") or _head_follows(one) for one in (found, wanted)):
        names -= {"head_learning_rate"}
    return [
        _OTHERS.get(name) or f"{name} was {_told(name, found)} and is {_told(name, wanted)}" for name in sorted(names)
    ]


def _head_follows(identity: Mapping[str, Any]) -> bool:
    """Whether the rate of the head is the one that goes with that of the backbone."""
    rate, head = identity.get("learning_rate"), identity.get("head_learning_rate")
    return rate is not None and head is not None and math.isclose(head, 10 * rate)


def _told(name: str, identity: Mapping[str, Any]) -> str:
    searched = name in _RATES and identity.get("rate_search")
    value = identity.get(name)
    return "left to hubscout" if searched else "not given" if value is None else repr(value)


def is_whole(path: Path) -> bool:
    """Whether a checkpoint is as it was written."""
    return path.stem.rpartition("-")[2] == _digest(path)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
