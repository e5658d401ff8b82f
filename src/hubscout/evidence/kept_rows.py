"""`KeptRows`: a few rows that stay when their sums are made, to be predicted once the rest is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class KeptRows:
    """Rows of features with their targets and the sample that each belongs to: (m, D), (m,) or (m, C), and (m,)."""

    features: np.ndarray
    targets: np.ndarray
    samples: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence[KeptRows]) -> KeptRows | None:
        """All of them, those of a sample together; None where there are none."""
        if not parts:
            return None
        samples = np.concatenate([part.samples for part in parts])
        order = np.argsort(samples, kind="stable")
        features = np.concatenate([part.features for part in parts])
        return cls(features[order], np.concatenate([part.targets for part in parts])[order], samples[order])

    def shuffled(self) -> KeptRows:
        """The same rows in another order, always the same one."""
        order = np.random.default_rng(0).permutation(len(self.samples))
        return KeptRows(self.features[order], self.targets[order], self.samples[order])
