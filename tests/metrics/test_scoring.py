"""One way to call every metric."""

from __future__ import annotations

import numpy as np
import pytest

from hubscout.errors import InputError
from hubscout.metrics import METRICS, Score, combine_zoo, metric, score, score_parts, score_zoo


def test_missing_inputs_are_named(data):
    with pytest.raises(InputError, match=r"'leep' needs logits="):
        score("leep", features=data.features, targets=data.classes, kind="classification")
    with pytest.raises(InputError, match=r"'logme' needs statistics= or features="):
        score("logme", targets=data.classes, kind="classification")
    with pytest.raises(InputError, match=r"'knn' needs targets="):
        score("knn", features=data.features, kind="classification")
    with pytest.raises(InputError, match=r"no option 'neighbors'; it has: distance, neighbours"):
        score("knn", features=data.features, targets=data.classes, kind="classification", neighbors=3)


def test_score_is_complete(data):
    found = score("knn", features=data.features, targets=data.classes, kind="classification")
    assert found.name == "knn"
    assert found.higher_is_better
    assert found.standard_error > 0
    assert found.signed_value == found.value
    assert Score(2.0, higher_is_better=False).signed_value == -2.0


def test_a_value_that_is_not_finite_is_an_error(data):
    try:
        metric("test-nan")(lambda features: float("nan"))
        with pytest.raises(InputError, match="no finite value"):
            score("test-nan", features=data.features, targets=data.classes, kind="classification")
    finally:
        METRICS._entries.pop("test-nan", None)


def test_tagging_takes_sentences_or_words(data):
    words = score("knn", features=data.features, targets=data.classes, kind="tagging")
    sentences = score("knn", features=data.features, targets=np.split(data.classes, [10, 40]), kind="tagging")
    assert words == sentences


def test_zoo_metrics_need_a_zoo(data):
    with pytest.raises(InputError, match="score_zoo"):
        score("ncti", features=data.features, targets=data.classes, kind="classification")
    with pytest.raises(InputError, match=r"use score\(\)"):
        score_parts("knn", features=data.features, targets=data.classes, kind="classification")
    with pytest.raises(InputError, match="empty"):
        score_zoo("ncti", {}, targets=data.classes, kind="classification")
    with pytest.raises(InputError, match=r"zoo\['a'\] has the unknown keys \['feature'\]"):
        score_zoo("ncti", {"a": {"feature": data.features}}, targets=data.classes, kind="classification")


def test_score_zoo_is_parts_then_combine_and_serves_model_metrics(data, make_data):
    zoo = {"good": make_data(noise=0.5).features, "bad": make_data(noise=3.0).features}
    parts = {
        name: score_parts("ncti", features=features, targets=data.classes, kind="classification")
        for name, features in zoo.items()
    }
    assert combine_zoo("ncti", parts) == score_zoo("ncti", zoo, targets=data.classes, kind="classification")
    found = score_zoo("knn", zoo, targets=data.classes, kind="classification")
    assert found["good"] == score("knn", features=zoo["good"], targets=data.classes, kind="classification")


def test_the_error_bar_of_logme_counts_groups_and_not_rows():
    """Thirty samples, each of them ten times."""
    generator = np.random.default_rng(0)
    features, labels = np.repeat(generator.normal(size=(30, 4)), 10, axis=0), np.repeat(np.arange(30) % 2, 10)
    given = {"features": features, "targets": labels, "kind": "classification"}
    apart, together = score("logme", **given), score("logme", **given, groups=np.repeat(np.arange(30), 10))
    assert together.value == pytest.approx(apart.value)
    assert together.standard_error > 1.5 * apart.standard_error
