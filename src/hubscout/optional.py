"""Imports of packages that only some parts of hubscout need, and of large ones."""

from __future__ import annotations

import functools
import gc
import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from hubscout.errors import MissingDependencyError


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import `module`, or say which extra installs it.

    >>> require("json", extra="none", purpose="This example").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise MissingDependencyError(package, extra, purpose) from error


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection while large libraries are imported: they make objects by the hundred thousand, none of them
    garbage, and looking through them again and again takes a quarter of the time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


_COMPILER, _ASKED = "torch._dynamo", "torch._dynamo.utils"
_lock = threading.RLock()


@contextmanager
def compiler_later() -> Iterator[None]:
    """Without torch's compiler while torchvision and timm are imported, which saves a second.

    torchvision imports it for one function that it calls when a detector runs, and timm to mark methods that are not to
    be compiled. Here that function imports the compiler when it is called, and methods get a mark that does
    so when they are called, as torch's own have. Whoever else imports the compiler meanwhile gets it.
    """
    import torch

    if _COMPILER in sys.modules or not hasattr(torch, "_disable_dynamo"):
        yield
        return
    stand_in, finder = ModuleType(_ASKED), _Finder()
    stand_in.is_compile_supported = _is_compile_supported  # type: ignore[attr-defined]
    stand_in.__getattr__ = _ask_compiler  # type: ignore[method-assign]
    with _lock:
        kept, torch.compiler.disable = torch.compiler.disable, _marked
        sys.modules[_ASKED] = stand_in
        sys.meta_path.insert(0, finder)  # type: ignore[arg-type]
        try:
            yield
        finally:
            torch.compiler.disable = kept
            sys.meta_path.remove(finder)  # type: ignore[arg-type]
            if sys.modules.get(_ASKED) is stand_in:
                del sys.modules[_ASKED]


class _Finder:
    """Takes the stand-in away where the compiler itself is about to be imported."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if name == _COMPILER:
            sys.modules.pop(_ASKED, None)


def _is_compile_supported(device_type: str) -> bool:
    return _ask_compiler("is_compile_supported")(device_type)


def _ask_compiler(name: str) -> Any:
    if name.startswith("__"):  # the import system looks for these
        raise AttributeError(name)
    importlib.import_module(_COMPILER)
    return getattr(importlib.import_module(_ASKED), name)


def _marked(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """As `torch.compiler.disable`, which takes a reason to be shown."""
    import torch

    return torch._disable_dynamo(fn, recursive)


@contextmanager
def no_compiler() -> Iterator[None]:
    """Without torch's compiler where functions run that torch has marked as not to be compiled.

    Their first call imports it to mark them, although nothing can compile them before somebody has imported it.
    Whoever needs the compiler itself meanwhile fails.
    """
    if _COMPILER in sys.modules:
        yield
        return
    stand_in = ModuleType(_COMPILER)
    stand_in.disable = _disabled_later  # type: ignore[attr-defined]
    with _lock:
        sys.modules[_COMPILER] = stand_in
        try:
            yield
        finally:
            del sys.modules[_COMPILER]


def _disabled_later(function: Callable[..., Any], recursive: bool = True, **options: Any) -> Callable[..., Any]:
    disabled = None

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal disabled
        compiler = sys.modules.get(_COMPILER)
        if disabled is None and hasattr(compiler, "optimize"):  # the compiler itself, which is there by now
            disabled = compiler.disable(function, recursive, **options)
        return (disabled or function)(*args, **kwargs)

    return run
