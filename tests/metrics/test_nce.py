from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import entropy
from sklearn.metrics import mutual_info_score

from hubscout.metrics.nce import nce


def test_agrees_with_mutual_information_less_entropy(data):
    predicted = data.logits.argmax(axis=1)
    expected = mutual_info_score(data.classes, predicted) - entropy(np.bincount(data.classes))
    assert nce(data.logits, data.classes).value == pytest.approx(expected, abs=1e-12)


def test_an_increasing_transformation_does_not_matter(data):
    assert nce(np.exp(data.logits) * 7, data.classes).value == nce(data.logits, data.classes).value


def test_one_source_class_knows_nothing(data):
    expected = -entropy(np.bincount(data.classes))
    assert nce(np.ones((90, 1)), data.classes).value == pytest.approx(expected)
