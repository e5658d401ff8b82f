"""Inputs that occur more than once: exactly, or nearly.

Images are compared by a sketch of 16 × 16 grey pixels. Two are near duplicates when their sketches differ by little of
their own contrast: another size, another compression, a little brighter. Only pairs that share a piece of a hash of
the sketch are compared, so that the work grows with the number of images and not with its square.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping

import numpy as np

NEAR = 0.12
"""The largest difference of two sketches, as a share of their contrast."""
_FLAT = 2.0
"""Sketches of less contrast, in grey levels, are of empty images, which are all alike."""
_PIECES = 8
_MOST_IN_A_BUCKET = 200


def equal_groups(keys: Mapping[int, Hashable] | Iterable[tuple[int, Hashable]]) -> list[tuple[int, ...]]:
    """Numbers whose keys are equal, two or more together.

    >>> equal_groups({0: "a", 1: "b", 2: "a"})
    [(0, 2)]
    """
    found: dict[Hashable, list[int]] = defaultdict(list)
    for number, key in keys.items() if isinstance(keys, Mapping) else keys:
        found[key].append(number)
    return [tuple(numbers) for numbers in found.values() if len(numbers) > 1]


def near_groups(sketches: Mapping[int, np.ndarray]) -> list[tuple[int, ...]]:
    """Numbers whose sketches are nearly the same, two or more together; groups are joined by any pair in them."""
    usable = {number: sketch for number, sketch in sketches.items() if sketch.std() > _FLAT}
    if len(usable) < 2:
        return []
    numbers = np.array(list(usable))
    flat = np.stack([sketch.ravel() for sketch in usable.values()])
    contrast = flat.std(axis=1)
    centred = flat - flat.mean(axis=1, keepdims=True)
    parent = list(range(len(numbers)))

    def root(place: int) -> int:
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    for places in _buckets(np.stack(list(usable.values()))):
        for first, place in enumerate(places[:-1]):
            others = np.array(places[first + 1 :])
            difference = np.sqrt(((centred[others] - centred[place]) ** 2).mean(axis=1))
            for other in others[difference <= NEAR * np.minimum(contrast[others], contrast[place])]:
                parent[root(int(other))] = root(place)
    return equal_groups((int(number), root(place)) for place, number in enumerate(numbers))


def _buckets(sketches: np.ndarray) -> list[list[int]]:
    """Places that share a piece of their hash: which of two neighbouring pixels of an 8 × 8 sketch is brighter."""
    small = sketches.reshape(len(sketches), 8, 2, 8, 2).mean(axis=(2, 4))
    # A margin keeps pixels that are alike from being told apart by chance.
    margin = 0.05 * small.std(axis=(1, 2))[:, None, None]
    across = (small[:, :, 1:] > small[:, :, :-1] + margin).reshape(len(small), -1)
    down = (small[:, 1:, :] > small[:, :-1, :] + margin).reshape(len(small), -1)
    bits = np.concatenate([across, down], axis=1)
    found: list[list[int]] = []
    for piece in np.array_split(np.arange(bits.shape[1]), _PIECES):
        packed = np.packbits(bits[:, piece], axis=1)
        groups: dict[bytes, list[int]] = defaultdict(list)
        for place, row in enumerate(packed):
            groups[row.tobytes()].append(place)
        found += [places for places in groups.values() if 1 < len(places) <= _MOST_IN_A_BUCKET]
    return found
