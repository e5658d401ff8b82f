from __future__ import annotations

import re

import numpy as np
import pytest

from hubscout.errors import InputError, UnknownMetricError, UnknownNameError
from hubscout.metrics import METRICS, Metric, Score, available, combine_zoo, metric, score, score_parts, score_zoo

EXPECTED = {
    "logme",
    "leep",
    "nce",
    "h-score",
    "n-leep",
    "transrate",
    "gbc",
    "parc",
    "sfda",
    "pactran",
    "laplace",
    "linear-probe",
    "knn",
    "ncti",
    "etran",
    "params",
    "flops",
    "source-accuracy",
    "popularity",
    "logme-capacity",
}


def test_every_metric_is_registered_with_a_formula_and_a_source():
    assert set(available()) == EXPECTED
    for name in EXPECTED:
        assert METRICS[name].summary.endswith(".")
        text = METRICS[name].function.__doc__
        assert ">>> " in text
        if METRICS[name].needs != ("card",) and name not in {"knn", "linear-probe"}:
            assert "Range:" in text
            assert "nvariant" in text or "Relative to the zoo" in text
            assert re.search(r"(ICML|ICCV|CVPR|ECCV|NeurIPS|ICIP) 20\d\d", text)


def test_available_depends_on_the_kind():
    assert "leep" not in available("regression")
    assert {"logme", "linear-probe", "knn", "laplace", "params"} <= set(available("regression"))
    assert set(available("classification")) == set(available("tagging"))
    assert set(available(level="zoo")) == {"ncti", "etran"}


def test_unknown_names_say_what_there_is(data):
    with pytest.raises(UnknownMetricError, match=r"'logmee'.*Did you mean 'logme'\? Available for regression: .*knn"):
        score("logmee", features=data.features, targets=data.columns, kind="regression")
    with pytest.raises(UnknownMetricError, match=r"'leep'.*Available for regression: etran, flops, knn"):
        score("leep", logits=data.logits, targets=data.columns, kind="regression")
    with pytest.raises(UnknownNameError, match="Unknown kind of task 'ranking'"):
        score("logme", features=data.features, targets=data.classes, kind="ranking")


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


def test_a_metric_of_ones_own_and_no_name_twice(data):
    try:

        @metric("test-width", higher_is_better=False)
        def width(features):
            """Columns."""
            return features.shape[1]

        found = score("test-width", features=data.features, targets=data.classes, kind="classification")
        assert (found.value, found.signed_value) == (12.0, -12.0)
        with pytest.raises(ValueError, match="registered twice"):
            metric("knn")(width)
    finally:
        METRICS._entries.pop("test-width", None)


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


def test_what_is_read_from_the_evidence_needs_statistics_however_it_is_registered():
    direct = Metric("x", lambda evidence: evidence.gain, needs=("card",), kinds=("regression",), from_evidence=True)
    assert direct.needs == METRICS["logme-capacity"].needs == ("statistics", "card")
    assert METRICS["logme"].needs == ("statistics",)
    assert METRICS["knn"].needs == ("features",)
