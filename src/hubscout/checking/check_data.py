"""`check()`: what is wrong with this data?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from hubscout.checking.mislabelled import mislabelled
from hubscout.checking.samples import Looked, Samples, wrong_ending
from hubscout.errors import check_keywords, keywords
from hubscout.grouping import grouped
from hubscout.runs.data_check import DataCheck, Finding
from hubscout.tasks import Task, open_task
from hubscout.tasks.assembly import IMBALANCE, far_from_all_others, without_what_check_finds
from hubscout.tasks.image_folders import walk
from hubscout.tasks.images import is_image_name
from hubscout.tasks.kinds import kind_of

FEW = 10
"""A class with fewer samples in train is pointed out."""
MOST_SHOWN = 60
"""Groups of samples that a finding keeps."""
CHECKS: tuple[str, ...] = (
    "unreadable",
    "empty",
    "duplicates",
    "conflicts",
    "near-duplicates",
    "few-samples",
    "imbalance",
    "outliers",
    "endings",
)
NEAR = 0.12
"""The largest difference of two sketches, as a share of their contrast."""
_FLAT = 2.0
"""Sketches of less contrast, in grey levels, are of empty images, which are all alike."""
_PIECES = 8
_OWN_CHOICES = {"measure_latency"}
"""Arguments of `rank` that are not the caller's here."""
_MOST_IN_A_BUCKET = 200


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
        UnknownNameError: `rank` has no such option.

    Example:
        >>> check((["good", "bad", "good", "fine"] * 10, ["+", "-", "+", "+"] * 10))["duplicates"].count
        40

    """
    if options:
        from hubscout.features.options import ExtractionOptions
        from hubscout.ranking import rank

        check_keywords(options, {*keywords(check), *keywords(rank), *vars(ExtractionOptions())} - _OWN_CHOICES)
    opened = open_task(task)
    samples = Samples(opened)
    looked = Looked(samples)
    found = [*_inputs_alone(samples, looked), *_duplicates(samples, looked), *_classes(opened), *_outliers(samples)]
    found += _endings(samples)
    looked_for, notes = CHECKS, list(without_what_check_finds(opened.notes))
    if models:
        finding, note = mislabelled(opened, samples, models, limit=limit, most=MOST_SHOWN, **options)
        found += [finding] if finding is not None else []
        notes.append(note)
        looked_for += ("mislabelled",)
    else:
        notes.append("mislabelled samples were not looked for: that takes a model, such as models='small'")
    rows = {split: len(part) for split, part in opened.splits.items()}
    return DataCheck(task=opened.name, rows=rows, findings=tuple(found), looked_for=looked_for, notes=tuple(notes))


def _inputs_alone(samples: Samples, looked: Looked) -> Iterator[Finding]:
    if count := len(looked.problems):
        shown = []
        for number, problem in list(looked.problems.items())[:MOST_SHOWN]:
            sample = samples.describe(number, thumbnail=False)
            reason = problem.partition(". ")[0]  # in one sentence, which need not name the sample again
            shown.append((replace(sample, note=reason.partition(f"{sample.name} ")[2] or reason),))
        words = f"{_count(count, 'input')} cannot be read: replace or remove {'it' if count == 1 else 'them'}."
        yield Finding(name="unreadable", words=words, count=count, groups=tuple(shown))
    if count := len(looked.empty):
        words = (
            f"{_count(count, 'input')} {'is' if count == 1 else 'are'} empty: no model can tell a label from nothing."
        )
        groups = tuple((samples.describe(number),) for number in looked.empty[:MOST_SHOWN])
        yield Finding(name="empty", words=words, count=count, groups=groups)


def _duplicates(samples: Samples, looked: Looked) -> Iterator[Finding]:
    empty = {*looked.empty}  # named as that
    exact = equal_groups((number, digest) for number, digest in enumerate(samples.digests()) if number not in empty)
    first_of = {number: group[0] for group in exact for number in group}
    conflicts = [group for group in exact if len({samples.label(number) for number in group}) > 1]
    alike = near_groups(looked.sketches) if looked.sketches else equal_groups(looked.texts.items())
    near = [group for group in alike if len({first_of.get(number, number) for number in group}) > 1]
    for name, groups, what in (
        ("duplicates", exact, "occur more than once, exactly the same"),
        ("conflicts", conflicts, "are exactly the same and have different labels"),
        ("near-duplicates", near, "are nearly the same as others"),
    ):
        if not groups:
            continue
        splits = {tuple(group): {samples.places[number][0] for number in group} for group in groups}
        crossing = [group for group in groups if len(splits[tuple(group)]) > 1]
        count = sum(map(len, groups))
        words = f"{_count(count, 'input')} in {_count(len(groups), 'group')} {what}"
        if crossing:
            judged = sorted(set().union(*(splits[tuple(group)] for group in crossing)) - {"train"}, reverse=True)
            words += (
                f"; {_count(len(crossing), 'group')} of them {'are' if len(crossing) > 1 else 'is'} in more than one "
                f"split, so that scores on {' and '.join(judged)} are too good"
            )
        # Those across splits first: they do the most harm.
        chosen = [*crossing, *(group for group in groups if group not in set(crossing))][:MOST_SHOWN]
        shown = tuple(tuple(samples.describe(number) for number in group[:8]) for group in chosen)
        yield Finding(name=name, words=words + ".", count=count, groups=shown)


def _classes(task: Task) -> Iterator[Finding]:
    kind = kind_of(task.kind)
    if kind.is_real_valued:
        return
    counts = kind.target_counts(task.train.targets, len(task.target_names))
    named = sorted(zip(counts.tolist(), task.target_names, strict=True))
    few = [f"{name!r} {count:,}" for count, name in named if count < FEW]
    if few:
        listed = ", ".join(few[:8]) + (f" and {len(few) - 8} more" if len(few) > 8 else "")
        words = f"{kind.count_targets(len(few))} with fewer than {FEW} {kind.unit} in train: {listed}."
        yield Finding(name="few-samples", words=words, count=len(few))
    present = [(count, name) for count, name in named if count]
    if len(present) > 1 and present[-1][0] >= IMBALANCE * present[0][0]:
        (least, rare), (most, frequent) = present[0], present[-1]
        words = (
            f"{frequent!r} has {most:,} {kind.unit} in train and {rare!r} has {least:,}: {most / least:.0f} times as "
            "many. Look at the balanced accuracy, not only at the accuracy."
        )
        yield Finding(name="imbalance", words=words, count=1)


def _outliers(samples: Samples) -> Iterator[Finding]:
    task = samples.task
    if not kind_of(task.kind).is_real_valued:
        return
    numbers = np.concatenate([np.asarray(part.targets, dtype=float) for part in task.splits.values() if len(part)])
    far = far_from_all_others(numbers)
    if count := int(far.any(axis=1).sum()):
        columns = ", ".join(repr(task.target_names[column]) for column in np.flatnonzero(far.any(axis=0)))
        words = (
            f"{_count(count, 'sample')} with a number far from all others: {columns}. Squared errors see little else."
        )
        groups = tuple((samples.describe(int(row)),) for row in np.flatnonzero(far.any(axis=1))[:MOST_SHOWN])
        yield Finding(name="outliers", words=words, count=count, groups=groups)


def _endings(samples: Samples) -> Iterator[Finding]:
    if samples.task.modality != "image":
        return
    stored = enumerate(map(samples.stored, range(len(samples.places))))
    paths = {number: Path(value) for number, value in stored if isinstance(value, str | Path)}
    wrong = {number: ending for number, path in paths.items() if (ending := wrong_ending(path)) is not None}
    others: Counter[str] = Counter()
    source = samples.task.source or {}
    if source.get("constructor") == "from_image_folder":
        files = (file for file in walk(Path(source["arguments"]["folder"])) if not is_image_name(file))
        others.update(file.suffix.lower() or "no ending" for file in files)
    words = []
    if wrong:
        words.append(f"{_count(len(wrong), 'input')} are of another format than their names say")
    if others:
        listed = ", ".join(f"{count:,} {ending}" for ending, count in others.most_common(8))
        words.append(f"other files than images lie in the folder ({listed})")
    if words:
        shown = tuple((samples.describe(number, f"is {wrong[number]}"),) for number in list(wrong)[:MOST_SHOWN])
        sentence = "; ".join(words) + "."
        count = len(wrong) + sum(others.values())
        yield Finding(name="endings", words=sentence[0].upper() + sentence[1:], count=count, groups=shown)


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' if count != 1 else ''}"


def equal_groups(keys: Iterable[tuple[int, Hashable]]) -> list[tuple[int, ...]]:
    """Numbers whose keys are equal, two or more together.

    >>> equal_groups([(0, "a"), (1, "b"), (2, "a")])
    [(0, 2)]
    """
    found = grouped((key, number) for number, key in keys)
    return [tuple(numbers) for numbers in found.values() if len(numbers) > 1]


def near_groups(sketches: Mapping[int, np.ndarray]) -> list[tuple[int, ...]]:
    """Numbers whose sketches, of 16 × 16 grey pixels, are nearly the same, two or more together.

    Two are near duplicates when their sketches differ by little of their own contrast: another size, another
    compression, a little brighter. Groups are joined by any pair in them. Only pairs that share a piece of a hash of
    the sketch are compared, so that the work grows with the number of images and not with its square.
    """
    usable = {number: sketch for number, sketch in sketches.items() if sketch.std() > _FLAT}
    if len(usable) < 2:
        return []
    table = np.stack(list(usable.values()))
    flat = table.reshape(len(table), -1)
    contrast, centred = flat.std(axis=1), flat - flat.mean(axis=1, keepdims=True)
    pairs = [np.empty((2, 0), dtype=int)]
    for places in _buckets(table):
        for first, place in enumerate(places[:-1]):
            others = np.array(places[first + 1 :])
            difference = np.sqrt(((centred[others] - centred[place]) ** 2).mean(axis=1))
            near = others[difference <= NEAR * np.minimum(contrast[others], contrast[place])]
            pairs.append(np.stack([np.full_like(near, place), near]))
    ends = np.concatenate(pairs, axis=1)
    links = coo_array((np.ones(ends.shape[1]), tuple(ends)), shape=(len(table), len(table)))
    _, group = connected_components(links, directed=False)
    return equal_groups(zip(usable, group.tolist(), strict=True))


def _buckets(sketches: np.ndarray) -> list[tuple[int, ...]]:
    """Places that share a piece of their hash: which of two neighbouring pixels of an 8 × 8 sketch is brighter."""
    small = sketches.reshape(len(sketches), 8, 2, 8, 2).mean(axis=(2, 4))
    # A margin keeps pixels that are alike from being told apart by chance.
    margin = 0.05 * small.std(axis=(1, 2))[:, None, None]
    across = (small[:, :, 1:] > small[:, :, :-1] + margin).reshape(len(small), -1)
    down = (small[:, 1:, :] > small[:, :-1, :] + margin).reshape(len(small), -1)
    found: list[tuple[int, ...]] = []
    for bits in np.array_split(np.concatenate([across, down], axis=1), _PIECES, axis=1):
        alike = equal_groups(enumerate(row.tobytes() for row in np.packbits(bits, axis=1)))
        found += [places for places in alike if len(places) <= _MOST_IN_A_BUCKET]
    return found
