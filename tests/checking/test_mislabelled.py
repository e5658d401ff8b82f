"""Labels that were exchanged on purpose are found, and few others."""

from __future__ import annotations

import re

import numpy as np
import pytest
from torch import nn

import hubscout as hs
from hubscout.checking.mislabelled import find_suspects, predict_from_others
from hubscout.errors import ModelError
from hubscout.evidence import logme
from hubscout.tasks import Task
from hubscout.tasks.kinds import kind_of

NAMES = ["Ann", "Bob", "Eve", "Tom", "Mia", "Sam"]
VERBS = ["sings", "runs", "reads", "sleeps"]


class Same(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.num_features = width
        self.layer = nn.Linear(width, width, bias=False)
        nn.init.eye_(self.layer.weight)

    def forward(self, inputs):
        return self.layer(inputs)


def flowers(n: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    classes = draw.integers(0, 3, n)
    centres = 3 * draw.standard_normal((3, 8))
    return (centres[classes] + draw.standard_normal((n, 8))).astype(np.float32), classes


def rows_of(task: Task, inputs: np.ndarray, samples: list) -> set[int]:
    """The numbers that the samples of a finding had in the arrays that the task was made of."""
    found = (task.splits[sample.split].inputs[sample.row] for sample in samples)
    return {int(np.flatnonzero((inputs == value).all(axis=1))[0]) for value in found}


def test_exchanged_classes_are_found_in_every_split() -> None:
    inputs, classes = flowers()
    wrong = np.random.default_rng(1).choice(len(classes), 24, replace=False)
    labels = classes.copy()
    labels[wrong] = (labels[wrong] + 1) % 3
    task = Task.from_arrays(inputs, labels, target_names=["a", "b", "c"])
    finding = hs.check(task, Same(8))["mislabelled"]
    samples = [sample for group in finding.groups for sample in group]
    found = rows_of(task, inputs, samples)
    # Not all of them: one must look as much like its other class as samples of that class usually do.
    assert len(found & set(wrong.tolist())) >= 16
    assert len(found - set(wrong.tolist())) <= 4
    assert {sample.split for sample in samples} == {"train", "validation", "test"}
    assert samples[0].note in ("predicted a", "predicted b", "predicted c")


def test_a_weak_model_says_that_it_is_weak() -> None:
    draw = np.random.default_rng(0)
    inputs, classes = flowers()
    classes[:9] = (classes[:9] + 1) % 3
    noisy = (inputs + 12 * draw.standard_normal(inputs.shape)).astype(np.float32)
    strong, weak = (hs.check((each, classes), {"same": Same(8)})["mislabelled"].words for each in (inputs, noisy))
    assert "Some are hard and not wrong" in strong
    assert re.search(r"It is right for only \d\d%, so most of them are hard and not wrong", weak)


def test_right_labels_are_hardly_suspected() -> None:
    inputs, classes = flowers()
    clean = hs.check((inputs, classes), {"same": Same(8)})["mislabelled"]
    assert clean is None or clean.count <= 6


def test_labels_and_numbers_that_are_wrong() -> None:
    inputs, classes = flowers()
    labels = np.stack([classes == 0, inputs[:, 0] > 0], axis=1).astype(int)
    labels[5] = 1 - labels[5]
    several = hs.check(Task.from_arrays(inputs, labels, kind="multilabel", target_names=["x", "y"]), Same(8))
    notes = {sample.note for group in several["mislabelled"].groups for sample in group}
    assert any(note.startswith("predicted ") for note in notes)
    numbers = inputs @ np.arange(8.0) + 0.1 * np.random.default_rng(2).standard_normal(len(inputs))
    numbers[[3, 9]] += 40.0
    finding = hs.check((inputs, numbers), Same(8))["mislabelled"]
    assert finding.count == 2
    assert "predicted about" in finding.groups[0][0].note


def test_wrong_tags_are_found_by_word(word_encoder: str) -> None:
    rng = np.random.default_rng(0)
    sentences = [[rng.choice(NAMES), rng.choice(VERBS), "near", rng.choice(NAMES), "."] for _ in range(120)]
    sentences = [[str(word) for word in one] for one in sentences]
    tags = [["B-PER", "O", "O", "B-PER", "O"] for _ in sentences]
    tags[17][1] = "B-PER"
    tags[40][3] = "O"
    task = Task.from_arrays(sentences, tags, kind="tagging", modality="tokens")
    found = hs.check(task, word_encoder)
    finding = found["mislabelled"]
    assert "words" in finding.words
    notes = [group[0].note for group in finding.groups[:2]]
    wanted = {
        f"word 2, {sentences[17][1]!r}, is B-PER: predicted O",
        f"word 4, {sentences[40][3]!r}, is O: predicted B-PER",
    }
    assert set(notes) == wanted
    assert any("mislabelled words were looked for among 600 words" in note for note in found.notes)


def test_predictions_are_those_of_fits_without_the_sample() -> None:
    """Against fits that really leave each sample out: the same suspects, nearly the same predictions."""
    inputs, classes = flowers(80)
    labels = classes.copy()
    labels[:8] = (labels[:8] + 1) % 3
    kind = kind_of("classification")
    closed = predict_from_others(inputs, labels, kind, 3)
    fitted = np.empty_like(closed)
    for row in range(len(labels)):
        rest = np.arange(len(labels)) != row
        evidence = logme(inputs[rest], labels[rest], classes=range(3), center=True, jackknife="none")
        fitted[row] = evidence.predict(inputs[[row]])[0]
    np.testing.assert_allclose(closed, fitted, atol=0.05)
    assert (closed.argmax(1) == fitted.argmax(1)).mean() > 0.97


def test_a_subset_names_the_samples_of_the_whole() -> None:
    inputs, classes = flowers()
    labels = classes.copy()
    labels[:40] = (labels[:40] + 1) % 3
    task = Task.from_arrays(inputs, labels)
    finding = hs.check(task, Same(8), limit=300)["mislabelled"]
    found = rows_of(task, inputs, [sample for group in finding.groups for sample in group])
    assert found
    assert len([row for row in found if row < 40]) >= 0.8 * len(found)


def test_a_class_that_is_always_hard_is_not_all_suspected() -> None:
    """Predictions of class b are weak for every b: only one as strong as usual for the other class is suspected."""
    task = Task.from_arrays(np.eye(8), ["a", "b"] * 4)
    predicted = np.tile([[0.9, 0.1], [0.55, 0.45]], (4, 1))
    targets = np.array([0, 1] * 4)
    assert not list(find_suspects(task, predicted, targets))
    predicted[3] = [0.95, 0.05]
    assert [suspect.row for suspect in find_suspects(task, predicted, targets)] == [3]


def test_numbers_that_are_mostly_predicted_exactly_are_not_suspected_for_their_rounding() -> None:
    task = Task.from_arrays(np.eye(8), np.linspace(1.0, 2.0, 8))
    targets = np.linspace(1.0, 2.0, 8)[:, None]
    predicted = targets.copy()
    predicted[2] += 4e-16
    assert not list(find_suspects(task, predicted, targets))
    predicted[5] += 0.1
    assert [suspect.row for suspect in find_suspects(task, predicted, targets)] == [5]


def test_models_that_all_fail_are_an_error() -> None:
    inputs, classes = flowers(60)
    with pytest.raises(ModelError, match="No model could be used"):
        hs.check((inputs, classes), Same(5))
