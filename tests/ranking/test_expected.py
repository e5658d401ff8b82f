"""Expected accuracy on samples left out, for every kind of task; and labels that nothing explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
import torch
from sklearn.linear_model import RidgeClassifier

from hubscout.features import extract
from hubscout.hubs import Backbone, ModelCard
from hubscout.hubs.backbone import Batch, Output
from hubscout.ranking import Ranking, rank
from hubscout.tasks import Split, Task

N, CLASSES = 600, 4
MAIN = {
    "classification": ("accuracy", "balanced_accuracy"),
    "multilabel": ("mean_average_precision",),
    "regression": ("r2",),
    "tagging": ("macro_f1",),
}


class WordNumbers:
    """Each word is a number already."""

    key = "numbers"

    def __call__(self, sample: Any) -> list[int]:
        return [int(word) for word in sample]

    def collate(self, samples: Sequence[list[int]]) -> Batch:
        return {"ids": torch.tensor([number for sample in samples for number in sample])}


class Rows:
    """Rows of numbers as they are."""

    key = "rows"

    def __call__(self, sample: Any) -> torch.Tensor:
        return torch.as_tensor(np.asarray(sample, dtype=np.float32))

    def collate(self, samples: Sequence[torch.Tensor]) -> Batch:
        return {"rows": torch.stack(list(samples))}


class Tagger(Backbone):
    """A vector for each of forty words."""

    def __init__(self, dim: int = 30) -> None:
        torch.manual_seed(0)
        self.module = torch.nn.Embedding(40, dim)
        self.preprocessing = WordNumbers()
        self.card = ModelCard(
            identifier=f"test/tagger{dim}",
            architecture="table",
            modalities=("tokens",),
            feature_dim=dim,
            params=40 * dim,
            bytes=160 * dim,
        )

    def forward(self, batch: Batch, layers: Sequence[str] = ()) -> Output:
        return Output(self.module(batch["ids"]))


class Linear(Backbone):
    """Gives its inputs back."""

    def __init__(self, dim: int) -> None:
        self.module = torch.nn.Identity()
        self.preprocessing = Rows()
        self.card = ModelCard(
            identifier=f"test/linear{dim}",
            architecture="none",
            modalities=("array",),
            feature_dim=dim,
            params=0,
            bytes=0,
        )

    def forward(self, batch: Batch, layers: Sequence[str] = ()) -> Output:
        return Output(batch["rows"])


@pytest.fixture
def models(zoo: str) -> list[str]:
    """Two that see what labels are made of, one better than the other."""
    return [f"python:{zoo}:look?first=0&last=8", f"python:{zoo}:look?first=0&last=6"]


def make_task(kind: str, *, shuffled: bool = False, n: int = N, seed: int = 0) -> Task:
    """Labels that the first columns explain, or those of other samples."""
    generator = np.random.default_rng(seed)
    inputs = generator.normal(size=(n, 20)).astype(np.float32) + 0.5
    signal = inputs[:, :CLASSES] + 0.3 * generator.normal(size=(n, CLASSES))
    labels = {
        "classification": (signal - 0.5 * np.arange(CLASSES)).argmax(1),
        "multilabel": (signal > 1.2).astype(np.int64),
        "regression": 100 + signal[:, :2].astype(np.float64),
    }[kind]
    if shuffled:
        labels = labels[generator.permutation(n)]
    return Task.from_arrays(inputs, labels, kind=kind)


def make_tags(*, shuffled: bool = False, n: int = 200) -> Task:
    """Sentences of words whose tag is known from the word, nine times in ten."""
    generator = np.random.default_rng(0)
    tag_of_word = generator.integers(3, size=40)
    sentences = [generator.integers(40, size=generator.integers(2, 9)) for _ in range(n)]
    words = np.concatenate(sentences)
    tags = np.where(
        generator.uniform(size=len(words)) < 0.9, tag_of_word[words], generator.integers(3, size=len(words))
    )
    if shuffled:
        tags = generator.permutation(tags)
    targets = np.split(tags, np.cumsum([len(sentence) for sentence in sentences])[:-1])
    split = Split([[str(word) for word in sentence] for sentence in sentences], targets)
    splits = {"train": split, "validation": split, "test": split}
    return Task("tags", "tagging", "tokens", ("noun", "verb", "other"), splits, f"tags-{shuffled}")


def ranked(kind: str, models: list[str], *, shuffled: bool = False, **options: Any) -> Ranking:
    if kind == "tagging":
        return rank(make_tags(shuffled=shuffled), [Tagger(30), Tagger(20)], cache=False, **options)
    return rank(make_task(kind, shuffled=shuffled), models, cache=False, **options)


@pytest.mark.parametrize("kind", MAIN)
def test_every_kind_has_its_own_measure_and_beats_guessing(kind: str, models: list[str]) -> None:
    ranking = ranked(kind, models)
    for row in ranking:
        assert tuple(found.metric for found in row.expected) == MAIN[kind]
        for found in row.expected:
            assert found.low < found.value < found.high
            assert found.high - found.low < 0.2
            assert found.guess < found.low
        assert row.odds is not None
        assert row.odds > 20
    assert ranking.explains_labels is True


@pytest.mark.parametrize("kind", MAIN)
@pytest.mark.parametrize("seed", [0, 1])
def test_shuffled_labels_are_explained_by_nobody(kind: str, seed: int, models: list[str]) -> None:
    ranking = ranked(kind, models, shuffled=True, seed=seed)
    for row in ranking:
        assert row.gain is not None
        assert 0 <= row.gain < 0.01
        assert row.expected[0].value < row.expected[0].guess + 0.06
        if kind != "tagging":  # of which the best guess is a draw, which no model that knows nothing would make
            assert row.expected[0].value > row.expected[0].guess - 0.06
    assert ranking.explains_labels is False


def test_labels_in_the_order_of_the_data_are_not_found_by_a_model_that_knows_nothing() -> None:
    labels = np.zeros((400, 2), dtype=np.int64)
    labels[:40, 0] = labels[300:, 1] = 1
    inputs = np.random.default_rng(0).normal(size=(400, 5)).astype(np.float32)
    row = rank(Task.from_arrays(inputs, labels, kind="multilabel"), [Linear(5)], cache=False).best
    assert row.expected[0].guess == pytest.approx(0.175, abs=0.02)
    assert row.expected[0].value == pytest.approx(row.expected[0].guess, abs=0.07)


def test_the_accuracy_is_that_of_fresh_samples(models: list[str]) -> None:
    """Against scikit-learn's ridge on features that nobody has fitted."""
    train, fresh = make_task("classification", seed=3), make_task("classification", n=4000, seed=4)
    row = rank(train, models[0], cache=False).best
    features = extract(models[0], train).features()
    others = extract(models[0], fresh).features()
    oracle = RidgeClassifier().fit(features, train.train.targets).score(others, fresh.train.targets)
    accuracy, balanced = row.expected
    assert accuracy.low < oracle < accuracy.high
    assert accuracy.guess == pytest.approx(np.bincount(train.train.targets).max() / len(train.train))
    assert balanced.guess == pytest.approx(1 / CLASSES)


def test_sums_alone_the_cache_and_growing_subsets_say_the_same(models: list[str], tmp_path: Path) -> None:
    task = make_task("classification", n=1200)
    streamed = rank(task, models, cache=False).best
    cached = rank(task, models, cache=tmp_path).best
    again = rank(task, models, cache=tmp_path).best
    grown = rank(task, models[0], cache=tmp_path, progressive=True).best
    assert streamed.expected == cached.expected == again.expected
    assert grown.n == streamed.n
    assert grown.expected[0].value == pytest.approx(streamed.expected[0].value, abs=1e-9)


def test_of_many_rows_some_are_left_out(models: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task("classification", n=1200)
    whole = rank(task, models[0], cache=False).best
    monkeypatch.setattr("hubscout.features.extraction_plan.KEPT_ROWS", 300)
    part = rank(task, models[0], cache=False).best
    assert part.score == whole.score
    assert part.expected[0].high - part.expected[0].low > 1.4 * (whole.expected[0].high - whole.expected[0].low)
    assert part.expected[0].value == pytest.approx(whole.expected[0].value, abs=0.06)


def test_fewer_samples_than_dimensions(models: list[str]) -> None:
    """They are predicted from the features themselves, and shuffled ones are still explained by nobody."""
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(60, 400)).astype(np.float32)
    labels = (inputs[:, :3] + 0.1 * generator.normal(size=(60, 3)) + 4 * inputs[:, 3:6]).argmax(1)

    for told, explained in ((labels, True), (generator.permutation(labels), False)):
        strong = inputs.copy()
        strong[:, :6] *= 10
        ranking = rank(Task.from_arrays(strong, told, kind="classification"), [Linear(400)], cache=False)
        assert ranking.explains_labels is explained
        assert (ranking.best.expected[0].value > 0.5) is explained


def test_one_odd_sample_does_not_explain_a_rare_label() -> None:
    """A feature that one sample alone has fits a label that it alone has, and predicts nothing."""
    generator = np.random.default_rng(1)
    inputs = generator.normal(size=(500, 10)).astype(np.float32)
    inputs[7, 0] = 1000.0
    labels = np.zeros((500, 2), dtype=np.int64)
    labels[7, 0] = 1
    labels[:, 1] = generator.integers(2, size=500)
    ranking = rank(Task.from_arrays(inputs, labels, kind="multilabel"), [Linear(10)], cache=False)
    assert ranking.best.n * max(ranking.best.per_target) > 100
    assert ranking.best.odds == 0
    assert ranking.explains_labels is False


def test_the_interval_of_the_accuracy_is_that_of_a_share() -> None:
    """Wilson's, as SciPy has it."""
    labels = np.arange(12) % 2
    inputs = labels[:, None] + np.zeros((12, 3), dtype=np.float32)
    row = rank(Task.from_arrays(inputs, labels, kind="classification"), [Linear(3)], cache=False).best
    found = row.expected[0]
    wilson = scipy.stats.binomtest(row.n, row.n).proportion_ci(method="wilson")
    assert found.value == 1
    assert (found.low, found.high) == pytest.approx((wilson.low, wilson.high))


def test_metrics_without_evidence_say_nothing_of_it(models: list[str]) -> None:
    ranking = rank(make_task("classification"), models, metrics="knn", cache=False)
    assert ranking.explains_labels is None
    assert ranking.best.expected == ()


def patients(dim: int, *, groups: bool, size: int = 10, count: int = 60) -> Task:
    """Samples of a patient are nearly the same, and the labels of patients are drawn: of a new one nothing is known."""
    generator = np.random.default_rng(0)
    inputs = np.repeat(generator.normal(size=(count, dim)), size, axis=0)
    inputs = (inputs + 0.1 * generator.normal(size=inputs.shape)).astype(np.float32)
    order = generator.permutation(len(inputs))
    of_row, labels = np.repeat(np.arange(count), size)[order], generator.integers(0, 2, count)
    splits = {split: (inputs[:4], [0, 1] * 2) for split in ("validation", "test")}
    return Task.from_arrays(inputs[order], labels[of_row], groups=of_row if groups else None, **splits)


@pytest.mark.parametrize("dim", [40, 700])
def test_samples_of_a_group_are_predicted_from_other_groups(dim: int) -> None:
    apart, together = (rank(patients(dim, groups=groups), [Linear(dim)], cache=False) for groups in (False, True))
    assert apart.best.expected[0].value > 0.9
    found = together.best.expected[0]
    assert found.value < 0.65
    assert found.high - found.low > 0.2  # 60 patients, not 600 samples
    assert together.best.n == apart.best.n == 600
    assert together.explains_labels is False
    if dim == 40:  # with 700 dimensions every label is fitted, whoever is in which block
        assert (together.best.standard_error or 0.0) > 1.5 * (apart.best.standard_error or 0.0)


def test_metrics_that_predict_samples_from_others_leave_the_groups_out_too() -> None:
    metrics = ["knn", "linear-probe"]
    apart, together = (
        rank(patients(40, groups=groups), [Linear(40)], metrics=metrics, cache=False).best for groups in (False, True)
    )
    for name in metrics:
        assert together.scores[name] < 0.7 < 0.9 < apart.scores[name]


def test_growing_subsets_leave_the_same_groups_out(tmp_path: Path) -> None:
    task, options = patients(40, groups=True), {"cache": tmp_path}
    whole, grown = (rank(task, [Linear(40)], progressive=each, **options).best for each in (False, True))
    assert grown.n == whole.n
    assert grown.expected[0].value == pytest.approx(whole.expected[0].value, abs=1e-9)


def test_groups_that_are_too_large_are_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubscout.features.extraction_plan._LEFT_OUT_TOGETHER", 100)
    for dim in (40, 700):
        row = rank(patients(dim, groups=True), [Linear(dim)], cache=False).best
        assert not row.expected
        assert any("no expected result" in note for note in row.notes)


def test_an_interval_over_two_groups_does_not_end_above_what_can_be() -> None:
    inputs = np.random.default_rng(0).normal(size=(90, 4))
    task = Task.from_arrays(
        inputs, inputs[:, 0] + 0.1 * inputs[:, 1] ** 2, groups=np.arange(90) // 45, kind="regression"
    )
    (expected,) = rank(task, [Linear(4)], cache=False).best.expected
    assert expected.low < expected.value < expected.high == 1.0


def test_words_of_a_group_are_predicted_from_other_groups() -> None:
    tags = make_tags()
    groups = np.arange(len(tags.train)) // 4
    task = replace(tags, splits={name: replace(split, groups=groups) for name, split in tags.splits.items()})
    row, alone = (rank(one, [Tagger(30)], cache=False).best for one in (task, tags))
    assert row.expected[0].value == pytest.approx(alone.expected[0].value, abs=0.02)


def test_metrics_that_predict_words_from_others_leave_their_sentence_out() -> None:
    """Every sentence has one word, five times, and a tag drawn for it: other sentences know nothing of it."""
    drawn = np.random.default_rng(0).integers(2, size=40)
    split = Split([[str(word)] * 5 for word in range(40)], [np.repeat(tag, 5) for tag in drawn])
    task = Task("drawn", "tagging", "tokens", ("a", "b"), {"train": split}, "drawn")
    row = rank(task, [Tagger(30)], metrics=["linear-probe", "knn"], cache=False).best
    assert row.scores["linear-probe"] < 0.7  # 1.0 where its other words are known
    assert row.scores["knn"] < 0.7
