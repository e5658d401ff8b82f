"""F1 over entities: against hand-counted sentences and against a plain reading of the shared task's rules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubscout.errors import InputError
from hubscout.tasks import task_metrics
from hubscout.tasks.entities import count_entities, f1_of_counts, tag_scheme
from hubscout.tasks.task_metrics import Outcome


def entity_f1(said: str, true: str) -> float:
    """F1 of sentences of tags: words are split by spaces, sentences by bars."""
    names = sorted({*said.replace("|", " ").split(), *true.replace("|", " ").split(), "O"})
    lengths = [len(sentence.split()) for sentence in true.split("|")]
    groups = np.repeat(np.arange(len(lengths)), lengths)
    guesses, targets = ([names.index(tag) for tag in tags.replace("|", " ").split()] for tags in (said, true))
    predicted = np.eye(len(names))[guesses]
    return Outcome("tagging", predicted, np.array(targets), groups, names).values()["entity_f1"]


@pytest.mark.parametrize(
    ("said", "true", "expected"),
    [
        ("B-PER I-PER O B-LOC", "B-PER I-PER O B-LOC", 1.0),
        ("B-PER O O B-LOC", "B-PER I-PER O B-LOC", 0.5),  # a part of an entity is not the entity
        ("B-LOC I-LOC O B-LOC", "B-PER I-PER O B-LOC", 0.5),  # nor is one of another type
        ("O O O O", "B-PER I-PER O B-LOC", 0.0),
        ("B-PER I-PER I-PER", "B-PER I-PER B-PER", 0.0),  # B- parts two that touch
        ("I-PER I-PER O", "B-PER I-PER O", 1.0),  # IOB1: I- alone begins one
        ("I-PER B-PER I-PER", "I-PER B-PER O", 0.5),  # IOB1: B- only between two of a type
        ("I-PER I-LOC", "B-PER B-LOC", 1.0),  # another type begins another
        ("B-PER E-PER S-LOC O", "B-PER E-PER S-LOC O", 1.0),
        ("B-PER E-PER S-LOC S-LOC", "B-PER E-PER S-LOC O", 0.8),
        ("B-PER I-PER I-PER O", "B-PER I-PER E-PER O", 1.0),  # what is not closed ends where it ends
        ("B-PER L-PER U-LOC U-LOC", "B-PER L-PER U-LOC O", 0.8),
        ("PER PER O LOC", "PER PER O LOC", 1.0),  # plain tags
        ("PER O O LOC", "PER PER O LOC", 0.5),
        ("B-PER | I-PER O", "B-PER | I-PER O", 1.0),
        ("I-PER I-PER | O", "I-PER I-PER | I-PER", 2 / 3),
    ],
)
def test_by_hand(said, true, expected):
    assert entity_f1(said, true) == pytest.approx(expected)


def test_entities_do_not_reach_over_the_end_of_a_sentence():
    scheme = tag_scheme(["I-PER", "O"])
    words = np.zeros(4, dtype=np.int64)
    assert count_entities(words, words, np.array([0, 0, 1, 1]), scheme).tolist() == [[1, 1, 1], [1, 1, 1]]
    assert count_entities(words, words, np.array([0, 0, 0, 0]), scheme).tolist() == [[1, 1, 1]]
    assert f1_of_counts(np.zeros((3, 3), dtype=np.int64)) == 0.0


def chunks(tags: list[str]) -> set[tuple[str, int, int]]:
    """Entities by the rules of the shared task's script, word by word."""
    found, start, before = set(), None, "O"
    for place, tag in enumerate([*tags, "O"]):
        (prefix, _, kind), (last, _, last_kind) = tag.partition("-"), before.partition("-")
        ended = last != "O" and (prefix in "OBSU" or last in "ESLU" or kind != last_kind)
        if ended:
            found.add((last_kind, start, place - 1))
        if prefix != "O" and (last == "O" or ended):
            start = place
        before = tag
    return found


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_tags_in_any_order(data):
    prefixes = data.draw(st.sampled_from(["BI", "I", "BIES", "BILU"]))
    names = ["O", *(f"{prefix}-{kind}" for prefix in prefixes for kind in ("PER", "LOC"))]
    tag = st.sampled_from(names)
    sentences = data.draw(st.lists(st.lists(st.tuples(tag, tag), min_size=1, max_size=7), min_size=1, max_size=4))
    counts = np.zeros(3)
    for sentence in sentences:
        said, true = (chunks([pair[side] for pair in sentence]) for side in (0, 1))
        counts += len(said & true), len(said), len(true)
    expected = 2 * counts[0] / (counts[1] + counts[2]) if counts[1] + counts[2] else 0.0
    texts = [" | ".join(" ".join(pair[side] for pair in sentence) for sentence in sentences) for side in (0, 1)]
    if any(name != "O" for text in texts for name in text.replace("|", " ").split()):
        assert entity_f1(*texts) == pytest.approx(expected)


def test_which_metric_validation_goes_by():
    assert task_metrics.primary("tagging", ["B-PER", "I-PER", "O"]) == "entity_f1"
    assert task_metrics.primary("tagging", ["B-PER", "NOUN", "O"]) == "macro_f1"
    assert task_metrics.names_of("tagging", ["LOC", "O", "PER"]) == ("macro_f1", "entity_f1", "accuracy")
    assert task_metrics.names_of("tagging", ["NOUN", "VERB"]) == ("macro_f1", "accuracy")
    assert task_metrics.names_of("tagging", ["O"]) == ("macro_f1", "accuracy")
    assert task_metrics.primary("classification", ["B-PER", "I-PER", "O"]) == "accuracy"


def test_the_interval_is_over_sentences_and_covers_the_value():
    generator = np.random.default_rng(0)
    names = ["B-PER", "I-PER", "O"]
    groups = np.repeat(np.arange(40), 5)
    targets = generator.integers(0, 3, size=200)
    guesses = np.where(generator.random(200) < 0.8, targets, generator.integers(0, 3, size=200))
    found = Outcome("tagging", np.eye(3)[guesses], targets, groups, names).with_intervals(resamples=200)
    assert next(iter(found)) == "entity_f1"
    assert found["entity_f1"].low < found["entity_f1"].value < found["entity_f1"].high
    with pytest.raises(InputError, match="sentence of each word"):
        Outcome("tagging", np.eye(3)[guesses], targets, target_names=names).values()
