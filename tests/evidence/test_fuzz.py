"""Whatever comes in: an error of ours, or numbers that can be used."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubscout.errors import EvidenceWarning, HubscoutError
from hubscout.evidence import LogMEClassifier, LogMERegressor, Statistics, logme, maximize_evidence

SCALES = (1.0, 1.0, 1e-3, 1e6, 1e-20, 1e40, 1e-74, 1e74, 1e-155, 1e155, 1e-308, 5e-324, 1e300)
FEATURE_TYPES = ("f8", "f8", "f4", "f2", "i8", "u8", "i1", "u1", "?", "g", "O")
TARGETS = (
    "classes",
    "one class",
    "rare class",
    "by block",
    "uint64",
    "big",
    "strings",
    "bool",
    "floats",
    "labels",
    "empty label",
    "regression",
    "constant",
    "zero",
    "noise-free",
    "offset",
    "two columns",
)


def make_features(generator, n, dim, scale, offset, dtype, twist):
    values = generator.normal(size=(n, dim))
    if twist == "duplicated":
        values[:, dim // 2 :] = values[:, : dim - dim // 2]
    elif twist == "sparse":
        values[generator.random(size=(n, dim)) < 0.8] = 0
    elif twist == "constant":
        values[:] = 0.1
    elif twist == "uneven":
        values *= np.logspace(0, -9, dim)
    elif twist == "same rows":
        values[:] = values[:1]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return ((values + offset) * scale).astype(np.dtype(dtype))


def make_targets(generator, name, features, scale, blocks):
    n = len(features)
    ids = generator.integers(0, 3, n)
    with np.errstate(all="ignore"):
        y = generator.normal(size=n)
        made = {
            "classes": ids,
            "one class": np.zeros(n, int),
            "rare class": (np.arange(n) == n - 1).astype(int),
            "by block": (blocks == blocks[0]).astype(int),
            "uint64": ids.astype(np.uint64) + np.uint64(2**63),
            "big": [int(i) * 2**65 - 1 for i in ids],
            "strings": ids.astype(str),
            "bool": ids > 0,
            "floats": ids * 1e300,
            "labels": np.stack([ids == 1, ids > 0], 1),
            "empty label": np.stack([ids == 1, ids > 9], 1),
            "regression": scale * y,
            "zero": np.zeros(n),
            "constant": np.full(n, scale * 0.1),
            "noise-free": scale * np.nan_to_num(features.astype("f8")).sum(1),
            "offset": scale * (1e8 + y),
            "two columns": np.stack([scale * y, y], 1),
        }
    kind = "classification" if name == "floats" else "auto"
    return made[name], kind


def check(result, features):
    numbers = (
        result.score,
        result.null_score,
        result.per_target,
        result.per_target_null,
        result.block_scores,
        result.weights,
        result.intercept,
        result.rounding,
    )
    assert all(np.isfinite(value).all() for value in numbers)
    scored = np.array([name not in result.unscored for name in result.targets])
    assert (np.isfinite(result.beta[scored]) & (result.beta[scored] > 0)).all()
    assert (result.alpha > 0).all()
    assert result.solver != "newton" or result.gain > -1e-9 * max(1, abs(result.score))
    assert result.standard_error is None or 0 <= result.standard_error < np.inf
    assert 0 <= result.rank <= min(features.shape)
    if result.spectrum is not None:
        assert np.isfinite(result.predict(features)).all()
        assert (result.predict_variance(features) >= 0).all()


def trial(seed, target, feature_type, scale, target_scale, center, jackknife, twist, offset, solver="newton"):
    """One problem through all ways in; whatever it raises is ours."""
    generator = np.random.default_rng(seed)
    n, dim = int(generator.integers(1, 14)), int(generator.integers(1, 10))
    features = make_features(generator, n, dim, scale, offset, feature_type, twist)
    blocks = np.sort(generator.integers(0, 3, n))
    targets, kind = make_targets(generator, target, features, target_scale, blocks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvidenceWarning)
        warnings.simplefilter("error", RuntimeWarning)
        try:
            result = logme(
                features,
                targets,
                kind=kind,
                center=center,
                jackknife=jackknife,
                blocks=blocks,
                solver=solver,
                keep_spectrum=bool(seed % 2),
            )
            check(result, features)
        except HubscoutError:
            result = None
        try:
            if result is not None and result.kind == "regression":
                sums = Statistics("regression", result.targets)
                for block in np.unique(blocks):
                    sums.update(features[blocks == block], targets[blocks == block], block=int(block))
                again = maximize_evidence(sums, center=center, jackknife=jackknife)
                check(again, features)
                if solver == "newton" and not (result.unbounded or again.unbounded):
                    assert abs(again.score - result.score) < 1e-6 + 10 * again.rounding
        except HubscoutError:
            pass
    return result


arguments_of_a_trial = st.tuples(
    st.integers(0, 2**32 - 1),
    st.sampled_from(TARGETS),
    st.sampled_from(FEATURE_TYPES),
    st.sampled_from(SCALES),
    st.sampled_from(SCALES),
    st.sampled_from((None, True, False)),
    st.sampled_from(("linear", "exact", "none")),
    st.sampled_from(("", "", "duplicated", "sparse", "constant", "uneven", "same rows")),
    st.sampled_from((0, 0, 3, 1e3, 1e6, 1e9)),
    st.sampled_from(("newton", "newton", "fixed-point")),
)


@settings(max_examples=250)
@given(arguments_of_a_trial)
def test_numbers_or_an_error_of_ours(arguments):
    trial(*arguments)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("center", [True, False])
def test_every_kind_of_target(target, center):
    for seed in range(6):
        for jackknife in ("linear", "exact"):
            result = trial(seed, target, "f8", 1.0, 1.0, center, jackknife, "", 0)
            assert target != "one class" or result is None


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from(SCALES), st.sampled_from(SCALES), st.sampled_from((0, 1e6)))
def test_estimators_too(seed, scale, target_scale, offset):
    generator = np.random.default_rng(seed)
    features = (generator.normal(size=(12, 3)) + offset) * scale
    with np.errstate(all="ignore"):
        y = generator.normal(size=12) * target_scale
    for estimator, targets in ((LogMERegressor(), y), (LogMEClassifier(), np.arange(12) % 3)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EvidenceWarning)
            try:
                found = estimator.fit(features, targets).predict(features)
            except ValueError:
                continue  # ours is one, and scikit-learn's own check of its inputs raises one
        assert np.isfinite(found).all()
