"""What the jobs of one process share: a loaded model, an opened task.

A job runs in whichever process is free; the next job of the same group finds there what the one before has loaded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

T = TypeVar("T")

_kept: dict[str, OrderedDict[Hashable, object]] = {}


def remembered(kind: str, key: Hashable, make: Callable[[], T], *, most: int = 1) -> T:
    """The value of `key` among those of its `kind`, made once; the `most` that were used last are kept.

    >>> remembered("example", "a", lambda: 1), remembered("example", "a", lambda: 2)
    (1, 1)
    """
    values = _kept.setdefault(kind, OrderedDict())
    if key not in values:
        while len(values) >= most:  # before the new one is made: two large models may not fit
            values.popitem(last=False)
        values[key] = make()
    values.move_to_end(key)
    return values[key]  # type: ignore[return-value]


def forget(kind: str | None = None) -> None:
    """Let everything go, or everything of a kind."""
    if kind is None:
        _kept.clear()
    else:
        _kept.pop(kind, None)
