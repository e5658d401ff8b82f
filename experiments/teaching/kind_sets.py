"""Sets of several labels, numbers, tags and pairs, made of the real sets that lie in the shared folder.

No set there has several labels for a sample. Those here are attributes that follow from the class, and samples that
are put together of two or four others and have the labels of all of them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import kept
import numpy as np
from data_sets import DATA, MODEL_OPTIONS, SETS, SICK, _parts, _table, open_set
from PIL import Image
from run import CACHE

from hubscout.tasks import Task
from hubscout.tasks.sequences import derived_fingerprint

ATTRIBUTES = {
    "T-shirt/top": ["top"],
    "Pullover": ["top", "long sleeves"],
    "Shirt": ["top", "long sleeves", "opens in front"],
    "Coat": ["top", "long sleeves", "opens in front", "outdoors"],
    "Dress": ["top", "below the waist"],
    "Trouser": ["below the waist", "pair"],
    "Sandal": ["shoe", "pair"],
    "Sneaker": ["shoe", "pair", "outdoors", "laces"],
    "Ankle boot": ["shoe", "pair", "outdoors"],
    "Bag": ["outdoors"],
}
ROWS = {"train": 1500, "validation": 400, "test": 1000}
"""At most: what 16 processes open and put together in seconds, and measure in less."""
TAGGED = 200
"""Sentences."""


def _attributes() -> Task:
    whole = open_set("fashion-mnist")

    def part(name: str) -> tuple[list[Any], list[list[str]]]:
        split = whole.splits[name]
        rows = range(len(split))[: ROWS[name]]  # they stand in a random order
        return [split.inputs[k] for k in rows], [ATTRIBUTES[whole.target_names[split.targets[k]]] for k in rows]

    return _task("fashion-attributes", part)


def _together(name: str, size: int, join: Callable[[Sequence[Any]], Any], names: Callable[[str], list[str]]) -> Task:
    """Samples of `size` others of a set of classes, with the labels of all."""
    whole = open_set(name)

    def part(split_name: str) -> tuple[list[Any], list[list[str]]]:
        split = whole.splits[split_name]
        orders = [np.random.default_rng(seed).permutation(len(split)) for seed in range(size)]
        groups = np.concatenate([order[: len(order) // size * size].reshape(-1, size) for order in orders])
        groups = groups[: ROWS[split_name]]
        inputs = [join([split.inputs[k] for k in group]) for group in groups]
        told = [[whole.target_names[split.targets[k]] for k in group] for group in groups]
        return inputs, [sorted({label for one in group for label in names(one)}) for group in told]

    folder = CACHE / "kept" / "together"
    return _task(f"{name}-together", lambda split: kept.once(folder / f"{name}-{split}.pickle", partial(part, split)))


def _task(name: str, part: Callable[[str], tuple[list[Any], list[list[str]]]]) -> Task:
    parts = {split: part(split) for split in ("train", "validation", "test")}
    return Task.from_arrays(
        *parts["train"], validation=parts["validation"], test=parts["test"], kind="multilabel", name=name
    )


def _image(one: Any) -> Image.Image:
    opened = one if isinstance(one, Image.Image) else Image.open(io.BytesIO(one) if isinstance(one, bytes) else one)
    return opened.convert("RGB")


def _tiled(images: Sequence[Any]) -> Image.Image:
    """Four images of 32 pixels in a square of 64."""
    whole = Image.new("RGB", (64, 64))
    for k, one in enumerate(images):
        whole.paste(_image(one).resize((32, 32)), (32 * (k % 2), 32 * (k // 2)))
    return whole


def _side_by_side(images: Sequence[Any]) -> Image.Image:
    """The middle halves of two images in a square of 160 pixels."""
    whole = Image.new("RGB", (160, 160))
    for k, one in enumerate(images):
        whole.paste(_image(one).resize((160, 160)).crop((40, 0, 120, 160)), (80 * k, 0))
    return whole


def _breed_and_species(breed: str) -> list[str]:
    """In the names of the set cats are capitalised."""
    return [breed, "cat" if breed[0].isupper() else "dog"]


def _only(label: str) -> list[str]:
    return [label]


def _fewer(make: Callable[[], Task]) -> Task:
    """Validation and test cut to `ROWS`."""
    task = make()
    generator = np.random.default_rng(0)
    fewer = {
        name: task.splits[name].take(np.sort(generator.permutation(len(task.splits[name]))[: ROWS[name]]))
        for name in ("validation", "test")
    }
    fingerprint = derived_fingerprint(task.fingerprint, rows=ROWS)
    return replace(task, splits={**task.splits, **fewer}, fingerprint=fingerprint)


def _tags(column: int, scheme: str, name: str) -> Task:
    """200 sentences to train with, and of the others those that have no tag which these have not."""
    task = Task.from_conll(DATA / "text" / "conll2003", column=column, scheme=scheme, name=name).subset(TAGGED)
    known = np.unique(np.concatenate(task.train.targets))
    parts = {
        part: split.take(np.flatnonzero([np.isin(tags, known).all() for tags in split.targets]))
        for part, split in task.splits.items()
    }
    return _fewer(lambda: replace(task, splits=parts, fingerprint=derived_fingerprint(task.fingerprint, known=TAGGED)))


KIND_SETS: dict[str, Callable[[], Task]] = {
    "fashion-attributes": _attributes,
    "cifar10-tiles": partial(_together, "cifar10", 4, _tiled, _only),
    "pets-pairs": partial(_together, "pets", 2, _side_by_side, _breed_and_species),
    "trec-pairs": partial(_together, "trec", 2, " ".join, _only),
    "agnews-pairs": partial(_together, "agnews", 2, " ".join, _only),
    "sign-number": partial(_table, "sign-digits.parquet", label="label", kind="regression", name="sign-number"),
    "few-sprites": partial(_fewer, SETS["sprites"]),
    "few-sick": partial(_fewer, SICK),
    "few-sick-siamese": partial(_fewer, SICK),
    "sick-entailment": partial(_fewer, partial(_parts, "sick", text=["sentence_A", "sentence_B"], label="entailment")),
    "chunks": partial(_tags, 2, "types", "chunks"),
    "speech": partial(_tags, 1, "keep", "speech"),
    "entities": partial(_tags, 3, "iob2", "entities"),
}


def register() -> None:
    """Make `open_set` know these sets."""
    SETS.update(KIND_SETS)
    MODEL_OPTIONS["few-sick-siamese"] = MODEL_OPTIONS["sick-entailment"] = {"pairs": "siamese"}
