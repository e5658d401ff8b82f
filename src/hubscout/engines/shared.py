"""Values that many jobs need: sent once, not inside every job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Shared(Protocol[T_co]):
    """A picklable reference to a value that an engine holds."""

    def get(self) -> T_co:
        """The value. It is shared: nobody may change it."""
        ...


@dataclass(frozen=True)
class Held(Generic[T]):
    """The reference of engines that run in this process: the value itself."""

    value: T

    def get(self) -> T:
        """The value."""
        return self.value
