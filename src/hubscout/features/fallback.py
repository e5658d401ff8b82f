"""A store that goes on in memory when the disk does not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hubscout.errors import CacheError
from hubscout.features.shards import ShardData, Store


class WithFallback:
    """The cache, until it cannot be written; from then on new shards go to `spare`, and the run goes on."""

    def __init__(self, cache: Store, spare: Store, tell: Callable[[str], None]) -> None:
        self._cache = cache
        self._spare = spare
        self._tell = tell
        self._broken = False

    def put(self, data: ShardData) -> None:
        if not self._broken:
            try:
                self._cache.put(data)
            except CacheError as error:
                self._broken = True
                self._tell(f"going on without the cache: {error}")
            else:
                return
        self._spare.put(data)

    def read(self, index: int, name: str) -> np.ndarray:
        return self._spare.read(index, name) if self._spare.has(index, name) else self._cache.read(index, name)

    def has(self, index: int, name: str) -> bool:
        return self._cache.has(index, name) or self._spare.has(index, name)
