from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubscout.errors import InputError
from hubscout.metrics.transrate import transrate


def by_definition(features, ids, distortion):
    def rate(rows):
        return 0.5 * np.linalg.slogdet(np.eye(rows.shape[1]) + rows.T @ rows / (len(rows) * distortion))[1]

    centred = features - features.mean(axis=0)
    return rate(centred) - sum((ids == c).mean() * rate(centred[ids == c]) for c in np.unique(ids))


@pytest.mark.parametrize("shape", ["data", "wide"])
def test_agrees_with_the_definition(shape, request):
    data = request.getfixturevalue(shape)
    found = transrate(data.features, data.classes, normalise=False)
    assert found == pytest.approx(by_definition(data.features, data.classes, 1e-4), rel=1e-7)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30))
def test_never_negative(seed, width):
    generator = np.random.default_rng(seed)
    ids = np.concatenate([[0, 1, 2], generator.integers(3, size=15)])
    rows = generator.normal(size=(18, width))
    assert transrate(rows, ids) >= 0.0
    centred = rows - rows.mean(axis=0)
    assert by_definition(centred / np.sqrt((centred**2).sum(axis=1).mean()), ids, 1e-4) >= -1e-9


def test_two_balanced_classes_are_told_apart_only_with_centred_classes():
    generator = np.random.default_rng(0)
    ids = np.repeat([0, 1], 200)
    features = generator.normal(size=(400, 3)) + 10.0 * ids[:, None]
    noise = generator.normal(size=(400, 3))
    assert transrate(features, ids) == pytest.approx(transrate(noise, ids), abs=0.1)
    assert transrate(features, ids, centre_classes=True) > transrate(noise, ids, centre_classes=True) + 1.0


def test_columns_of_zeros_and_shifts_do_not_matter(data):
    padded = np.hstack([data.features + 5.0, np.zeros((90, 7))])
    assert transrate(padded, data.classes) == pytest.approx(transrate(data.features, data.classes), rel=1e-9)


def test_bad_distortion(data):
    with pytest.raises(InputError, match="distortion"):
        transrate(data.features, data.classes, distortion=0.0)
