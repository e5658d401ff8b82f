"""`Task`: one labelled data set, split, with a fingerprint of its content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Kind = Literal["classification", "multilabel", "regression", "tagging"]
Modality = Literal["image", "text", "text-pair", "tokens", "audio", "array"]

Targets = np.ndarray | list[np.ndarray]
"""By kind: classification (n,) int64 ids into `target_names`; multilabel (n, C) of 0 and 1; regression (n, C)
float64; tagging, one int64 array a sentence, as long as the sentence has words."""


@dataclass(frozen=True)
class Split:
    """One part of a task: inputs that are read when they are asked for, and their targets.

    `inputs[i]` is, by modality: an RGB Pillow image; a string; a pair of strings; a list of words; a dictionary of
    `array` and `sampling_rate`; a NumPy array.
    """

    inputs: Sequence[Any]
    targets: Targets

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True)
class Task:
    """A labelled data set.

    `target_names` are the class names (classification, multilabel, tagging) or the names of the columns
    (regression). `notes` are the guesses that were made while reading, to be said aloud. `source` is what the task
    can be opened from again, on this machine or on another that sees the same files; None for data in memory.
    """

    name: str
    kind: Kind
    modality: Modality
    target_names: tuple[str, ...]
    splits: Mapping[str, Split]
    fingerprint: str
    notes: tuple[str, ...] = ()
    source: Mapping[str, Any] | None = field(default=None, compare=False)

    @property
    def train(self) -> Split:
        """The split that models are ranked on and tuned with."""
        return self.splits["train"]

    @property
    def validation(self) -> Split:
        """The split that hyper-parameters are chosen on."""
        return self.splits["validation"]

    @property
    def test(self) -> Split:
        """The split that is only ever reported."""
        return self.splits["test"]
