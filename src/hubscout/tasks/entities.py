"""Entities in tagged sentences, and F1 over them, as the CoNLL shared tasks score it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

OUTSIDE = "O"
_PREFIXED = re.compile(r"([BIESLU])-(.+)")
_OPENS, _CLOSES = frozenset("BSU"), frozenset("ESUL")


@dataclass(frozen=True)
class TagScheme:
    """What each tag says of entities, by its place among the task's target names.

    `type_of` (C,) numbers the types of entities, -1 for outside; `opens` and `closes` tell which tags begin one
    whatever stands before, and end one whatever comes after. `prefixed` is False for plain tags ("PER", not "B-PER").
    `types` are the names of the types.
    """

    type_of: np.ndarray
    opens: np.ndarray
    closes: np.ndarray
    prefixed: bool
    types: tuple[str, ...]

    def only(self, kind: int) -> TagScheme:
        """The scheme in which all other types of entities are outside."""
        return replace(self, type_of=np.where(self.type_of == kind, kind, -1))


def tag_scheme(names: Sequence[str]) -> TagScheme | None:
    """The scheme of a set of tags, None where they do not mark entities.

    Known are IOB1, IOB2, IOBES and BILOU, whose rules do not contradict one another, and plain tags beside an "O".
    Parts of speech are not entities: they have neither prefix nor "O".

    >>> tag_scheme(["B-PER", "I-PER", "O"]).type_of.tolist(), tag_scheme(["NOUN", "VERB"])
    ([0, 0, -1], None)
    """
    inside = [name for name in names if name != OUTSIDE]
    found = [_PREFIXED.fullmatch(name) for name in inside]
    prefixed = bool(inside) and all(found)
    if not prefixed and (OUTSIDE not in names or not inside):
        return None
    # A plain tag says as much as one with "I-": entities of a type that touch cannot be told apart.
    parts = {
        name: (match[1], match[2]) if prefixed and match else ("I", name)
        for name, match in zip(inside, found, strict=True)
    }
    types = sorted({kind for _, kind in parts.values()})
    return TagScheme(
        np.array([types.index(parts[name][1]) if name in parts else -1 for name in names]),
        np.array([name in parts and parts[name][0] in _OPENS for name in names]),
        np.array([name in parts and parts[name][0] in _CLOSES for name in names]),
        prefixed,
        tuple(types),
    )


def count_entities(guesses: np.ndarray, targets: np.ndarray, groups: np.ndarray, scheme: TagScheme) -> np.ndarray:
    """(sentences, 3): how many entities are found rightly, said, and true in each run of equal `groups`.

    Right is one of the same type from the same first to the same last word. Like the scripts of the shared tasks, an
    entity also begins where a tag of its type follows anything else, so that an "I-" without its "B-" counts.
    """
    edges = np.r_[True, np.diff(groups) != 0, True]
    sentence = np.cumsum(edges[:-1]) - 1
    said, true = (_last_words(tags, edges, scheme) for tags in (guesses, targets))
    same = (said == true) & (scheme.type_of[guesses] == scheme.type_of[targets])
    marks = ((said >= 0) & same, said >= 0, true >= 0)
    return np.stack([np.bincount(sentence[mark], minlength=sentence[-1] + 1) for mark in marks], axis=1)


def _last_words(tags: np.ndarray, edges: np.ndarray, scheme: TagScheme) -> np.ndarray:
    """For each word the place of the last word of the entity that begins there, -1 where none begins."""
    kinds = scheme.type_of[tags]
    border = edges.copy()
    border[1:-1] |= (kinds[1:] != kinds[:-1]) | scheme.opens[tags[1:]] | scheme.closes[tags[:-1]]
    inside = kinds >= 0
    last = np.full(len(tags), -1)
    last[border[:-1] & inside] = np.flatnonzero(border[1:] & inside)
    return last


def f1_of_counts(counts: np.ndarray) -> float:
    """Micro-averaged F1 out of the counts of any number of sentences; 0 where there is no entity at all.

    >>> f1_of_counts(np.array([[1, 2, 1], [0, 0, 1]]))
    0.5
    """
    right, said, true = counts.sum(axis=0)
    return float(2 * right / (said + true)) if said + true else 0.0
