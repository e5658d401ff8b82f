"""torch without its compiler, as long as nobody compiles."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial, wraps
from types import ModuleType
from typing import Any

_COMPILER = "torch._dynamo"


@contextmanager
def compiler_later() -> Iterator[None]:
    """The block does not import torch's compiler, which takes most of a second, unless it compiles something.

    Importing torchvision asks it for a function that is not called; importing timm, and counting on the meta device,
    have it leave functions alone. Whatever else is asked of it imports it at once.
    """
    utilities = f"{_COMPILER}.utils"
    if _COMPILER in sys.modules:
        yield
        return
    import torch

    compiler, of_compiler = ModuleType(_COMPILER), ModuleType(utilities)
    stand_ins = {_COMPILER: compiler, utilities: of_compiler}

    def leave() -> None:
        for name, module in stand_ins.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
        if vars(torch).get("_dynamo") is compiler:
            del torch._dynamo

    def real(module: str, name: str) -> Any:
        if name.startswith("__") and (module, name) != (_COMPILER, "__path__"):
            raise AttributeError(name)  # of those who look through all modules, or for parts of this one
        leave()
        return getattr(importlib.import_module(module), name)

    compiler.__getattr__ = partial(real, _COMPILER)  # type: ignore[method-assign]
    of_compiler.__getattr__ = partial(real, utilities)  # type: ignore[method-assign]
    compiler.disable = _disabled_later  # type: ignore[attr-defined]
    of_compiler.is_compile_supported = _is_compile_supported  # type: ignore[attr-defined]
    sys.modules.update(stand_ins)
    torch._dynamo = compiler
    try:
        yield
    finally:
        leave()


def _is_compile_supported(device: str) -> bool:
    return bool(importlib.import_module(f"{_COMPILER}.utils").is_compile_supported(device))


def _disabled_later(function: Callable[..., Any] | None = None, *arguments: Any, **options: Any) -> Any:
    """`torch._dynamo.disable`, asked once there is a compiler: before, nothing is compiled."""
    if function is None:
        return lambda given: _disabled_later(given, *arguments, **options)

    @cache
    def disabled() -> Callable[..., Any]:
        return sys.modules[_COMPILER].disable(function, *arguments, **options)

    @wraps(function)
    def later(*given: Any, **named: Any) -> Any:
        there = getattr(sys.modules.get(_COMPILER), "__spec__", None) is not None
        return (disabled() if there else function)(*given, **named)

    return later
