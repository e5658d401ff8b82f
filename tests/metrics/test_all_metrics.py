"""Laws that hold for every registered metric, over every kind that it serves."""

from __future__ import annotations

import numpy as np
import pytest

from hubscout.errors import InputError
from hubscout.metrics import METRICS, available, score, score_parts

CARD = {"params": 10, "flops": 20, "source_accuracy": 0.7, "downloads": 3}
CASES = [
    (name, kind)
    for name in available()
    for kind in METRICS[name].kinds
    if kind != "tagging" and METRICS[name].needs != ("card",)
]
CLASS_METRICS = [name for name, kind in CASES if kind == "classification"]
RANDOM_STARTS = {"n-leep"}
"""Not exactly invariant: a mixture that is fitted from a drawn start."""
FOLDS = {("linear-probe", "classification")}
"""Folds follow the order of rows."""
ROTATION_DEPENDENT = {"etran"}
"""The energy is a sum over coordinates."""


def values(name, kind, *, features, logits, targets, **options):
    given = {"logits": logits} if "logits" in METRICS[name].needs else {"features": features}
    if "card" in METRICS[name].needs:
        given["card"] = CARD
    if METRICS[name].level == "zoo":
        return score_parts(name, targets=targets, kind=kind, **given, **options)
    return {"value": score(name, targets=targets, kind=kind, **given, **options).value}


def of(name, kind, data, **changed):
    inputs = {"features": data.features, "logits": data.logits, "targets": data.targets(kind)} | changed
    return values(name, kind, **inputs)


@pytest.mark.parametrize(("name", "kind"), CASES)
@pytest.mark.parametrize("shape", ["data", "wide"])
def test_finite_deterministic_and_inputs_unchanged(name, kind, shape, request):
    data = request.getfixturevalue(shape)
    before = [array.copy() for array in (data.features, data.logits, data.targets(kind))]
    for array in (data.features, data.logits, data.targets(kind)):
        array.setflags(write=False)
    first = of(name, kind, data)
    assert all(np.isfinite(value) for value in first.values())
    assert of(name, kind, data) == first
    for array, copy in zip((data.features, data.logits, data.targets(kind)), before, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize(
    ("name", "kind"), [case for case in CASES if case[0] not in RANDOM_STARTS and case not in FOLDS]
)
def test_order_of_rows_does_not_matter(name, kind, data):
    order = np.random.default_rng(3).permutation(len(data.classes))
    shuffled = of(
        name, kind, data, features=data.features[order], logits=data.logits[order], targets=data.targets(kind)[order]
    )
    assert shuffled == pytest.approx(of(name, kind, data), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("name", CLASS_METRICS)
def test_names_of_classes_do_not_matter(name, data):
    names = np.array(["zebra", "ant", "yak", "bee"])
    tolerance = 1e-5 if name != "linear-probe" else 0.03  # folds are drawn class by class
    relabelled = of(name, "classification", data, targets=names[data.classes])
    assert relabelled == pytest.approx(of(name, "classification", data), rel=tolerance, abs=1e-7)


@pytest.mark.parametrize("name", CLASS_METRICS)
def test_an_absent_class_leaves_no_trace(name, data):
    gap = np.where(data.classes == 3, 9, data.classes)
    assert of(name, "classification", data, targets=gap) == of(name, "classification", data)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        case
        for case in CASES
        if "logits" not in METRICS[case[0]].needs and case[0] not in ROTATION_DEPENDENT | RANDOM_STARTS
    ],
)
def test_rotation_does_not_matter(name, kind, data):
    turn = np.linalg.qr(np.random.default_rng(5).normal(size=(12, 12)))[0]
    turned = of(name, kind, data, features=data.features @ turn)
    assert turned == pytest.approx(of(name, kind, data), rel=2e-5, abs=1e-6)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize(
    ("name", "kind"), [case for case in CASES if case[0] not in {"sfda", "pactran", "ncti", "etran", "leep"}]
)
def test_one_common_scale_does_not_matter(name, kind, scale, data):
    scaled = of(name, kind, data, features=scale * data.features, logits=scale * data.logits)
    assert scaled == pytest.approx(of(name, kind, data), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("name", CLASS_METRICS)
def test_one_class_is_an_error(name, data):
    with pytest.raises(InputError, match="one class"):
        of(name, "classification", data, targets=np.zeros(90, dtype=int))


@pytest.mark.parametrize("name", CLASS_METRICS)
def test_one_sample_in_a_class_is_served(name, make_data):
    data = make_data(n=41)
    targets = np.minimum(data.classes, 2)
    targets[-1] = 3
    assert np.bincount(targets)[3] == 1
    assert all(np.isfinite(value) for value in of(name, "classification", data, targets=targets).values())


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_constant_features_say_nothing_but_do_not_fail(name, kind, data):
    flat = of(name, kind, data, features=np.ones((90, 5)), logits=np.ones((90, 5)))
    assert all(np.isfinite(value) for value in flat.values())
    if METRICS[name].level == "model":
        assert flat["value"] <= of(name, kind, data)["value"]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_better_features_score_higher(name, kind, make_data):
    """The data is the same but for the noise on the features, and the targets do not change."""
    clear, noisy = make_data(noise=0.3), make_data(noise=0.3)
    spoilt = noisy.features + 3.0 * np.random.default_rng(8).normal(size=noisy.features.shape)
    mixed = np.random.default_rng(8).permutation(noisy.logits)
    good, bad = of(name, kind, clear), of(name, kind, clear, features=spoilt, logits=mixed)
    if METRICS[name].level == "zoo":
        part = {"ncti": "nearest_centre", "etran": "labelled"}[name]
        assert good[part] > bad[part]
    else:
        assert good["value"] > bad["value"]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_bad_input_is_named(name, kind, data):
    argument = "logits" if "logits" in METRICS[name].needs else "features"
    spoilt = data.features.copy() if argument == "features" else data.logits.copy()
    spoilt[7, 2] = np.nan
    with pytest.raises(InputError, match=f"{argument}.*finite"):
        of(name, kind, data, **{argument: spoilt})
    with pytest.raises(InputError, match="rows"):
        of(name, kind, data, targets=data.targets(kind)[:-1])
    with pytest.raises(InputError, match=argument):
        of(name, kind, data, **{argument: np.zeros((0, 3))})
    with pytest.raises(InputError, match=argument):
        of(name, kind, data, **{argument: np.ones(90)})
    with pytest.raises(InputError, match=f"{argument}.*complex"):
        of(name, kind, data, **{argument: data.features + 1j})
    with pytest.raises(InputError, match=argument):
        of(name, kind, data, **{argument: np.full((90, 2), "a", dtype=object)})


@pytest.mark.parametrize("name", CLASS_METRICS)
def test_real_targets_are_no_classes(name, data):
    with pytest.raises(InputError, match="targets"):
        of(name, "classification", data, targets=data.columns[:, 0])


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_tensors_are_taken(name, kind, data):
    torch = pytest.importorskip("torch")
    tensors = {
        "features": torch.tensor(data.features),
        "logits": torch.tensor(data.logits),
        "targets": torch.tensor(data.targets(kind)),
    }
    assert of(name, kind, data, **tensors) == pytest.approx(of(name, kind, data), rel=1e-9)


@pytest.mark.parametrize("kind", ["multilabel", "regression"])
def test_a_constant_column_is_served_and_all_constant_is_an_error(kind, data):
    targets = np.column_stack([data.targets(kind), np.zeros(90, dtype=data.targets(kind).dtype)])
    for name in [name for name, served in CASES if served == kind and not name.startswith("logme")]:
        assert all(np.isfinite(value) for value in of(name, kind, data, targets=targets).values())
        with pytest.raises(InputError, match="vary"):
            of(name, kind, data, targets=np.zeros((90, 2), dtype=targets.dtype))


@pytest.mark.parametrize("name", ["params", "flops", "source-accuracy", "popularity"])
@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression", "tagging"])
def test_static_metrics_serve_every_kind(name, kind):
    assert score(name, card=CARD, kind=kind).value > 0
