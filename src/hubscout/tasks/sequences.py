"""Sequences that read a row when it is asked for, and fingerprints of their content.

Equal content gives equal fingerprints, wherever and however it is stored. The fingerprint of a task covers the inputs
byte for byte, the targets, their names and which row is in which split. It does not cover paths, file times, or whether
an image came from a folder or from a column of a table.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np

from hubscout.errors import HubscoutError

# Raise it when the same content would give another fingerprint than before.
_VERSION = 1
_MOST_THREADS = 8
_NUMBERS_PER_JOB = 64
T = TypeVar("T")


class LazyRows(Sequence[Any]):
    """A sequence that reads a row when it is asked for; a slice is a choice of rows, none of which is read."""

    @abstractmethod
    def read(self, row: int) -> Any:
        """The row at a place from 0 to the length."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Rows(self, np.arange(len(self))[index])
        return self.read(range(len(self))[index])


class Rows(LazyRows):
    """Some rows of another sequence, in the order of `rows`.

    >>> list(Rows("abcd", [3, 0]))
    ['d', 'a']
    """

    def __init__(self, base: Sequence[Any], rows: Sequence[int] | np.ndarray) -> None:
        chosen = np.asarray(rows, dtype=np.int64)
        # A selection of a selection is one selection: access stays one step deep.
        self.base: Sequence[Any] = base.base if isinstance(base, Rows) else base
        self.rows: np.ndarray = base.rows[chosen] if isinstance(base, Rows) else chosen

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, row: int) -> Any:
        return self.base[int(self.rows[row])]

    def digest(self, row: int) -> bytes:
        """The content digest of one row."""
        return digest_of(self.base, int(self.rows[row]))


class Chained(LazyRows):
    """Several sequences, one after another.

    >>> list(Chained(["ab", "c"]))
    ['a', 'b', 'c']
    """

    def __init__(self, parts: Sequence[Sequence[Any]]) -> None:
        self.parts = list(parts)
        self._ends = list(accumulate(len(part) for part in self.parts))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _locate(self, row: int) -> tuple[Sequence[Any], int]:
        part = bisect.bisect_right(self._ends, row)
        return self.parts[part], row - (self._ends[part - 1] if part else 0)

    def read(self, row: int) -> Any:
        part, place = self._locate(row)
        return part[place]

    def digest(self, row: int) -> bytes:
        """The content digest of one row."""
        return digest_of(*self._locate(row))


class Mapped(LazyRows):
    """Values of another sequence, each passed through a function when it is asked for.

    >>> Mapped(["a", "b"], str.upper)[1]
    'B'
    """

    def __init__(self, values: Sequence[Any], function: Callable[[Any], Any]) -> None:
        self.values, self.function = values, function

    def __len__(self) -> int:
        return len(self.values)

    def read(self, row: int) -> Any:
        return self.function(self.values[row])


def take(values: Any, rows: Sequence[int] | np.ndarray) -> Any:
    """Some rows, in this order: of a list a list, of an array an array, of what is read later what is read later."""
    if isinstance(values, list):
        return [values[row] for row in rows]
    return values[rows] if isinstance(values, np.ndarray) else Rows(values, rows)


def join(parts: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """One sequence out of several; lists stay lists."""
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, list) for part in parts):
        return [value for part in parts for value in part]
    return Chained(parts)


def digest_of(values: Sequence[Any], row: int) -> bytes:
    """The content digest of one row of a sequence: its own, where it has one, or that of the value."""
    own = getattr(values, "digest", None)
    return content_digest(values[row]) if own is None else own(row)


def content_digest(value: Any) -> bytes:
    """A digest of one input that is in memory.

    >>> content_digest("a") == content_digest("a"), content_digest(("a", "b")) == content_digest(["a", "b"])
    (True, False)
    """
    digest = hashlib.sha256()
    _feed(digest, value)
    return digest.digest()


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        digest.update(b"s%d:" % len(data))
        digest.update(data)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        digest.update(b"b%d:" % len(value))
        digest.update(value)
    elif isinstance(value, (list, tuple)):
        digest.update(b"%c%d:" % (b"l" if isinstance(value, list) else b"t", len(value)))
        if all(type(item) is str for item in value):
            # One call for a sentence of words, for speed: the lengths keep the words apart.
            digest.update(",".join([str(len(item)) for item in value]).encode())
            _feed(digest, "".join(value))
            return
        for item in value:
            _feed(digest, item)
    elif isinstance(value, Mapping):
        digest.update(b"m%d:" % len(value))
        for key in sorted(value, key=str):
            _feed(digest, str(key))
            _feed(digest, value[key])
    elif hasattr(value, "tobytes") and hasattr(value, "mode"):  # a Pillow image
        digest.update(f"i{value.mode}{value.size}:".encode())
        digest.update(value.tobytes())
    elif value is None or isinstance(value, (bool, int, float)):
        digest.update(f"v{value!r};".encode())
    else:
        array = np.asarray(value)
        if array.dtype == object:
            _feed(digest, array.tolist())
            return
        # Byte order and memory order are storage, not content.
        array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        digest.update(f"a{array.dtype.str}{array.shape}:".encode())
        digest.update(array.tobytes())


def row_digests(inputs: Sequence[Any]) -> Iterable[bytes]:
    """One digest per row. Sequences that read files have their own `digest(row)`, which runs in a few threads."""
    digest = getattr(inputs, "digest", None)
    # A choice of rows has a digest too; threads are for what lies on disk, and only slow down what is in memory.
    if digest is None or not hasattr(getattr(inputs, "base", inputs), "digest"):
        return (content_digest(value) for value in inputs)

    return in_threads(digest, len(inputs))


def in_threads(function: Callable[[int], T], count: int) -> list[T]:
    """What a function gives for every number from 0 to `count`, in a few threads: reading a file waits for the disk.

    >>> in_threads(str, 3)
    ['0', '1', '2']
    """

    def some(start: int) -> list[T]:
        return [function(number) for number in range(start, min(start + _NUMBERS_PER_JOB, count))]

    if count <= _NUMBERS_PER_JOB:
        return some(0)
    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        return [one for many in pool.map(some, range(0, count, _NUMBERS_PER_JOB)) for one in many]


def unreadable_rows(inputs: Sequence[Any]) -> dict[int, str]:
    """The rows that cannot be read, and why."""

    def reason(row: int) -> str:
        try:
            inputs[row]
        except MemoryError:
            raise
        except HubscoutError as error:
            return str(error)
        except Exception as error:  # whatever a sequence of the user's own raises
            return f"sample {row} ({type(error).__name__}: {error})."
        return ""

    return {row: why for row, why in enumerate(in_threads(reason, len(inputs))) if why}


def task_fingerprint(kind: str, modality: str, target_names: Sequence[str], splits: Mapping[str, Any]) -> str:
    """32 hexadecimal digits for a task with these parts."""
    return fingerprints(kind, modality, target_names, splits)[0]


def fingerprints(
    kind: str,
    modality: str,
    target_names: Sequence[str],
    splits: Mapping[str, Any],
    seen: dict[bytes, Counter[str]] | None = None,
) -> tuple[str, dict[str, str]]:
    """The fingerprint of a task with these parts, and that of the inputs of each split; inputs are read once.

    How often each input occurs in which split is counted in `seen`.
    """
    of_inputs = {}
    digest = hashlib.sha256()
    _feed(digest, [_VERSION, kind, modality, list(target_names)])
    for name in sorted(splits):
        split = splits[name]
        _feed(digest, [name, len(split)])
        inputs = hashlib.sha256(modality.encode())
        for one in row_digests(split.inputs):
            digest.update(one)
            inputs.update(one)
            if seen is not None:
                seen.setdefault(one[:16], Counter())[name] += 1
        of_inputs[name] = inputs.hexdigest()[:32]
        _feed(digest, list(split.targets) if isinstance(split.targets, list) else split.targets)
        if split.groups is not None:
            _feed(digest, split.groups)
    return digest.hexdigest()[:32], of_inputs


def derived_fingerprint(parent: str, **changes: Any) -> str:
    """The fingerprint of a task that follows from another by a deterministic change, such as a subset."""
    return hashlib.sha256(json.dumps({"parent": parent, **changes}, sort_keys=True).encode()).hexdigest()[:32]
