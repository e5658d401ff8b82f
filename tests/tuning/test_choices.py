from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_rates import same_weights
from tuning_networks import image_task, images

from hubscout.errors import InputError, UnknownMethodError
from hubscout.tuning import Tuned, TuningArguments, tune
from hubscout.tuning.choices import (
    ALL,
    FOLLOWS_LABELS,
    HEEDED_BESIDE,
    HEEDED_BY,
    HEEDED_WITHOUT_TEACHERS,
    METHODS,
    USES_TEACHERS,
    check_choices,
    check_heeded,
    heeded,
    unheeded,
)
from hubscout.tuning.methods import FineTune


def test_the_methods_known_without_torch_are_those_there_are() -> None:
    import hubscout.tuning.methods

    assert hubscout.tuning.methods.METHODS is METHODS
    assert {name: METHODS[name].uses_teachers for name in METHODS} == USES_TEACHERS


def test_a_method_of_ones_own_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    class Taught(FineTune):
        uses_teachers = True

    arguments = TuningArguments()
    with pytest.raises(UnknownMethodError, match="Available: b-tuning, distill-weighted, fine-tune, kd"):
        check_choices("timm/a", ["timm/b"], "mine", arguments, None)
    monkeypatch.setitem(METHODS._entries, "mine", Taught)
    check_choices("timm/a", ["timm/b"], "mine", arguments, None)


OTHER_VALUES = {
    "feature_trade_off": 0.5,
    "kd_temperature": 4.0,
    "label_share": 0.0,
    "posterior_folds": 3,
    "teacher_targets": "live",
    "teacher_views": 2,
    "teacher_weights": "uniform",
    "temperature": 1.0,
    "trade_off": 5.0,
    "zoo_lite": True,
    "zoo_start": 0.5,
}
TEACHERS = ["timm/a"]


def given(name: str) -> TuningArguments:
    """An argument with another value than its own, beside what it needs."""
    beside = [HEEDED_BESIDE[name]] if name in HEEDED_BESIDE else []
    return TuningArguments(**{name: OTHER_VALUES[name], **dict(beside)})


def test_the_table_has_every_argument_and_method_that_it_is_about() -> None:
    assert set(OTHER_VALUES) == HEEDED_BY.keys()
    assert {method for methods in HEEDED_BY.values() for method in methods} == USES_TEACHERS.keys() - {"fine-tune"}
    assert {*HEEDED_WITHOUT_TEACHERS} <= {name for name, methods in HEEDED_BY.items() if FOLLOWS_LABELS in methods}


@pytest.mark.parametrize("name", sorted(OTHER_VALUES))
@pytest.mark.parametrize("method", [*sorted(USES_TEACHERS), None])
def test_what_a_run_would_not_heed_is_refused(name: str, method: str | None) -> None:
    taught = (method or FOLLOWS_LABELS) in HEEDED_BY[name]
    for teachers, is_heeded in ((TEACHERS, taught), ((), taught and name in HEEDED_WITHOUT_TEACHERS)):
        if is_heeded:
            check_heeded(given(name), method, teachers)
            continue
        with pytest.raises(InputError, match=r"^(\w+)=\S+ is for ") as caught:
            check_heeded(given(name), method, teachers)
        assert str(caught.value).partition("=")[0] in {name, *(other for other, _ in [HEEDED_BESIDE.get(name, "  ")])}
        assert ("give teachers=..." in str(caught.value)) == taught


@pytest.mark.parametrize("method", sorted(USES_TEACHERS))
def test_what_a_method_heeds_changes_what_comes_out_and_nothing_else_does(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubscout.tuning.tuning_run.check_heeded", lambda *given: None)
    task = image_task(24)
    mixed = replace(task.train, targets=np.random.default_rng(0).permutation(task.train.targets))
    task = replace(task, splits={**task.splits, "train": mixed})  # teachers that are sure say the same, whoever weighs
    teachers = [images(1), images(2, width=12)] if method != "zoo" else [images(1), images(2)]

    def tuned(**options: Any) -> Tuned:
        how = {"steps": 2, "batch_size": 24, "keep_best": False, "bootstrap_resamples": 1, "progress": False}
        return tune(task, images(0), teachers if USES_TEACHERS[method] else [], method, **how, **options)

    plain = tuned()
    heeds = {name for name in HEEDED_BY if method in HEEDED_BY[name]} - {"teacher_views"}  # beside `views` alone
    assert same_weights(plain, tuned(**{name: value for name, value in OTHER_VALUES.items() if name not in heeds}))
    assert not [name for name in heeds if same_weights(plain, tuned(**{name: OTHER_VALUES[name]}))]


def test_what_says_something_only_beside_another_argument_is_refused_without_it() -> None:
    with pytest.raises(InputError, match=r"^teacher_views=9 is for teacher_targets='views': leave it out"):
        check_heeded(TuningArguments(teacher_views=9, teacher_targets="live"), "kd", TEACHERS)
    with pytest.raises(InputError, match=r"^temperature=3\.0 is for teacher_weights='softmax': leave it out"):
        check_heeded(TuningArguments(temperature=3.0, teacher_weights="uniform"), None, TEACHERS)


def test_a_plug_in_heeds_what_it_likes() -> None:
    check_heeded(TuningArguments(**OTHER_VALUES), "a plug-in", ())
    assert heeded(OTHER_VALUES, "a plug-in") == OTHER_VALUES


def test_a_comparison_gives_each_method_what_it_heeds() -> None:
    assert heeded(OTHER_VALUES, "fine-tune") == {}
    for method, uses_teachers in USES_TEACHERS.items():
        for name in heeded(OTHER_VALUES, method):
            check_heeded(given(name), method, TEACHERS * uses_teachers)


def test_what_none_of_several_methods_heeds_is_refused() -> None:
    for name, methods in HEEDED_BY.items():
        if {*methods} & {*ALL}:
            check_heeded(given(name), ALL, TEACHERS)
    with pytest.raises(InputError, match=r"^kd_temperature=4\.0 is for method 'distill-weighted' or 'logit-kd'"):
        check_heeded(TuningArguments(kd_temperature=4.0), ALL, TEACHERS)
    check_heeded(TuningArguments(kd_temperature=4.0), ("fine-tune", "logit-kd"), TEACHERS)


def test_what_is_as_it_would_be_is_not_told() -> None:
    assert unheeded(TuningArguments(kd_temperature=2.0, label_share=None, epochs=3), "fine-tune", ()) == {}
