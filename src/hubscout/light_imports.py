"""Large parts of libraries, imported when they are needed: for commands and workers, which start anew each time.

- The compiler of torch. torchvision asks it for a function that it calls to pool regions; timm, transformers and torch
  itself have it leave functions alone, or make masks with it.
- Its symbolic algebra, and SymPy behind that. torch asks whether sizes fit, which are plain numbers.
- The losses of transformers, which every network imports; those for finding objects need SciPy's optimiser.

Together they are a third of the time in which a text encoder is imported, and a quarter of its memory.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Mapping
from functools import cache, wraps
from types import FunctionType
from typing import Any

from hubscout.stand_ins import CalledLater, StandIn

_COMPILER, _ALGEBRA = "torch._dynamo", "torch.fx.experimental.symbolic_shapes"
_ASKERS = frozenset({"torch", "torchvision", "timm", "transformers"})
_BEGUN: list[StandIn | CalledLater] = []
user_code = threading.Event()
"""Whether code of the user has run."""
_LOSSES = r"transformers\.loss\.loss_(?!utils$)\w+"


@cache
def import_lightly() -> None:
    """Leave them out until anything is asked of them that takes more than is said here.

    Call it before torch is imported, and before there are other threads.
    """
    masks = f"{_COMPILER}._trace_wrapped_higher_order_op"
    known = {_COMPILER: _marks, f"{_COMPILER}.utils": _of_utilities, masks: _of_masks}
    for modules in (known, {_ALGEBRA: _sizes}, {"sympy": _symbols}):
        stand_in = StandIn(modules, _ASKERS)
        stand_in.begin()
        _BEGUN.append(stand_in)
    losses = CalledLater(_LOSSES, r"\w*For\w+Loss", _ASKERS)
    losses.begin()
    _BEGUN.append(losses)


def before_user_code() -> None:
    """Import what was left out, before code of the user runs.

    It may compile something while a network of a library asks for a part of the compiler in another thread, and torch
    cannot be imported from two of its ends at the same time.
    """
    user_code.set()
    for stand_in in _BEGUN:
        stand_in.real()


def _marks(compiler: StandIn) -> dict[str, Any]:
    """How functions are marked for the compiler, which hears of it once it is there."""

    def marked(name: str) -> Callable[[Any], Any]:
        def mark(function: Any) -> Any:
            if not isinstance(function, FunctionType) or not compiler.waiting:
                return getattr(compiler.real(), name)(function)
            compiler.at_last(lambda real: getattr(real, name)(function))
            return function

        return mark

    def disable(fn: Any = None, *arguments: Any, **options: Any) -> Any:
        function = fn
        if function is None:
            return lambda given: disable(given, *arguments, **options)
        if not isinstance(function, FunctionType) or not compiler.waiting:  # classes and modules stay what they are
            return compiler.real().disable(function, *arguments, **options)
        disabled: list[Callable[..., Any]] = []

        @wraps(function)
        def later(*given: Any, **named: Any) -> Any:
            return (disabled or [function])[0](*given, **named)  # before, nothing is compiled

        def at_last(real: Any) -> None:
            disabled.append(real.disable(function, *arguments, **options))
            vars(later).update(vars(disabled[0]))  # by which the compiler knows it

        compiler.at_last(at_last)
        return later

    return {"disable": disable, **{name: marked(name) for name in ("allow_in_graph", "assume_constant_result")}}


def _of_utilities(compiler: StandIn) -> dict[str, Any]:
    return {"is_compile_supported": lambda device: compiler.real(f"{_COMPILER}.utils").is_compile_supported(device)}


def _of_masks(compiler: StandIn) -> dict[str, Any]:
    name = "TransformGetItemToIndex"
    return {name: lambda: getattr(compiler.real(f"{_COMPILER}._trace_wrapped_higher_order_op"), name)()}


def _sizes(algebra: StandIn) -> Mapping[str, Any]:
    """What the algebra says of sizes, where they are numbers."""

    def of_numbers(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def answer(*given: Any, **named: Any) -> Any:
            if given and all(map(_is_number, given)):  # what is `named` is for others alone
                return plain(*given)
            return getattr(algebra.real(), name)(*given, **named)

        return answer

    def same(one: Any, other: Any) -> bool:
        return list(one) == list(other) if isinstance(one, list | tuple) else one == other

    importlib.import_module("torch.fx.experimental._config")  # which those who ask expect to be there
    guards = ("expect_true", "guard_int", "guard_or_false", "guard_or_true", "guard_size_oblivious")
    hints = ("guarding_hint_or_throw", "hint_int", "size_hint", "statically_known_true")
    answers: dict[str, Callable[..., Any]] = {
        **dict.fromkeys((*guards, *hints), lambda given: given),
        **dict.fromkeys(("has_guarding_hint", "has_hint"), lambda given: True),
        "is_nested_int": lambda given: False,
        "sym_and": lambda *given: all(given),
        "sym_or": lambda *given: any(given),
        "sym_eq": same,
    }
    plain = {name: of_numbers(name, answer) for name, answer in answers.items()}
    error = "GuardOnDataDependentSymNode"  # which some are ready for; nobody raises it as long as it is not there
    return {**plain, error: type(error, (RuntimeError,), {})}


def _symbols(library: StandIn) -> Mapping[str, Any]:
    """What no number is."""
    return {"Basic": type("Basic", (), {})}


def _is_number(given: Any) -> bool:
    return all(map(_is_number, given)) if isinstance(given, list | tuple) else type(given) in (bool, int, float)
