"""Samples that are probably mislabelled: those that all other samples predict to be something else.

The best of the models gives features, and a linear model on them predicts every sample from all others, in closed form
(`hubscout.evidence.left_out`). The words of a sentence are left out together.
A sample is suspected of being of class c when c is predicted, and as strongly as it is, on average, for samples that
are labelled c (confident learning, Northcutt et al., JAIR 70, 2021): classes that are always hard to tell are not all
suspected. Labels of a multi-label task are taken one by one. A number is suspected when it is missed by far more than
the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hubscout.checking.samples import Samples
from hubscout.errors import ModelError
from hubscout.runs.data_check import TRUSTED, Finding
from hubscout.tasks import Task
from hubscout.tasks.kinds import TaskKind, kind_of
from hubscout.tasks.sequences import Chained, Rows, derived_fingerprint
from hubscout.tasks.task import Split

FAR = 5.0
"""A number is suspected when it is missed by so many robust standard deviations of all misses."""


@dataclass(frozen=True)
class Suspect:
    """A row, what it probably is, and by how much that is more likely; only the order of margins means anything."""

    row: int
    note: str
    margin: float


def mislabelled(
    task: Task, samples: Samples, models: Any, *, limit: int | str | None, most: int, **options: Any
) -> tuple[Finding | None, str]:
    """What the best of the models suspects, strongest first, and a note that says by which model."""
    from hubscout.features import FeatureCache, extract
    from hubscout.ranking import rank
    from hubscout.ranking.candidates import find_candidates

    kind = kind_of(task.kind)
    whole = _as_one_split(task)
    options = {"skip_bad": True, **options}
    ranking = rank(whole, models, limit=limit, measure_latency=False, **options)
    if not len(ranking):
        failure = ranking.failures[0]
        raise ModelError(
            f"No model could be used to look for mislabelled samples: {failure.identifier}: {failure.reason}"
        )
    chosen, layer = ranking[0].identifier, ranking[0].layer
    candidate = next(one for one in find_candidates(models).models if one.identifier == chosen)
    subset = whole if limit is None else whole.subset(limit)
    run = {name: value for name, value in options.items() if name in ("device", "precision", "batch_size", "skip_bad")}
    tapped = [layer] if layer else None
    found = extract(candidate.open(), subset, cache=FeatureCache(), statistics=False, layers=tapped, **run)
    features, width = found.features(layer), len(task.target_names)
    counts = kind.row_counts(subset.train.targets, found.rows)
    numbers = subset.train.inputs.rows[found.rows] if isinstance(subset.train.inputs, Rows) else found.rows
    sample_of_row = np.repeat(numbers, counts)
    together = np.repeat(np.arange(len(counts)), counts) if kind.rows_are_words else None
    predicted = predict_from_others(features, found.targets, kind, width, together)
    suspects = sorted(find_suspects(task, predicted, found.targets), key=lambda one: -one.margin)
    firsts = np.repeat(np.cumsum(counts) - counts, counts)
    shown = []
    for one in suspects[:most]:
        number, note = int(sample_of_row[one.row]), one.note
        if kind.rows_are_words:
            place = int(one.row - firsts[one.row])
            tag = task.target_names[int(found.targets[one.row])]
            note = f"word {place + 1}, {samples.value(number)[place]!r}, is {tag}: {note}"
        shown.append((samples.describe(number, note),))
    note = f"mislabelled {kind.unit} were looked for among {len(features):,} {kind.unit} with {chosen}"
    if not suspects:
        return None, note
    count = len(suspects)
    words = (
        f"{count:,} of {len(features):,} {kind.unit} {'is' if count == 1 else 'are'} predicted to be something else by "
        "a model fitted to all others, the most certain first. "
    )
    right = float((predicted.argmax(axis=1) == found.targets).mean()) if kind.has_classes else 1.0
    if right < TRUSTED:
        words += f"It is right for only {right:.0%}, so most of them are hard and not wrong: look at the first ones."
    else:
        words += "Some are hard and not wrong: look at them."
    return Finding(name="mislabelled", words=words, count=count, groups=tuple(shown)), note


def predict_from_others(
    features: np.ndarray, targets: np.ndarray, kind: TaskKind, width: int, together: np.ndarray | None = None
) -> np.ndarray:
    """(n, C) what a linear model on all other rows predicts for each; rows of a group in `together` leave together."""
    from hubscout.evidence import logme
    from hubscout.evidence.left_out import base_rates_without, left_out_predictions
    from hubscout.evidence.maximize import unwarned

    with unwarned():  # features that fit every label predict all the same
        evidence = logme(
            features,
            targets,
            kind=kind.row_kind,
            classes=range(width) if kind.has_classes else None,
            center=True,
            jackknife="none",
        )
    columns = kind.columns_of_rows(targets, width)
    predicted = left_out_predictions(evidence, features, columns, together)
    if not kind.is_real_valued:
        # The base rate of its own label is lower without a sample: that alone must not speak against the label.
        rates = evidence.over_base_rates.target_mean
        predicted += rates - base_rates_without(rates, evidence.n, columns, together)
    return predicted


def find_suspects(
    task: Task, predicted: np.ndarray, targets: np.ndarray, *, decides: float | None = None
) -> Iterator[Suspect]:
    """The suspects among rows with predictions (n, C) made without them.

    Where predictions of several labels are probabilities, `decides` is the one from which a label is predicted: only
    labels that are predicted wrongly are suspected.
    """
    kind, names = kind_of(task.kind), task.target_names
    if kind.is_real_valued:
        missed = predicted - targets
        middle = np.median(missed, axis=0)
        spread = 1.4826 * np.median(np.abs(missed - middle), axis=0)
        rounding = np.finfo(float).eps * np.abs(targets).max(axis=0)  # where most are predicted exactly
        distance = np.abs(missed - middle) / np.maximum(np.maximum(spread, rounding), np.finfo(float).tiny)
        for row in np.flatnonzero((distance > FAR).any(axis=1)):
            place = int(distance[row].argmax())
            yield Suspect(int(row), f"{names[place]} predicted about {predicted[row, place]:.4g}", distance[row, place])
    elif kind.has_label_sets:
        yes = np.asarray(targets, dtype=bool)
        for place, name in enumerate(names):
            column, has = predicted[:, place], yes[:, place]
            if has.all() or not has.any():
                continue
            usual, unusual = column[has].mean(), column[~has].mean()
            middle = (usual + unusual) / 2
            wrong = np.ones(len(has), dtype=bool) if decides is None else (column >= decides) != has
            for row in np.flatnonzero(wrong & ((has & (column <= unusual)) | (~has & (column >= usual)))):
                note = f"predicted {'not ' if has[row] else ''}{name}"
                yield Suspect(int(row), note, abs(float(column[row] - middle)))
    else:
        rows = np.arange(len(targets))
        usual = np.array(
            [predicted[targets == c, c].mean() if (targets == c).any() else np.inf for c in range(len(names))]
        )
        other = np.where(predicted >= usual, predicted, -np.inf)
        other[rows, targets] = -np.inf
        best = other.argmax(axis=1)
        margin = other[rows, best] - predicted[rows, targets]
        for row in np.flatnonzero(np.isfinite(margin) & (margin > 0)):
            yield Suspect(int(row), f"predicted {names[best[row]]}", float(margin[row]))


def _as_one_split(task: Task) -> Task:
    """The task with all samples of all splits in train, in the order of `Samples`."""
    parts = list(task.splits.values())
    targets: Any = [row for part in parts for row in part.targets]
    if not kind_of(task.kind).rows_are_words:
        targets = np.asarray(targets)
    fingerprint = derived_fingerprint(task.fingerprint, splits="as one")
    whole = Split(Chained([part.inputs for part in parts]), targets, derived_fingerprint(fingerprint, part="inputs"))
    return replace(task, splits={**task.splits, "train": whole}, fingerprint=fingerprint, source=None)
