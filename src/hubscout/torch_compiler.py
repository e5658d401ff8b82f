"""torch without its compiler, as long as nobody compiles: for commands and workers, which start anew each time.

The import takes a fifth of the start of `hubscout rank`. torchvision asks the compiler for a function that it calls to
pool regions; timm, and torch itself where operations are counted, have it leave functions alone.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial, wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_COMPILER, _UTILITIES = "torch._dynamo", "torch._dynamo.utils"


def import_compiler_later() -> None:
    """Put modules in the compiler's place that import it once anything else is asked of them than what is not needed.

    Call it before torch is imported, and before there are other threads.
    """
    if _COMPILER not in sys.modules:
        _StandIns()


class _StandIns(MetaPathFinder):
    """The compiler's modules as long as it is not there; parts of it are looked for here first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._modules = {name: ModuleType(name) for name in (_COMPILER, _UTILITIES)}
        compiler, utilities = self._modules.values()
        compiler.__path__ = []
        known: dict[ModuleType, dict[str, Any]] = {
            compiler: {"disable": self._disable},
            utilities: {"is_compile_supported": lambda device: self._real(_UTILITIES).is_compile_supported(device)},
        }
        for module, names in known.items():
            vars(module).update(names, __getattr__=partial(self._ask, module.__name__))
        sys.modules.update(self._modules)
        sys.meta_path.insert(0, self)

    def _leave(self) -> None:
        with self._lock:
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            for name, module in self._modules.items():
                if sys.modules.get(name) is module:
                    del sys.modules[name]
            torch = sys.modules.get("torch")
            if torch is not None and vars(torch).get("_dynamo") is self._modules[_COMPILER]:
                del torch._dynamo

    def _real(self, name: str) -> Any:
        self._leave()
        # First: it imports its parts, and a thread that began with one of them would each wait for the other.
        importlib.import_module(_COMPILER)
        return importlib.import_module(name)

    def _ask(self, module: str, name: str) -> Any:
        if name.startswith("__"):  # as those do who look through all modules
            raise AttributeError(name)
        return getattr(self._real(module), name)

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """Of a part of the compiler: import all of it, which brings the part."""
        if not fullname.startswith(f"{_COMPILER}."):
            return None
        path = self._real(_COMPILER).__path__
        there = sys.modules.pop(fullname, None)  # or it would be loaded once more
        return PathFinder.find_spec(fullname, path) if there is None else ModuleSpec(fullname, _There(there))

    def _disable(self, function: Callable[..., Any] | None = None, *arguments: Any, **options: Any) -> Any:
        """As the compiler's own, which is asked once it is there: before, nothing is compiled."""
        if function is None:
            return lambda given: self._disable(given, *arguments, **options)

        @cache
        def disabled() -> Callable[..., Any]:
            return sys.modules[_COMPILER].disable(function, *arguments, **options)

        @wraps(function)
        def later(*given: Any, **named: Any) -> Any:
            waiting = sys.modules.get(_COMPILER, self._modules[_COMPILER]) is self._modules[_COMPILER]
            return (function if waiting else disabled())(*given, **named)

        return later


class _There(Loader):
    """Gives a module that was loaded already, as it is."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing, but that it has its own spec again; torch's settings never had another."""
        with suppress(AttributeError):
            module.__spec__ = self._spec
