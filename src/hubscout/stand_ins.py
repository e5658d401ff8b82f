"""Modules in the place of others, which are imported once more is asked than the ones in their place know."""

from __future__ import annotations

import importlib
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any


class StandIn(Loader, MetaPathFinder):
    """Stands in for a package and some of its modules, until anything else is asked of it.

    Then all of it is real, also for those who were given something of what stood in.

    Args:
        known: gives the names that a module knows, by its name; the package comes first.

    """

    def __init__(self, known: Mapping[str, Callable[[StandIn], Mapping[str, Any]]]) -> None:
        self._package = next(iter(known))
        self._known = known
        self._lock = threading.Lock()
        self._names: dict[str, Mapping[str, Any]] = {}
        self._at_last: list[Callable[[ModuleType], object]] = []

    def begin(self) -> None:
        """Stand in from now on, unless the package is there already. Before there are other threads."""
        if self._package not in sys.modules:
            sys.meta_path.insert(0, self)

    @property
    def waiting(self) -> bool:
        """Whether the package is not there yet."""
        return self in sys.meta_path

    def at_last(self, work: Callable[[ModuleType], object]) -> None:
        """Have something done with the package once it is there."""
        self._at_last.append(work)

    def real(self, module: str = "") -> Any:
        """The package, or a module of it, imported."""
        with self._lock:
            leaving = self.waiting
            if leaving:
                sys.meta_path.remove(self)
                self._leave()
        # First: it imports its parts, and a thread that began with one of them would each wait for the other.
        package = importlib.import_module(self._package)
        if leaving:
            self._hand_over(package)
        return importlib.import_module(module) if module else package

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """What stands in for a module. One that is not known is found later: nobody else can import anything here."""
        if fullname in self._known:
            return ModuleSpec(fullname, self, is_package=fullname == self._package)
        return ModuleSpec(fullname, _Part(self)) if fullname.startswith(f"{self._package}.") else None

    def exec_module(self, module: ModuleType) -> None:
        """Have the module answer what it knows."""
        self._names[module.__name__] = self._known[module.__name__](self)
        vars(module)["__getattr__"] = partial(self._ask, module.__name__)

    def _ask(self, module: str, name: str) -> Any:
        if name.startswith("__") and name != "__version__":  # as those do who look through all modules
            raise AttributeError(name)
        if self.waiting and name in self._names[module]:
            return self._names[module][name]
        return getattr(self.real(module), name)

    def _leave(self) -> None:
        for name in self._names:
            module, (parent, _, child) = sys.modules.pop(name, None), name.rpartition(".")
            if module is not None and vars(sys.modules.get(parent, module)).get(child) is module:
                delattr(sys.modules[parent], child)

    def _hand_over(self, package: ModuleType) -> None:
        for work in self._at_last:
            work(package)
        ours = {id(value): (module, name) for module, names in self._names.items() for name, value in names.items()}
        for module in list(sys.modules.values()):
            for given, value in list(getattr(module, "__dict__", {}).items()):
                if id(value) in ours:
                    where, name = ours[id(value)]
                    setattr(module, given, getattr(importlib.import_module(where), name))


class CalledLater(Loader, MetaPathFinder):
    """Stands in for modules of functions, which are imported once one is called, or anything else is asked.

    Args:
        modules: their full names.
        functions: names that belong to functions.

    """

    def __init__(self, modules: str, functions: str) -> None:
        self._modules, self._functions = re.compile(modules), re.compile(functions)
        self._names: set[str] = set()
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Stand in from now on. Before there are other threads."""
        sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """What stands in for a module."""
        return ModuleSpec(fullname, self) if self._modules.fullmatch(fullname) else None

    def exec_module(self, module: ModuleType) -> None:
        """Have the module give functions that import it."""
        self._names.add(module.__name__)
        vars(module)["__getattr__"] = partial(self._ask, module.__name__)

    def _ask(self, module: str, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self not in sys.meta_path or not self._functions.fullmatch(name):
            return getattr(self._real(module), name)

        def function(*given: Any, **named: Any) -> Any:
            return getattr(self._real(module), name)(*given, **named)

        function.__name__ = function.__qualname__ = name
        return function

    def _real(self, module: str) -> ModuleType:
        with self._lock:
            if self in sys.meta_path:
                sys.meta_path.remove(self)  # all of them: they ask each other for more than functions
                for name in self._names:
                    sys.modules.pop(name, None)
        return importlib.import_module(module)


class _Part(Loader):
    """Imports all of a package for a part of it, which comes with the package or is loaded after it."""

    def __init__(self, package: StandIn) -> None:
        self._package = package

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module, loaded."""
        package = self._package.real()
        there = sys.modules.get(spec.name)
        if there is None:
            found = PathFinder.find_spec(spec.name, package.__path__)
            if found is None or found.loader is None:
                raise ModuleNotFoundError(f"No module named {spec.name!r}", name=spec.name)
            there = sys.modules[spec.name] = module_from_spec(found)
            found.loader.exec_module(there)
        self._spec = getattr(there, "__spec__", None)
        return there

    def exec_module(self, module: ModuleType) -> None:
        """Nothing, but that it has its own spec again; torch's settings never had another."""
        with suppress(AttributeError):
            module.__spec__ = self._spec
