"""How good a tuned model is: by class, label, entity or number, the samples to look at, and in a sentence or two.

`evaluation.json` of a run folder. Its size depends on the number of classes, not on that of the samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.errors import RunError
from hubscout.metric_texts import difference_text, interval_text, metric_text
from hubscout.runs.data_check import Sample
from hubscout.runs.files import read_json
from hubscout.runs.record_types import MIGRATIONS, in_version, record_of, write_record
from hubscout.runs.run_folder import EVALUATION

if TYPE_CHECKING:
    from hubscout.runs.tuning_record import Interval, TuningRun

FORM = "hubscout-evaluation"
VERSION = 2


def _with_notes(record: dict[str, Any]) -> dict[str, Any]:
    """Version 2 calls `note` what version 1 called `remark`; what is damaged stays, for `record_of`."""
    for part in ("worst", "suspects"):
        for sample in record[part] if isinstance(record.get(part), list) else ():
            if isinstance(sample, dict) and "remark" in sample:
                sample["note"] = sample.pop("remark")
    return record


MIGRATIONS[FORM, 1] = _with_notes


@dataclass(frozen=True, kw_only=True)
class TargetOutcome:
    """A class, a label or a type of entity: `seen` have it, `said` were predicted to, `right` are in both.

    A target of numbers has `r2` and `rmse` instead.
    """

    name: str
    seen: int = 0
    said: int = 0
    right: int = 0
    r2: float | None = None
    rmse: float | None = None

    @property
    def recall(self) -> float | None:
        """The share of those that have it that were found; of a class it is the accuracy of its samples."""
        return self.right / self.seen if self.seen else None

    @property
    def precision(self) -> float | None:
        """The share of those predicted that have it."""
        return self.right / self.said if self.said else None

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall; None where it neither occurs nor is predicted."""
        return 2 * self.right / (self.seen + self.said) if self.seen + self.said else None


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """So many rows of class `true` (its place among the names) were predicted to be of class `predicted`."""

    true: int
    predicted: int
    count: int


@dataclass(frozen=True, kw_only=True)
class NumberPair:
    """The true and the predicted number of a sample, for one of the targets."""

    target: int
    true: float
    predicted: float


@dataclass(frozen=True, kw_only=True)
class EvaluationRecord:
    """What a tuned model makes of the samples of `split`."""

    split: str
    kind: str
    modality: str
    target_names: tuple[str, ...]
    samples: int
    targets: tuple[TargetOutcome, ...] = ()
    """One per class, label or number; for tags that mark entities one per type of entity."""
    confusions: tuple[Confusion, ...] = ()
    """Of tasks with classes, the most frequent first; with very many classes only mistakes, and not all."""
    pairs: tuple[NumberPair, ...] = ()
    """Of a regression: a random choice of samples where there are many."""
    worst: tuple[Sample, ...] = ()
    """The samples that were predicted worst, the worst first."""
    suspects: tuple[Sample, ...] = ()
    """The samples that are probably mislabelled, the most certain first."""
    suspected: int = 0
    """How many are probably mislabelled; `suspects` are not all of them."""

    @classmethod
    def from_json(cls, record: Any, *, origin: str = EVALUATION) -> EvaluationRecord:
        """The inverse of what `write_evaluation` puts into the file; a `RunError` names what is wrong."""
        found: EvaluationRecord = record_of(cls, in_version(record, FORM, VERSION, origin=origin), origin)
        found._check_numbers(origin)
        return found

    def _check_numbers(self, origin: str) -> None:
        places = [one for c in self.confusions for one in (c.true, c.predicted)] + [p.target for p in self.pairs]
        if any(not 0 <= place < len(self.target_names) for place in places):
            raise RunError(f"{origin}: a number is no place among the {len(self.target_names)} target names.")
        counts = [one for t in self.targets for one in (t.seen, t.said, t.right)] + [c.count for c in self.confusions]
        if min([*counts, self.samples, self.suspected]) < 0:
            raise RunError(f"{origin}: a count is below zero.")


def write_evaluation(folder: Path, record: EvaluationRecord | None) -> None:
    """Write the record; None removes that of an earlier model, which is not true of this one."""
    if record is None:
        (folder / EVALUATION).unlink(missing_ok=True)
        return
    write_record(folder / EVALUATION, FORM, VERSION, asdict(record))


def read_evaluation(folder: Path) -> EvaluationRecord | None:
    """The record of a folder; None where there is none: runs of earlier versions, and runs without a test split."""
    path = folder / EVALUATION
    return EvaluationRecord.from_json(read_json(path), origin=str(path)) if path.is_file() else None


@dataclass(frozen=True)
class Rival:
    """What a tuned model is compared with: `name` says what it is, `value` what it achieves in the same metric."""

    name: str
    value: float


@dataclass(frozen=True)
class Achieved:
    """The primary metric of a tuned model on a split, and what it is compared with."""

    split: str
    metric: str
    interval: Interval
    rivals: tuple[Rival, ...]
    guess: float | None

    @property
    def value(self) -> float:
        """The metric."""
        return self.interval[0]


_OWN_PROBE = "the linear probe of the frozen features"


def achieved(run: TuningRun, named: Callable[[str], str] = str) -> Achieved | None:
    """On test where it was measured, else on validation; None where neither was. `named` says how a model is called."""
    measured = run.first_metric("test", "validation")
    if measured is None:
        return None
    split, metric, interval = measured
    own, teacher = run.probes.get("model"), run.probes.get("teacher")
    names = {"model": _OWN_PROBE} if own is not None else {}
    if teacher is not None and (own is None or teacher.model != own.model):  # a model may be its own best teacher
        names["teacher"] = f"that of the best teacher, {named(teacher.model)}"
    values = {of: run.probes[of].metric(split) for of in names}
    rivals = tuple(Rival(names[of], value) for of, value in values.items() if value is not None)
    return Achieved(split, metric, interval, rivals, run.guess.get(split))


def conclusion(run: TuningRun, named: Callable[[str], str] = str) -> str:
    """How good the tuned model is, against the probes that were measured and against guessing.

    Args:
        run: the tuning, with its probes.
        named: how a model is called, where not by its whole identifier.

    Returns:
        Some sentences, the last on what to try where tuning did harm; empty where nothing was measured.

    """
    found = achieved(run, named)
    if found is None:
        return ""
    value, low, high = found.interval
    metric = found.metric
    words = f"{found.split.capitalize()} {metric} {interval_text(metric, value, low, high)}"
    for rival in found.rivals:
        difference = abs(value - rival.value)
        apart = f"{difference_text(metric, difference)} {'above' if value > rival.value else 'below'}"
        same = difference < 5e-5
        if same and run.is_linear_probe and rival.name == _OWN_PROBE:
            continue  # that is said below
        words += (
            f", the same as {rival.name}" if same else f", {apart} {rival.name} ({metric_text(metric, rival.value)})"
        )
    words += "."
    if run.is_linear_probe:
        why = "no step of training was better on validation" if run.steps else "there was no time for training"
        words += f" The model is the linear probe of its frozen features: {why}."
    words += f" Guessing gives {metric_text(metric, found.guess)}." if found.guess is not None else ""
    probe = run.probes["model"].metric(found.split) if "model" in run.probes else None
    if probe is not None and high < probe:
        words += " Tuning made the model worse than its frozen features: try a lower learning rate or more epochs."
    return words
