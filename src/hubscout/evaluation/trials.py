"""Finished trials of a search, a line each: what is on disk is not run again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hubscout.credentials import strip_credentials
from hubscout.errors import RunError


@dataclass(frozen=True)
class Trial:
    """One model fine-tuned once: hyper-parameters and the task's primary metric. A pruned trial has no test metric."""

    model: str
    learning_rate: float
    weight_decay: float
    validation: float | None
    test: float | None
    seconds: float
    failure: str = ""


class TrialJournal:
    """The finished trials, in memory and on disk."""

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path = path
        self.identity = dict(identity)
        self.trials: list[Trial] = []
        if path.is_file():
            self._read()

    @property
    def done(self) -> set[tuple[str, float, float]]:
        """Model, learning rate and weight decay of what need not run again."""
        return {(trial.model, trial.learning_rate, trial.weight_decay) for trial in self.trials}

    def add(self, trial: Trial) -> None:
        """Keep a finished trial, on disk at once."""
        self.trials.append(trial)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(strip_credentials(json.dumps({"run": self.identity, **asdict(trial)})) + "\n")
            file.flush()

    def _read(self) -> None:
        lines = self.path.read_bytes().splitlines(keepends=True)
        whole = 0
        for number, line in enumerate(lines):
            try:
                record = json.loads(line)
                run = record.pop("run")
                trial = Trial(**record)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                if number == len(lines) - 1:
                    break  # cut short by a kill: that trial runs again
                raise RunError(f"{self.path}, line {number + 1}, is no trial: {error}.") from error
            if run != self.identity:
                raise RunError(
                    f"{self.path} holds trials of another search ({run}, now {self.identity}): give another folder."
                )
            self.trials.append(trial)
            whole += len(line)
        if whole < sum(map(len, lines)):
            with self.path.open("r+b") as file:
                file.truncate(whole)
