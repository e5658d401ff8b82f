from __future__ import annotations

import re

import pytest

from hubscout.errors import UnknownMetricError, UnknownNameError
from hubscout.metrics import METRICS, Metric, available, metric, score

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


def test_what_is_read_from_the_evidence_needs_statistics_however_it_is_registered():
    direct = Metric("x", lambda evidence: evidence.gain, needs=("card",), kinds=("regression",), from_evidence=True)
    assert direct.needs == METRICS["logme-capacity"].needs == ("statistics", "card")
    assert METRICS["logme"].needs == ("statistics",)
    assert METRICS["knn"].needs == ("features",)
