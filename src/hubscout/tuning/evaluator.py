"""Predictions for a split, from all processes: how good they are, and what a report says of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hubscout.checking.mislabelled import find_suspects
from hubscout.checking.samples import Samples
from hubscout.features.freed_memory import give_back_freed
from hubscout.hubs import Batch
from hubscout.hubs.length_groups import forward_by_length
from hubscout.runs.data_check import Sample
from hubscout.runs.evaluation_record import Confusion, EvaluationRecord, NumberPair, TargetOutcome
from hubscout.tasks import Task, task_metrics
from hubscout.tasks.entities import count_entities, tag_scheme
from hubscout.tasks.kinds import kind_of
from hubscout.tasks.task_metrics import Outcome
from hubscout.tuning.batches import MODEL, Batches, move
from hubscout.tuning.network import Network
from hubscout.tuning.processes import gather_in_order

if TYPE_CHECKING:
    from accelerate import Accelerator


MOST_CLASSES = 100
"""Of more classes only the most frequent mistakes are kept."""
MOST_MISTAKES = 200
MOST_PAIRS = 1000
LONGEST_TEXT = 400
WORDS_NAMED = 6
DECIDES = 0.5
"""The probability from which one of several labels is predicted."""


def predict_split(
    network: Network, batches: Batches, samples: int, accelerator: Accelerator, batch_size: int
) -> np.ndarray:
    """(rows, C) decoded predictions of the first `samples` samples.

    Each process takes a range of them: nothing is padded, so nothing is counted twice.
    """
    own = np.array_split(np.arange(samples), accelerator.num_processes)[accelerator.process_index]
    outputs, device = [], accelerator.device

    def predict(batch: Batch) -> Tensor:
        return network.predict(move(batch, device)).double()

    give_back_freed()  # the memory of training steps, into which these passes do not fit
    with network.evaluating(), torch.no_grad(), accelerator.autocast():
        for share in batches.evaluate(own, batch_size):
            outputs.append(forward_by_length(predict, share.views[MODEL], device.type))
    part = network.loss.decode(torch.cat(outputs)) if outputs else None
    return np.concatenate([found for found in gather_in_order(accelerator, part) if found is not None])


def details(task: Task, split: str, outcome: Outcome, shown: int) -> EvaluationRecord:
    """What is told of the predictions for a split.

    Args:
        task: the labelled data.
        split: the name of the split.
        outcome: probabilities of classes or labels, or numbers, beside the truth.
        shown: how many samples are shown as the worst, and how many as probably mislabelled.

    Returns:
        The record; at most 2 * `shown` of its samples have a text or a thumbnail.

    """
    predicted, targets = outcome.predicted, outcome.targets
    kind, samples = kind_of(task.kind), Samples(task)
    first = next(number for number, (name, _) in enumerate(samples.places) if name == split)

    def described(row: int, note: str, *, labelled: bool = True) -> Sample:
        sample = samples.describe(first + row, note, longest=LONGEST_TEXT)
        return sample if labelled else replace(sample, label="")

    found = [] if outcome.groups is not None else list(find_suspects(task, predicted, targets, decides=DECIDES))
    suspects = sorted(found, key=lambda one: -one.margin)[:shown]
    known = {one.row for one in suspects}
    worst = (one for one in _worst(outcome, task.splits[split].inputs) if one[0] not in known)
    return EvaluationRecord(
        split=split,
        kind=task.kind,
        modality=task.modality,
        target_names=tuple(task.target_names),
        samples=len(task.splits[split]),
        targets=tuple(_targets(outcome)),
        confusions=tuple(_confusions(predicted, targets)) if kind.has_classes else (),
        pairs=tuple(_pairs(predicted, targets)) if kind.is_real_valued else (),
        # The note on a number has the true one too.
        worst=tuple(described(*one, labelled=not kind.is_real_valued) for one in islice(worst, shown)),
        suspects=tuple(described(one.row, one.note) for one in suspects),
        suspected=len({one.row for one in found}),
    )


def _targets(outcome: Outcome) -> Iterator[TargetOutcome]:
    predicted, targets, groups = outcome.predicted, outcome.targets, outcome.groups
    kind, names = kind_of(outcome.kind), outcome.target_names
    if kind.is_real_valued:
        for place, name in enumerate(names):
            one = predicted[:, [place]], targets[:, [place]]
            r2, rmse = task_metrics.r_squared(*one), task_metrics.root_mean_squared_error(*one)
            yield TargetOutcome(name=name, seen=len(targets), r2=r2, rmse=rmse)
        return
    scheme = tag_scheme(names) if kind.rows_are_words else None
    if scheme is not None and groups is not None:
        said = predicted.argmax(axis=1)
        counts = [
            (name, count_entities(said, targets, groups, scheme.only(place)).sum(axis=0))
            for place, name in enumerate(scheme.types)
        ]
    else:
        true = kind.columns_of_rows(targets, len(names)) > 0
        said = predicted >= DECIDES if kind.has_label_sets else np.eye(len(names), dtype=bool)[predicted.argmax(axis=1)]
        sums = [(said & true).sum(axis=0), said.sum(axis=0), true.sum(axis=0)]
        counts = list(zip(names, np.stack(sums, axis=1), strict=True))
    for name, (right, said_so, seen) in counts:
        yield TargetOutcome(name=name, seen=int(seen), said=int(said_so), right=int(right))


def _confusions(predicted: np.ndarray, targets: np.ndarray) -> list[Confusion]:
    width = predicted.shape[1]
    counts = np.zeros((width, width), dtype=np.int64)
    np.add.at(counts, (targets, predicted.argmax(axis=1)), 1)
    if width > MOST_CLASSES:
        np.fill_diagonal(counts, 0)
    true, said = np.nonzero(counts)
    order = np.argsort(-counts[true, said], kind="stable")
    order = order[:MOST_MISTAKES] if width > MOST_CLASSES else order
    return [Confusion(true=int(true[i]), predicted=int(said[i]), count=int(counts[true[i], said[i]])) for i in order]


def _pairs(predicted: np.ndarray, targets: np.ndarray) -> Iterator[NumberPair]:
    rows = np.random.default_rng(0).permutation(len(targets))[: MOST_PAIRS // targets.shape[1]]
    for place in range(targets.shape[1]):
        for row in np.sort(rows):
            numbers = (float(f"{values[row, place]:.6g}") for values in (targets, predicted))
            yield NumberPair(target=place, true=next(numbers), predicted=next(numbers))


def _worst(outcome: Outcome, inputs: Sequence[Any]) -> Iterator[tuple[int, str]]:
    """Samples that were predicted wrongly, the worst first, with what was predicted of them."""
    predicted, targets = outcome.predicted, outcome.targets
    kind, names = kind_of(outcome.kind), outcome.target_names
    if kind.is_real_valued:
        size = np.abs(predicted - targets) / np.maximum(targets.std(axis=0), np.finfo(float).tiny)
        for row in np.argsort(-size.max(axis=1), kind="stable"):
            place = int(size[row].argmax())
            told = f"{names[place]} " if len(names) > 1 else ""
            yield int(row), f"{told}predicted {predicted[row, place]:.4g}, true {targets[row, place]:.4g}"
    elif kind.has_label_sets:
        true = np.asarray(targets) > 0
        wrong = (predicted >= DECIDES) != true
        missed = np.where(wrong, np.abs(predicted - true), 0.0).sum(axis=1)
        for row in np.argsort(-missed, kind="stable"):
            if wrong[row].any():
                yield int(row), f"predicted {', '.join(kind.labels_of(predicted[[row]], names)[0]) or 'none'}"
    elif outcome.groups is not None:
        yield from _worst_sentences(outcome, inputs)
    else:
        said = predicted.argmax(axis=1)
        own = predicted[np.arange(len(targets)), targets]
        for row in np.argsort(own, kind="stable"):
            if said[row] != targets[row]:
                yield int(row), f"predicted {names[said[row]]}, probability {predicted[row, said[row]]:.2f}"


def _worst_sentences(outcome: Outcome, inputs: Sequence[Any]) -> Iterator[tuple[int, str]]:
    """Sentences with the most wrong words, and which these are."""
    names, targets, groups = outcome.target_names, outcome.targets, outcome.groups
    assert groups is not None
    said = outcome.predicted.argmax(axis=1)
    wrong = said != targets
    missed = np.bincount(groups[wrong], minlength=len(inputs))
    starts = np.searchsorted(groups, np.arange(len(inputs)))
    for sentence in np.argsort(-missed, kind="stable"):
        if not missed[sentence]:
            return
        words, first = inputs[int(sentence)], starts[sentence]
        told = [
            f"{word}: {names[said[row]]}, not {names[targets[row]]}"
            for row, word in enumerate(words, start=first)
            if wrong[row]
        ]
        more = f"; {len(told) - WORDS_NAMED} more" if len(told) > WORDS_NAMED else ""
        yield int(sentence), "; ".join(told[:WORDS_NAMED]) + more
