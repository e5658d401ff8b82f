"""What a weight vector is closest to: names for the directions that a model found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hubscout.errors import InputError
from hubscout.evidence.array_backend import to_host
from hubscout.evidence.checks import check_features, check_finite


@dataclass(frozen=True)
class Neighbour:
    """A named vector and its cosine similarity, between -1 and 1."""

    name: str
    similarity: float


def nearest(weights: object, embeddings: object, names: Sequence[str], k: int = 5) -> tuple[tuple[Neighbour, ...], ...]:
    """The k named embeddings that point most nearly where each weight vector does, best first.

    `weights` is (C, D), such as `Evidence.weights`, `embeddings` is (N, D) in the same space (words, prototypes,
    samples), `names` has N names. Similarity is the cosine: an embedding's length says how common it is, not what
    it means. A zero vector is similar to nothing (0).

    >>> directions = [[1.0, 0.1], [0.0, -3.0]]
    >>> [pair[0].name for pair in nearest(directions, [[5.0, 0.0], [0.0, -1.0]], ["east", "south"], k=1)]
    ['east', 'south']
    """
    found = to_host(check_features(weights, "weights")).astype(np.float64)
    named = to_host(check_features(embeddings, "embeddings", feature_dim=found.shape[1])).astype(np.float64)
    check_finite(found, "weights")
    check_finite(named, "embeddings")
    if len(names) != len(named):
        raise InputError(f"names must name {len(named)} embeddings; got {len(names)} names.")
    if not 1 <= k <= len(named):
        raise InputError(f"k must lie between 1 and the number of embeddings, {len(named)}; got {k}.")
    similarity = _unit(found) @ _unit(named).T
    order = np.argsort(-similarity, axis=1, kind="stable")[:, :k]
    return tuple(
        tuple(Neighbour(str(names[index]), float(similarity[row, index])) for index in chosen)
        for row, chosen in enumerate(order)
    )


def _unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
