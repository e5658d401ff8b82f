"""`check()`: what is wrong with this data?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hubscout.checking.mislabelled import mislabelled
from hubscout.checking.samples import Looked, Samples, wrong_ending
from hubscout.runs.data_check import DataCheck, Finding
from hubscout.tasks import Task, open_task
from hubscout.tasks.assembly import IMBALANCE
from hubscout.tasks.image_folders import walk
from hubscout.tasks.images import is_image_name
from hubscout.tasks.kinds import kind_of

FEW = 10
"""A class with fewer samples in train is pointed out."""
MOST_SHOWN = 60
"""Groups of samples that a finding keeps."""


def check(task: Any, models: Any = (), *, limit: int | str | None = None, **options: Any) -> DataCheck:
    """Look at labelled data: what cannot be read, what occurs twice, which classes are small, which labels are odd.

    Args:
        task: the data, or what `hubscout.open_task` opens.
        models: models as for `rank`. The best of them says which samples, or for tags which words, are probably
            mislabelled: those that all others predict to be something else. Without models, nobody says.
        limit: rank the models on so many train samples, such as 2000 or "2k"; mislabelled ones are looked for there.
        options: of `rank`, such as `device`.

    Returns:
        The findings: `findings`, `to_frame()`, `report("check.html")`.

    Raises:
        TaskError: the data cannot be opened.

    Example:
        >>> check((["good", "bad", "good", "fine"] * 10, ["+", "-", "+", "+"] * 10))["duplicates"].count
        40

    """
    opened = open_task(task)
    samples = Samples(opened)
    looked = Looked(samples)
    found = [
        _unreadable(samples, looked),
        _empty(samples, looked),
        *_duplicates(samples, looked),
        *_classes(opened),
        *_endings(opened, samples),
    ]
    looked_for = [
        "unreadable",
        "empty",
        "duplicates",
        "conflicts",
        "near-duplicates",
        "few-samples",
        "imbalance",
        "endings",
    ]
    notes = list(opened.notes)
    if models:
        finding, note = mislabelled(opened, samples, models, limit=limit, most=MOST_SHOWN, **options)
        found.append(finding)
        notes.append(note)
        looked_for.append("mislabelled")
    else:
        notes.append("mislabelled samples were not looked for: that takes a model")
    return DataCheck(
        task=opened.name,
        rows={split: len(part) for split, part in opened.splits.items()},
        findings=tuple(finding for finding in found if finding is not None),
        looked_for=tuple(looked_for),
        notes=tuple(notes),
    )


def _unreadable(samples: Samples, looked: Looked) -> Finding | None:
    if not looked.problems:
        return None
    shown = list(looked.problems.items())[:MOST_SHOWN]
    return Finding(
        name="unreadable",
        words=f"{_inputs(len(looked.problems))} cannot be read.",
        count=len(looked.problems),
        groups=tuple((samples.describe(number, reason, thumbnail=False),) for number, reason in shown),
    )


def _empty(samples: Samples, looked: Looked) -> Finding | None:
    if not looked.empty:
        return None
    count = len(looked.empty)
    return Finding(
        name="empty",
        words=f"{_inputs(count)} {'is' if count == 1 else 'are'} empty: no model can tell a label from nothing.",
        count=count,
        groups=tuple((samples.describe(number),) for number in looked.empty[:MOST_SHOWN]),
    )


def _duplicates(samples: Samples, looked: Looked) -> list[Finding | None]:
    exact = equal_groups(enumerate(samples.digests()))
    first_of = {number: group[0] for group in exact for number in group}
    conflicts = [group for group in exact if len({samples.label(number) for number in group}) > 1]
    alike = near_groups(looked.sketches) if looked.sketches else equal_groups(looked.texts)
    near = [group for group in alike if len({first_of.get(number, number) for number in group}) > 1]
    return [
        _finding(samples, "duplicates", exact, "occur more than once, exactly the same"),
        _finding(samples, "conflicts", conflicts, "are exactly the same and have different labels"),
        _finding(samples, "near-duplicates", near, "are nearly the same as others"),
    ]


def _finding(samples: Samples, name: str, groups: Sequence[tuple[int, ...]], what: str) -> Finding | None:
    if not groups:
        return None
    crossing = [group for group in groups if len({samples[number][0] for number in group}) > 1]
    count = sum(len(group) for group in groups)
    words = f"{_inputs(count)} in {_groups(len(groups))} {what}"
    if crossing:
        words += (
            f"; {_groups(len(crossing))} of them {'are' if len(crossing) > 1 else 'is'} in more than one split, so "
            "that a score on test is too good"
        )
    # Those across splits first: they do the most harm.
    chosen = [*crossing, *(group for group in groups if group not in set(crossing))][:MOST_SHOWN]
    shown = tuple(tuple(samples.describe(number) for number in group[:8]) for group in chosen)
    return Finding(name=name, words=words + ".", count=count, groups=shown)


def _classes(task: Task) -> list[Finding | None]:
    kind = kind_of(task.kind)
    if kind.is_real_valued:
        return []
    counts = kind.target_counts(task.train.targets, len(task.target_names))
    named = sorted(zip(counts.tolist(), task.target_names, strict=True))
    few = [f"{name!r} {count:,}" for count, name in named if count < FEW]
    found: list[Finding | None] = []
    if few:
        listed = ", ".join(few[:8]) + (f" and {len(few) - 8} more" if len(few) > 8 else "")
        words = f"{kind.count_targets(len(few))} with fewer than {FEW} {kind.unit} in train: {listed}."
        found.append(Finding(name="few-samples", words=words, count=len(few)))
    present = [(count, name) for count, name in named if count]
    if len(present) > 1 and present[-1][0] >= IMBALANCE * present[0][0]:
        (least, rare), (most, frequent) = present[0], present[-1]
        words = (
            f"{frequent!r} has {most:,} {kind.unit} in train and {rare!r} has {least:,}: {most / least:.0f} times as "
            "many. Look at the balanced accuracy, not only at the accuracy."
        )
        found.append(Finding(name="imbalance", words=words, count=1))
    return found


def _endings(task: Task, samples: Samples) -> list[Finding | None]:
    if task.modality != "image":
        return []
    paths = {number: path for number in range(len(samples)) if (path := _path(samples.stored(number))) is not None}
    wrong = {number: ending for number, path in paths.items() if (ending := wrong_ending(path)) is not None}
    others: Counter[str] = Counter()
    source = task.source or {}
    if source.get("constructor") == "from_image_folder":
        files = (file for file in walk(Path(source["arguments"]["folder"])) if not is_image_name(file))
        others.update(file.suffix.lower() or "no ending" for file in files)
    if not wrong and not others:
        return []
    words = []
    if wrong:
        words.append(f"{_inputs(len(wrong))} are of another format than their names say")
    if others:
        listed = ", ".join(f"{count:,} {ending}" for ending, count in others.most_common(8))
        words.append(f"other files than images lie in the folder ({listed})")
    shown = tuple((samples.describe(number, f"is {wrong[number]}"),) for number in list(wrong)[:MOST_SHOWN])
    count = len(wrong) + sum(others.values())
    sentence = "; ".join(words) + "."
    return [Finding(name="endings", words=sentence[0].upper() + sentence[1:], count=count, groups=shown)]


def _path(value: Any) -> Path | None:
    return Path(value) if isinstance(value, str | Path) else None


def _inputs(count: int) -> str:
    return f"{count:,} input{'s' if count != 1 else ''}"


def _groups(count: int) -> str:
    return f"{count:,} group{'s' if count != 1 else ''}"


NEAR = 0.12
"""The largest difference of two sketches, as a share of their contrast."""
_FLAT = 2.0
"""Sketches of less contrast, in grey levels, are of empty images, which are all alike."""
_PIECES = 8
_MOST_IN_A_BUCKET = 200


def equal_groups(keys: Mapping[int, Hashable] | Iterable[tuple[int, Hashable]]) -> list[tuple[int, ...]]:
    """Numbers whose keys are equal, two or more together.

    >>> equal_groups({0: "a", 1: "b", 2: "a"})
    [(0, 2)]
    """
    found: dict[Hashable, list[int]] = defaultdict(list)
    for number, key in keys.items() if isinstance(keys, Mapping) else keys:
        found[key].append(number)
    return [tuple(numbers) for numbers in found.values() if len(numbers) > 1]


def near_groups(sketches: Mapping[int, np.ndarray]) -> list[tuple[int, ...]]:
    """Numbers whose sketches are nearly the same, two or more together; groups are joined by any pair in them."""
    usable = {number: sketch for number, sketch in sketches.items() if sketch.std() > _FLAT}
    if len(usable) < 2:
        return []
    numbers = np.array(list(usable))
    flat = np.stack([sketch.ravel() for sketch in usable.values()])
    contrast = flat.std(axis=1)
    centred = flat - flat.mean(axis=1, keepdims=True)
    parent = list(range(len(numbers)))

    def root(place: int) -> int:
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    for places in _buckets(np.stack(list(usable.values()))):
        for first, place in enumerate(places[:-1]):
            others = np.array(places[first + 1 :])
            difference = np.sqrt(((centred[others] - centred[place]) ** 2).mean(axis=1))
            for other in others[difference <= NEAR * np.minimum(contrast[others], contrast[place])]:
                parent[root(int(other))] = root(place)
    return equal_groups((int(number), root(place)) for place, number in enumerate(numbers))


def _buckets(sketches: np.ndarray) -> list[list[int]]:
    """Places that share a piece of their hash: which of two neighbouring pixels of an 8 × 8 sketch is brighter."""
    small = sketches.reshape(len(sketches), 8, 2, 8, 2).mean(axis=(2, 4))
    # A margin keeps pixels that are alike from being told apart by chance.
    margin = 0.05 * small.std(axis=(1, 2))[:, None, None]
    across = (small[:, :, 1:] > small[:, :, :-1] + margin).reshape(len(small), -1)
    down = (small[:, 1:, :] > small[:, :-1, :] + margin).reshape(len(small), -1)
    bits = np.concatenate([across, down], axis=1)
    found: list[list[int]] = []
    for piece in np.array_split(np.arange(bits.shape[1]), _PIECES):
        packed = np.packbits(bits[:, piece], axis=1)
        groups: dict[bytes, list[int]] = defaultdict(list)
        for place, row in enumerate(packed):
            groups[row.tobytes()].append(place)
        found += [places for places in groups.values() if 1 < len(places) <= _MOST_IN_A_BUCKET]
    return found
