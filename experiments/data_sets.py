"""The real data sets of the shared folder as tasks; its `data/README.md` says where each comes from.

The folder is $HUBSCOUT_SHARED, by default `../shared` beside the repository. All splits are fixed: where a set has no
validation part, a tenth of train is split off with seed 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np
from shared_hub import SHARED

from hubscout.tasks import Task

DATA = SHARED / "data"


def _table(file: str, **options: object) -> Task:
    return Task.from_table(DATA / file, **options)


def _pets(label: str) -> Task:
    files = {part: DATA / "pets" / f"pets-{part}.parquet" for part in ("train", "test")}
    return Task.from_table(files, label=label, name="pets")


def _parts(folder: str, **options: object) -> Task:
    """A folder with one CSV a split."""
    files = {file.stem: file for file in sorted((DATA / "text" / folder).glob("*.csv"))}
    return Task.from_table(files, name=folder, **options)


CLASSIFICATION: dict[str, Callable[[], Task]] = {
    "pets": partial(_pets, "breed"),
    "cifar10": partial(_table, "cifar10-5k.parquet", label="label", name="cifar10"),
    "fashion-mnist": partial(_table, "fashion-mnist-5k.parquet", label="label", name="fashion-mnist"),
    "sign-digits": partial(_table, "sign-digits.parquet", label="label", kind="classification", name="sign-digits"),
    "omniglot": partial(_table, "omniglot-small.parquet", label="alphabet", name="omniglot"),
}
REGRESSION: dict[str, Callable[[], Task]] = {
    "sprites": partial(
        _table, "sprites-6k.parquet", label=["scale", "orientation", "x", "y"], kind="regression", name="sprites"
    ),
    "pet-heads": partial(
        _table,
        "pets/pets-train.parquet",
        label=["box_x", "box_y", "box_w", "box_h"],
        kind="regression",
        split="box_split",
        name="pet-heads",
    ),
}
SICK = partial(_parts, "sick", text=["sentence_A", "sentence_B"], label="relatedness", kind="regression")
TEXT: dict[str, Callable[[], Task]] = {
    "sst2": partial(_parts, "sst2", text="text", label="label"),
    "trec": partial(_parts, "trec", text="text", label="label"),
    "agnews": partial(_table, "text/agnews.csv.gz", text="text", label="label", split="split", name="agnews"),
    "cr": partial(_table, "text/cr.csv", text="text", label="label", split="split", name="cr"),
    "sick": SICK,
    "sick-siamese": SICK,
    "conll2003": lambda: Task.from_conll(DATA / "text" / "conll2003", name="conll2003"),
}
MODEL_OPTIONS: dict[str, dict[str, str]] = {"sick-siamese": {"pairs": "siamese"}}
"""Options that the models have on a set: here, to read the two sentences apart instead of together."""
SETS = {**CLASSIFICATION, **REGRESSION, **TEXT}


@cache
def open_set(name: str) -> Task:
    """The task of that name; opened once a process."""
    return SETS[name]()


def smaller(task: Task, rows: int, seed: int = 0) -> Task:
    """At most so many rows of every split, drawn at random; `Task.subset` cuts train alone. Train has every class."""
    generator = np.random.default_rng(seed)
    parts = {}
    for name, split in task.splits.items():
        order = generator.permutation(len(split))
        targets = np.asarray(split.targets) if name == "train" and task.kind == "classification" else np.zeros(0)
        if len(targets) and len(np.unique(targets[order[:rows]])) < len(task.target_names):
            firsts = order[np.unique(targets[order], return_index=True)[1]]
            order = np.concatenate([firsts, order[~np.isin(order, firsts)]])
        kept = split.take(np.sort(order[:rows]))
        parts[name] = (list(kept.inputs), kept.targets)
    return Task.from_arrays(
        *parts["train"],
        validation=parts["validation"],
        test=parts["test"],
        kind=task.kind,
        modality=task.modality,
        target_names=task.target_names,
        name=task.name,
    )


def results_folder(script: str) -> Path:
    """`results/` beside a script."""
    folder = Path(script).resolve().parent / "results"
    folder.mkdir(exist_ok=True)
    return folder
