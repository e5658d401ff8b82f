"""Names for things that others may add to: metrics, hubs, tuning methods, engines.

A registry fills itself in two ways: by the decorator `register`, and by entry points of installed packages, which
are imported only when a name is asked for that is not known yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from hubscout.errors import UnknownNameError

T = TypeVar("T")


class Registry(Generic[T]):
    """A mapping from names to things, with errors that help.

    >>> pets: Registry[str] = Registry("pet", UnknownNameError)
    >>> pets.add("cat", "felis")
    >>> pets["cat"], list(pets)
    ('felis', ['cat'])
    """

    def __init__(self, what: str, error: type[UnknownNameError], *, group: str | None = None) -> None:
        self.what = what
        self._error = error
        self._group = group
        self._entries: dict[str, T] = {}
        self._looked_outside = False

    def add(self, name: str, entry: T) -> None:
        """Enter `entry` under `name`. A name is taken once: a second entry is a programming error."""
        if name in self._entries:
            raise ValueError(f"The {self.what} {name!r} is registered twice.")
        self._entries[name] = entry

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator form of `add`."""

        def enter(entry: T) -> T:
            self.add(name, entry)
            return entry

        return enter

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            self._load_entry_points()
        if name not in self._entries:
            raise self._error(name, self._entries)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        if name not in self._entries:
            self._load_entry_points()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        self._load_entry_points()
        return iter(sorted(self._entries))

    def _load_entry_points(self) -> None:
        if self._group is None or self._looked_outside:
            return
        self._looked_outside = True
        for point in entry_points(group=self._group):
            if point.name not in self._entries:
                loaded = point.load()
                self._entries.setdefault(point.name, loaded)  # the module may have registered it, in its own form
