"""The last steps of every constructor: rows without a label, splits, checks, the fingerprint, and what was done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from hubscout.errors import TaskError, shortened
from hubscout.grouping import grouped
from hubscout.tasks.kinds import Kind, TaskKind, kind_of
from hubscout.tasks.labels import as_number
from hubscout.tasks.sequences import fingerprints
from hubscout.tasks.splitting import SPLIT_NAMES, check_fraction, split_off
from hubscout.tasks.task import Modality, Split, Task

IMBALANCE = 10
"""A largest class of so many times the samples of the smallest is pointed out."""
IMBALANCED = "imbalanced: "
CHECK_NAMES_THEM = "(hubscout check names them)"
FAR = 100
"""A number that is so many times the middle half's width from the median is pointed out."""
MODALITIES: tuple[str, ...] = ("image", "text", "text-pair", "tokens", "audio", "array")


def check_fit(kind: str, modality: str) -> None:
    """Tags go with words, and words with tags."""
    if kind_of(kind).rows_are_words != (modality == "tokens"):
        raise TaskError(f"Tagging goes with lists of words, and they with tagging; {kind} of {modality} was asked for.")


def opened_by(constructor: str, arguments: Mapping[str, Any], **resolved: Any) -> dict[str, Any]:
    """The `source` of a task: a constructor and the arguments to call it with again; `resolved` ones are absolute."""
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in arguments.items()}
    return {"constructor": constructor, "arguments": {**plain, **resolved}}


def unlabelled_rows(labels: Mapping[str, Sequence[Any]], kind: str, notes: list[str]) -> dict[str, np.ndarray]:
    """For each split where -1 means "no label", a mask of the rows that have it.

    Benchmarks mark rows so whose labels are not given away, as in the test splits of GLUE. It is such a mark where all
    other labels are numbers of 0 or more and train has no -1. In regression, where -1 may be a measurement, a whole
    split must consist of it. Where train has it, it is a class of its own beside 1 (the labels -1 and 1), and refused
    beside others, for there it may be either.

    >>> unlabelled_rows({"train": [0, 1], "test": [-1, -1]}, "classification", [])
    {'test': array([ True,  True])}
    >>> unlabelled_rows({"train": [-1, 1], "test": [-1, 1]}, "classification", [])
    {}
    """
    asked = kind_of(kind)
    if asked.has_label_sets or asked.rows_are_words:
        return {}
    numbers = {part: _numbers(values) for part, values in labels.items()}
    known = {part: values[~np.isnan(values)] for part, values in numbers.items() if values is not None}
    # Beside other negative numbers, -1 is a number like them.
    if len(known) < len(numbers) or any((values[values != -1] < 0).any() for values in known.values()):
        return {}
    marked = {part: values == -1 for part, values in numbers.items() if values is not None}
    train = known.get("train", np.empty(0))
    if (train == -1).any():
        if not asked.is_real_valued:
            _check_train(train)
        return {}
    if asked.is_real_valued:
        marked = {part: rows for part, rows in marked.items() if len(known[part]) and (known[part] == -1).all()}
    marked = {part: rows for part, rows in marked.items() if rows.any()}
    for part, rows in marked.items():
        notes.append(
            f"{rows.sum():,} of {len(rows):,} rows in {part} have the label -1, which train does not have: they count "
            "as unlabelled and are left out"
        )
    return marked


def _check_train(train: np.ndarray) -> None:
    if set(train) == {-1.0, 1.0}:
        return
    others = sorted({int(value) for value in train} - {-1})
    beside = f"beside {', '.join(map(str, others[:5]))}{', …' if len(others) > 5 else ''}" if others else "in all rows"
    raise TaskError(
        f"Train has the label -1 {beside}. It may mark rows without a label, or be a class. Leave the label of such "
        "rows empty (they are then left out), or give the class a name, such as 'negative'."
    )


def _numbers(values: Sequence[Any]) -> np.ndarray | None:
    """Labels as floats, NaN where one is missing; None where some are not numbers."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return values.astype(np.float64) if values.ndim == 1 else None
    numbers = []
    for value in values:
        if (number := as_number(value)) is None:
            return None
        numbers.append(number)
    return np.array(numbers)


def assemble(
    *,
    name: str,
    kind: str,
    modality: str,
    target_names: Sequence[str],
    splits: Mapping[str, Split],
    notes: Sequence[str] = (),
    source: Mapping[str, Any] | None = None,
    validation_size: float = 0.1,
    test_size: float = 0.2,
    seed: int = 0,
    group: str | None = None,
    group_guessed: bool = False,
) -> Task:
    """A task with all three splits. `splits` has `train` at least; the sizes are fractions of the rows it then has.

    `group` is the column that the groups of `splits` come from. One that was guessed divides nothing: it is said if
    rows of one group are in several splits.
    """
    asked = kind_of(kind)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise TaskError(f"seed must be a whole number, 0 or more; it was {seed!r}.")
    said = list(notes)
    parts = {split: splits[split] for split in SPLIT_NAMES if split in splits and len(splits[split])}
    if "train" not in parts:
        found = ", ".join(f"{split} ({len(part)} rows)" for split, part in splits.items()) or "nothing"
        raise TaskError(f"{name}: no rows to train on; found {found}. Models are ranked on the train split.")
    for split, part in parts.items():
        if len(part.inputs) != len(part.targets):
            raise TaskError(f"{name}: {split} has {len(part.inputs)} inputs but {len(part.targets)} targets.")
        asked.check_lengths(part.inputs, part.targets, split)
    sizes = {"test": test_size, "validation": validation_size}
    parts = _complete(parts, asked, said, sizes, seed=seed, groups_decide=not group_guessed)
    if group is not None:
        parts = _say_divided_groups(parts, group, said, guessed=group_guessed)
    if asked.is_real_valued:
        target_names, parts = _varying(name, target_names, parts, said)
    _check_targets(name, asked, target_names, parts, said)
    if modality in {"text", "text-pair", "tokens"}:
        _count_empty(parts, said)
    seen: dict[bytes, Counter[str]] = {}
    fingerprint, of_inputs = fingerprints(kind, modality, target_names, parts, seen)
    _say_duplicates(seen, said)
    return Task(
        name=name,
        kind=cast(Kind, kind),
        modality=cast(Modality, modality),
        target_names=tuple(str(target) for target in target_names),
        splits={split: replace(part, fingerprint=of_inputs[split]) for split, part in parts.items()},
        fingerprint=fingerprint,
        notes=tuple(said),
        source=None if source is None else {**source, "fingerprint": fingerprint},
    )


def _complete(
    given: Mapping[str, Split],
    kind: TaskKind,
    notes: list[str],
    sizes: Mapping[str, float],
    *,
    seed: int,
    groups_decide: bool,
) -> dict[str, Split]:
    """Split off train what the data does not have: test first, then validation."""
    fractions = {split: check_fraction(f"{split}_size", size) for split, size in sizes.items()}
    missing = [split for split in fractions if split not in given]
    if sum(fractions[split] for split in missing) >= 1:
        raise TaskError("test_size and validation_size together must leave rows for train: their sum must be below 1.")
    parts = dict(given)
    whole = len(parts["train"])
    for split in missing:
        train = parts["train"]
        wanted = round(whole * fractions[split])
        if fractions[split] and not wanted and len(train) > 1:
            wanted = 1
        groups = train.groups if groups_decide else None
        stay, taken = split_off(kind.strata(train.targets), wanted, seed, groups)
        parts["train"], parts[split] = train.take(stay), train.take(taken)
        how = ("shuffled" if kind.is_real_valued else "stratified") + (", whole groups" if groups is not None else "")
        notes.append(
            f"no {split} split in the data: {len(taken):,} of {whole:,} rows split off train ({how}, seed {seed})"
        )
        if fractions[split] and not len(taken):
            why = "every class has a single row, and train keeps it"
            if groups is not None:
                why = "the groups are too large or too few to take one that leaves train rows of every class"
            notes.append(f"{split} is empty: {why}")
    return {split: parts[split] for split in SPLIT_NAMES}


def _say_divided_groups(
    parts: Mapping[str, Split], column: str, notes: list[str], *, guessed: bool
) -> dict[str, Split]:
    """Say which groups are in train and in another split, and take groups that nobody named out of the splits."""
    train = np.unique(np.asarray(parts["train"].groups))
    for split in ("test", "validation"):
        groups = np.unique(np.asarray(parts[split].groups))
        if not (crossing := len(np.intersect1d(train, groups))):
            continue
        told = f"column {column!r}: {crossing:,} of its {len(groups):,} values in {split} are in train too"
        notes.append(
            f"{told}. If samples with one value come from one source (a patient, a user), a score on {split} is too "
            f"good: say group={column!r} to keep them together where rows are split off"
            if guessed
            else f"{told}, by the data's own splits: a score on {split} says little of new ones"
        )
        break
    return {split: replace(part, groups=None) for split, part in parts.items()} if guessed else dict(parts)


def _check_targets(
    name: str, kind: TaskKind, target_names: Sequence[str], parts: Mapping[str, Split], notes: list[str]
) -> None:
    if not target_names:
        raise TaskError(f"{name}: there are no labels at all.")
    targets = parts["train"].targets
    if kind.is_real_valued:
        train = np.asarray(targets)
        for split, part in parts.items():
            matrix = np.asarray(part.targets).reshape(-1, train.shape[1])
            far = far_from_all_others(matrix, train)
            for column in np.flatnonzero(far.any(axis=0)).tolist():
                low, high = np.quantile(train[:, column], [0.25, 0.75])
                count, values = int(far[:, column].sum()), matrix[far[:, column], column]
                notes.append(
                    f"far from all others: {count:,} of {len(matrix):,} numbers of {target_names[column]!r} in "
                    f"{split}, such as {values[0]:.6g} (half of train is from {low:.6g} to {high:.6g}). Squared errors "
                    "see little else: are they right?"
                )
        return
    counts = kind.target_counts(targets, len(target_names))
    if kind.has_classes and np.count_nonzero(counts) < 2:
        only = target_names[int(np.argmax(counts))]
        raise TaskError(
            f"{name}: train has the one class {only!r}, and a task needs two or more. "
            "Check the labels, or that the path is the folder above the class folders."
        )
    alike = grouped((target.casefold(), target) for target in target_names)
    if same := next((names for names in alike.values() if len(names) > 1), None):
        notes.append(f"labels that differ in capital letters alone are different ones: {', '.join(map(repr, same))}")
    for few, what in enumerate(("not in train, though in another split", "a single example in train")):
        if named := [target for target, count in zip(target_names, counts, strict=True) if count == few]:
            notes.append(f"{what}: {shortened(map(repr, named), most=5)}")
    if not kind.rows_are_words and max(counts) >= IMBALANCE * max(min(counts[counts > 0], default=1), 1):
        frequent = target_names[int(np.argmax(counts))]
        notes.append(
            f"{IMBALANCED}{frequent!r} has {max(counts) / min(counts[counts > 0]):.0f} times the samples of the rarest"
        )


def without_what_check_finds(notes: Sequence[str]) -> tuple[str, ...]:
    """The notes but for those on faults that `hubscout check` tells of itself, in full.

    >>> without_what_check_finds(["imbalanced: 'a' has 12 times the samples of the rarest", "kind guessed"])
    ('kind guessed',)
    """
    return tuple(note for note in notes if not note.startswith(IMBALANCED) and CHECK_NAMES_THEM not in note)


def _varying(
    name: str, target_names: Sequence[str], parts: Mapping[str, Split], notes: list[str]
) -> tuple[Sequence[str], dict[str, Split]]:
    """The columns of numbers that are not the same in all of train, and the splits with these."""
    matrix = np.asarray(parts["train"].targets)
    varies = np.ptp(matrix, axis=0) > 0
    if varies.all():
        return target_names, dict(parts)
    constant = [column for column, kept in zip(target_names, varies, strict=True) if not kept]
    if not varies.any():
        raise TaskError(
            f"{name}: {shortened(map(repr, constant), most=5)} has the one value {matrix[0, 0]:g} in all of train, so "
            "that there is nothing to learn. Check which column the labels are in."
        )
    notes.append(
        f"left out, since it is the same in all of train and nothing can be learnt of it: "
        f"{shortened(map(repr, constant), most=5)}"
    )
    kept_names = [column for column, kept in zip(target_names, varies, strict=True) if kept]
    return kept_names, {
        split: replace(part, targets=np.asarray(part.targets)[:, varies]) for split, part in parts.items()
    }


def far_from_all_others(numbers: np.ndarray, usual: np.ndarray | None = None) -> np.ndarray:
    """Which of (n, C) numbers are so far out that they decide a squared error alone; none of a column of few values.

    `usual` are the numbers that they are far from, where these are others.

    >>> far_from_all_others(np.array([[1.0], [2.0], [3.0], [2.0], [1e6]])).ravel().tolist()
    [False, False, False, False, True]
    """
    low, middle, high = np.quantile(numbers if usual is None else usual, [0.25, 0.5, 0.75], axis=0)
    return (np.abs(numbers - middle) > FAR * (high - low)) & (high > low)


def _count_empty(parts: Mapping[str, Split], notes: list[str]) -> None:
    """Empty inputs stay, for a row left out of test would change the result that is reported; they are counted."""
    for split, part in parts.items():
        empty = 0
        for value in part.inputs:
            pieces = value if isinstance(value, tuple) else (value,)
            empty += any(not (piece.strip() if isinstance(piece, str) else piece) for piece in pieces)
        if empty:
            notes.append(f"{empty:,} of {len(part):,} inputs in {split} are empty; they are kept")


def _say_duplicates(seen: Mapping[bytes, Counter[str]], notes: list[str]) -> None:
    """Inputs that are exactly the same: a score on test is too good where train has them too."""
    again = sum(sum(counts.values()) - 1 for counts in seen.values())
    crossing = sum(counts["test"] for counts in seen.values() if counts["train"])
    if again:
        across = f", and {crossing:,} of test {'is' if crossing == 1 else 'are'} in train too" if crossing else ""
        told = "input occurs" if again == 1 else "inputs occur"
        notes.append(f"{again:,} {told} again, exactly the same{across} {CHECK_NAMES_THEM}")
