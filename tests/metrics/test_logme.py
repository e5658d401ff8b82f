"""LogME, and LogME with a prior."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hubscout.errors import InputError
from hubscout.evidence import Statistics, logme
from hubscout.metrics import score


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_it_is_the_evidence(kind, data):
    found = score("logme", features=data.features, targets=data.targets(kind), kind=kind)
    expected = logme(data.features, data.targets(kind), kind=kind)
    assert found.value == found.evidence.score == expected.score
    assert found.standard_error == expected.standard_error
    assert found.value >= found.evidence.null_score


def test_statistics_alone_are_enough(data):
    statistics = Statistics("classification", ["a", "b", "c", "d"])
    for block, start in enumerate(range(0, 90, 30)):
        rows = slice(start, start + 30)
        statistics.update(data.features[rows], data.classes[rows], block=block)
    found = score("logme", statistics=statistics, kind="classification")
    whole = score("logme", features=data.features, targets=data.classes, kind="classification")
    assert found.value == pytest.approx(whole.value, abs=1e-10)
    assert len(found.evidence.block_scores) == 3


def test_it_is_logme_and_a_tenth_of_a_nat_for_a_factor_e(data):
    given = {"features": data.features, "targets": data.classes, "kind": "classification"}
    plain = score("logme", **given)
    for flops in (1e9, 1e9 * math.e):
        found = score("logme-capacity", card={"flops": flops}, **given)
        assert found.value == pytest.approx(plain.value + 0.1 * math.log(flops / 1e9), abs=1e-12)
        assert found.standard_error == plain.standard_error
    assert score("logme-capacity", card={"flops": 5e9}, nats=0.0, **given).value == pytest.approx(plain.value)


def test_pseudo_values_of_the_jackknife_rise_with_the_score(data):
    given = {"features": data.features, "targets": data.classes, "kind": "classification"}
    plain, found = score("logme", **given), score("logme-capacity", card={"flops": 1e11}, **given)
    rise = found.value - plain.value
    np.testing.assert_allclose(found.evidence.block_scores, plain.evidence.block_scores + rise)


def test_a_card_without_compute_is_an_error_that_says_so(data):
    with pytest.raises(InputError, match="multiply-adds"):
        score("logme-capacity", features=data.features, targets=data.classes, kind="classification", card={"params": 5})
