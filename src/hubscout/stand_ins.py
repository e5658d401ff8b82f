"""Modules in the place of others, which are imported once more is asked than the ones in their place know.

Only the packages that are named are answered so. Whoever else asks, such as code of the user, gets the real module.
"""

from __future__ import annotations

import importlib
import re
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any


class StandIn(Loader, MetaPathFinder):
    """Stands in for a package and some of its modules, until anything else is asked of it.

    Then all of it is real, also for those who were given something of what stood in.

    Args:
        known: gives the names that a module knows, by its name; the package comes first.
        askers: the packages that are given them.

    """

    def __init__(self, known: Mapping[str, Callable[[StandIn], Mapping[str, Any]]], askers: Collection[str]) -> None:
        self.waiting = False
        self._package = next(iter(known))
        self._known, self._askers = known, askers
        self._lock = threading.Lock()
        self._names: dict[str, Mapping[str, Any]] = {}
        self._at_last: list[Callable[[ModuleType], object]] = []
        self._handed_over = False

    def begin(self) -> None:
        """Stand in from now on, unless the package is there already. Before there are other threads."""
        if self._package not in sys.modules:
            self.waiting = True
            sys.meta_path.insert(0, self)

    def at_last(self, work: Callable[[ModuleType], object]) -> None:
        """Have something done with the package once it is there."""
        self._at_last.append(work)

    def real(self, module: str = "") -> Any:
        """The package, or a module of it, imported."""
        with self._lock:
            self.waiting = False
            self._leave()
        # First: it imports its parts, and a thread that began with one of them would each wait for the other.
        package = importlib.import_module(self._package)
        with self._lock:
            handing_over, self._handed_over = not self._handed_over, True
        if handing_over:
            self._hand_over(package)
        return importlib.import_module(module) if module else package

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """What stands in for a module. One that is not known is found later: nobody else can import anything here."""
        if not self.waiting or not f"{fullname}.".startswith(f"{self._package}."):
            return None
        found = PathFinder.find_spec(fullname, path)
        if found is None or fullname not in self._known:
            return found and ModuleSpec(fullname, _Part(self, found))
        spec = ModuleSpec(fullname, self)
        spec.submodule_search_locations = found.submodule_search_locations
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Have the module answer what it knows."""
        self._names[module.__name__] = self._known[module.__name__](self)
        vars(module)["__getattr__"] = partial(self._ask, module.__name__)

    def _ask(self, module: str, name: str) -> Any:
        if self.waiting and name in self._names[module] and _has(module, name) and _asker() in self._askers:
            return self._names[module][name]
        _check_asked(module, name, waiting=self.waiting)
        return getattr(self.real(module), name)

    def _leave(self) -> None:
        """Take away what stands in, also where somebody put it back."""
        for name in self._names:
            module, (parent, _, child) = sys.modules.get(name), name.rpartition(".")
            if getattr(module, "__loader__", None) is not self:
                continue
            del sys.modules[name]
            if vars(sys.modules.get(parent, module)).get(child) is module:
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
        askers: the packages that are given functions which import them.

    """

    def __init__(self, modules: str, functions: str, askers: Collection[str]) -> None:
        self.waiting = False
        self._modules, self._functions, self._askers = re.compile(modules), re.compile(functions), askers
        self._names: set[str] = set()
        self._given: dict[int, tuple[str, str, Any]] = {}
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Stand in from now on. Before there are other threads."""
        self.waiting = True
        sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """What stands in for a module."""
        ours = self.waiting and self._modules.fullmatch(fullname) and PathFinder.find_spec(fullname, path)
        return ModuleSpec(fullname, self) if ours else None

    def exec_module(self, module: ModuleType) -> None:
        """Have the module give functions that import it."""
        self._names.add(module.__name__)
        vars(module)["__getattr__"] = partial(self._ask, module.__name__)

    def _ask(self, module: str, name: str) -> Any:
        _check_asked(module, name, waiting=self.waiting)
        if not self.waiting or not self._functions.fullmatch(name) or _asker() not in self._askers:
            return getattr(self._real(module), name)

        def function(*given: Any, **named: Any) -> Any:
            return getattr(self._real(module), name)(*given, **named)

        function.__name__ = function.__qualname__ = name
        function.__module__ = module
        self._given[id(function)] = (module, name, function)
        return function

    def real(self) -> None:
        """Import all modules that are stood in for, and give their functions to those who were given others."""
        for name in list(self._names):
            self._real(name)
        for module in list(sys.modules.values()):
            names = getattr(module, "__dict__", {})
            for kept in (names, *(value for value in list(names.values()) if type(value) is dict)):
                for key, value in list(kept.items()):
                    if id(value) in self._given:
                        where, name, _ = self._given[id(value)]
                        kept[key] = getattr(importlib.import_module(where), name)

    def _real(self, module: str) -> ModuleType:
        with self._lock:
            self.waiting = False  # for all of them: they ask each other for more than functions
            for name in self._names:
                if getattr(sys.modules.get(name), "__loader__", None) is self:
                    del sys.modules[name]
        return importlib.import_module(module)


class _Part(Loader):
    """Imports all of a package for a part of it, which comes with the package or is loaded after it."""

    def __init__(self, package: StandIn, found: ModuleSpec) -> None:
        self._package, self._found = package, found

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module, loaded."""
        self._package.real()
        there = sys.modules.get(spec.name)
        if there is None:
            assert self._found.loader is not None
            there = sys.modules[spec.name] = module_from_spec(self._found)
            try:
                self._found.loader.exec_module(there)
            except BaseException:
                sys.modules.pop(spec.name, None)
                raise
        self._spec = getattr(there, "__spec__", None)
        return there

    def exec_module(self, module: ModuleType) -> None:
        """Nothing, but that it has its own spec again; torch's settings never had another."""
        with suppress(AttributeError):
            module.__spec__ = self._spec


def _asker() -> str:
    """The package of the code that asks a module for a name."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__") == "importlib._bootstrap":
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _check_asked(module: str, name: str, *, waiting: bool) -> None:
    """Nothing is imported for those who look through all modules, as pickle does for a name, and inspect for files."""
    special = name.startswith("__") and name not in ("__all__", "__version__")
    if special or (waiting and not _has(module, name)):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")


@cache
def _has(module: str, name: str) -> bool:
    """Whether a module that is not imported may have a name: it is in its source, or a module in its folder."""
    parent = module.rpartition(".")[0]
    found = PathFinder.find_spec(module, sys.modules[parent].__path__ if parent else None)
    source = None if found is None else _source(found.origin or "")
    if found is None or source is None or re.search(rf"\b{re.escape(name)}\b", source):
        return True
    places = found.submodule_search_locations
    return places is not None and PathFinder.find_spec(f"{module}.{name}", places) is not None


@cache
def _source(file: str) -> str | None:
    """The source, where there is one."""
    try:
        return Path(file).read_text(encoding="utf-8") if file.endswith(".py") else None
    except (OSError, UnicodeError):
        return None
