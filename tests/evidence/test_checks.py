"""Never a NaN score, never a silent re-shape: an error of ours that names the argument and what came."""

import numpy as np
import pytest
import torch

from hubscout.errors import HubscoutError, InputError
from hubscout.evidence import Statistics, logme, maximize_evidence

GOOD = np.arange(12.0).reshape(6, 2)
IDS = np.array([0, 1, 0, 1, 0, 1])


def with_value(value, shape=(6, 2)):
    features = np.arange(float(np.prod(shape))).reshape(shape)
    features[1, 1] = value
    return features


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (with_value(np.nan), r"features must be finite; 1 of 12 values are not, the first is nan at \(1, 1\)"),
        (with_value(np.inf), r"the first is inf at \(1, 1\)"),
        (with_value(-np.inf, (6, 40)), r"the first is -inf at \(1, 1\)"),
        (with_value(np.nan).astype(np.float32), "must be finite"),
        (1e-155 * GOOD, r"features reach 1.1e-154: .* Rescale them to between 1e-75 and 1e\+75"),
        (5e-324 * GOOD, "features reach 5.43e-323"),
        (with_value(1e200), r"reach 1e\+200: products of their squares leave the range"),
        (np.empty((0, 3)), r"features is empty: its shape is \(0, 3\)"),
        (np.empty((6, 0)), "features is empty"),
        (np.ones(6), r"must be a matrix .* shape \(6,\)"),
        (np.ones((6, 2, 2)), r"got an array of shape \(6, 2, 2\)"),
        (GOOD.astype(complex), "real numbers; got complex ones"),
        (GOOD.astype(object), "features must hold numbers; got the data type object"),
        (GOOD.astype(str), "features must hold numbers"),
        (GOOD.astype("datetime64[s]"), "data type datetime64"),
        ([[1.0, 2.0], [3.0]], "features must be an array"),
        (torch.ones(6, 2, dtype=torch.complex64), "real numbers; got complex ones"),
        (torch.ones(6, 2).to_sparse(), "must be a dense tensor"),
        (torch.full((6, 2), float("nan")), "must be finite"),
        (GOOD[:5], "features have 5 rows but targets have 6"),
    ],
)
def test_features(features, message):
    with pytest.raises(InputError, match=message):
        logme(features, IDS)


@pytest.mark.parametrize(
    ("targets", "options", "message"),
    [
        ([1, 1, 1, 1, 1, 1], {}, "targets hold one class only"),
        ([1, 1, 1, 1, 1, 1], {"classes": [0, 1]}, "targets hold one class only"),
        ([], {}, r"got an array of shape \(0,\)"),
        (3, {}, r"got an array of shape \(\)"),
        (IDS[:, None], {"kind": "classification"}, r"one class per sample; got shape \(6, 1\)"),
        (np.array([0, 1, 2] * 2)[:, None], {}, "are ambiguous. Say kind='regression'"),
        (IDS + 0.5, {"kind": "classification"}, "got numbers with fractions"),
        ([0.0, np.nan, 1, 0, 1, 0], {"kind": "classification"}, "targets must be finite"),
        ([0.0, np.nan, 1, 0, 1, 0], {}, "targets must be finite"),
        ([0.0, np.inf, 1, 0, 1, 0], {"kind": "regression"}, "targets must be finite"),
        (list("aabbab"), {"kind": "regression"}, "must hold numbers"),
        (1e-155 * GOOD[:, 0], {}, r"column 0 reaches 1e-154: .* Rescale it to between 1e-75 and 1e\+75"),
        (np.stack([GOOD[:, 0], 1e155 * GOOD[:, 1]], 1), {}, r"column 1 reaches 1.1e\+156"),
        (5e-324 * GOOD[:, 0], {"center": False}, "column 0 reaches 4.94e-323"),
        (IDS.astype(bool), {"kind": "regression"}, "must hold numbers; got the data type bool"),
        (np.full((6, 2), 2), {"kind": "multilabel"}, "only 0 and 1"),
        (IDS, {"kind": "multilabel"}, r"must have shape \(n, C\)"),
        (IDS.astype(complex), {}, "real numbers; got complex ones"),
        (np.array([0, "a", 1, 1, 0, 0], dtype=object), {}, "they hold int, str"),
        (np.array([None] * 6), {}, "they hold NoneType"),
        (IDS, {"kind": "ranking"}, "classification, multilabel, regression; got 'ranking'"),
        (IDS, {"classes": [1, 2]}, r"not in classes: \[0\]"),
        (IDS, {"classes": [0, 1, 1]}, "the same class twice"),
        (GOOD, {"classes": [0, 1]}, "classes is only for classification"),
        (IDS, {"target_names": ["a"]}, "must name 2 targets; got 1"),
        (np.zeros(6), {}, "zero everywhere"),
        (IDS, {"tolerance": -1.0}, "tolerance must be positive"),
        (IDS, {"max_iterations": 0}, "max_iterations must be at least 1"),
    ],
)
def test_targets_and_options(targets, options, message):
    with pytest.raises(InputError, match=message):
        logme(GOOD, targets, **options)


def test_sums_of_targets_that_cannot_be_squared():
    with pytest.raises(InputError, match=r"column 0 reaches 1e\+156"):
        Statistics("regression", ["y"]).update(GOOD, 1e155 * GOOD[:, 0])
    with pytest.raises(InputError, match=r"column 'y' is of size .*e-154"):
        maximize_evidence(Statistics("regression", ["y"]).update(GOOD, 1e-155 * GOOD[:, 0]))


def test_classes_as_large_floats():
    result = logme(GOOD, IDS * 1e30 + 1e29, kind="classification")
    assert result.targets == (str(int(1e29)), str(int(1.1e30)))
    assert logme(GOOD, IDS * 2.0, kind="classification", classes=[0, 1, 2]).unscored == ("1",)


def test_errors_are_value_errors_too():
    with pytest.raises(ValueError, match="one class"):
        logme(GOOD, np.zeros(6, int))
    with pytest.raises(HubscoutError):
        logme(GOOD, np.zeros(6, int))


def test_prediction_checks_its_features():
    for result in (logme(GOOD, IDS), logme(GOOD.T, [0, 1])):
        for method in (result.predict, result.predict_variance):
            with pytest.raises(InputError, match="columns, as before"):
                method(np.ones((2, 9)))
            with pytest.raises(InputError, match="finite"):
                method(np.full((2, result.feature_dim), np.nan))
    with pytest.raises(InputError, match="keep_spectrum=True"):
        logme(GOOD, IDS, keep_spectrum=False).predict_variance(GOOD)


@pytest.mark.parametrize(
    ("targets", "kind", "names"),
    [
        (IDS, "classification", ("0", "1")),
        (IDS.astype(bool), "classification", ("False", "True")),
        (np.array(list("ababab")), "classification", ("a", "b")),
        (np.array(list("ababab"), dtype=object), "classification", ("a", "b")),
        (list("ababab"), "classification", ("a", "b")),
        (torch.tensor(IDS), "classification", ("0", "1")),
        (IDS.astype(np.uint8) + 7, "classification", ("7", "8")),
        (IDS.astype(np.uint64) + np.uint64(2**63), "classification", (str(2**63), str(2**63 + 1))),
        ([int(i) + 2**63 for i in IDS], "classification", (str(2**63), str(2**63 + 1))),
        ([2**63 - int(i) * 2**64 for i in IDS], "classification", (str(-(2**63)), str(2**63))),
        (np.array([2**80 + int(i) for i in IDS], dtype=object), "classification", (str(2**80), str(2**80 + 1))),
        (IDS.astype(float), "regression", ("0",)),
        (torch.tensor(IDS).float(), "regression", ("0",)),
        (np.column_stack([IDS, 1 - IDS]), "multilabel", ("0", "1")),
        (np.column_stack([IDS, 1 - IDS]).astype(bool), "multilabel", ("0", "1")),
        (np.column_stack([IDS, 1 - IDS]).astype(float), "regression", ("0", "1")),
    ],
)
def test_what_auto_takes_targets_for(targets, kind, names):
    result = logme(GOOD, targets)
    assert (result.kind, result.targets) == (kind, names)
    assert np.isfinite(result.score)
