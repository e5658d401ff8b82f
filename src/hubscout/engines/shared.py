"""Values that many jobs need: sent once, not inside every job."""

from __future__ import annotations

import pickle
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

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


@dataclass(frozen=True)
class InFile:
    """The reference of engines with several processes on this machine."""

    path: Path

    @classmethod
    def of(cls, value: object, folder: Path) -> InFile:
        """Write a value into a file of its own."""
        import cloudpickle

        path = folder / uuid.uuid4().hex
        path.write_bytes(cloudpickle.dumps(value))
        return cls(path)

    def get(self) -> Any:
        """The value, read anew."""
        return pickle.loads(self.path.read_bytes())
