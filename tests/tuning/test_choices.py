from __future__ import annotations

import pytest

from hubscout.errors import UnknownMethodError
from hubscout.tuning import TuningArguments
from hubscout.tuning.choices import METHODS, USES_TEACHERS, check_choices
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
