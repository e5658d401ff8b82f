from __future__ import annotations

import pytest

from hubscout.errors import InputError, UnknownMethodError
from hubscout.tuning import TuningArguments
from hubscout.tuning.choices import FOR_TEACHERS, METHODS, USES_TEACHERS, check_choices, check_heeded, heeded
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
    "zoo_lite": True,
    "zoo_start": 0.5,
}


@pytest.mark.parametrize("name", sorted(OTHER_VALUES))
@pytest.mark.parametrize("method", [None, "fine-tune", "b-tuning"])
def test_what_teachers_alone_heed_is_refused_without_them(name: str, method: str | None) -> None:
    arguments = TuningArguments(**{name: OTHER_VALUES[name]})
    if name == "posterior_folds" and method != "fine-tune":
        check_heeded(arguments, method, ())  # the labels are followed through the same heads
        return
    with pytest.raises(InputError, match=f"^{name}={OTHER_VALUES[name]!r} is for "):
        check_heeded(arguments, method, ())


def test_what_another_method_heeds_is_refused() -> None:
    with pytest.raises(InputError, match=r"^kd_temperature=4\.0 is for method 'distill-weighted' or 'logit-kd'"):
        check_heeded(TuningArguments(kd_temperature=4.0), None, ["timm/a"])
    check_heeded(TuningArguments(kd_temperature=4.0), "logit-kd", ["timm/a"])
    check_heeded(TuningArguments(temperature=4.0, label_share=0.0), None, ["timm/a"])
    check_heeded(TuningArguments(kd_temperature=4.0), "a plug-in", ())


def test_a_comparison_gives_each_method_what_it_heeds() -> None:
    assert set(OTHER_VALUES) == FOR_TEACHERS | {"posterior_folds"}
    assert heeded(OTHER_VALUES, "fine-tune") == {}
    for method in USES_TEACHERS:
        check_heeded(TuningArguments(**heeded(OTHER_VALUES, method)), method, ["timm/a"] * USES_TEACHERS[method])
    assert heeded(OTHER_VALUES, "a plug-in") == OTHER_VALUES
