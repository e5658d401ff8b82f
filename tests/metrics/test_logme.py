from __future__ import annotations

import pytest

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
