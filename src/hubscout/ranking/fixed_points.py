"""How the fixed-point iteration of the paper looks for a few targets, small enough to keep with every model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hubscout.runs.row import Convergence

if TYPE_CHECKING:
    from hubscout.evidence import Evidence

TARGETS = 6
POINTS = 41
MARGIN = 30.0
"""The grid reaches this factor beyond the smallest and the largest fixed point."""


def convergence_of(evidence: Evidence) -> Convergence | None:
    """Look at the best and the worst explained target and some between; None where no target has a finite t."""
    from hubscout.evidence.convergence import fixed_point_map

    if evidence.spectrum is None:
        return None
    scored = [place for place, name in enumerate(evidence.targets) if name not in evidence.unscored]
    ratios = np.asarray(evidence.ratio, dtype=np.float64)[scored]
    finite = ratios[np.isfinite(ratios) & (ratios > 0)]
    if not len(finite):
        return None
    order = np.argsort(-np.asarray(evidence.per_target_gain)[scored], kind="stable")
    chosen = order[np.unique(np.linspace(0, len(order) - 1, min(TARGETS, len(order))).round().astype(int))]
    t = np.geomspace(finite.min() / MARGIN, finite.max() * MARGIN, POINTS)
    mapped = fixed_point_map(evidence, t)
    kept = [place for place in chosen if np.isfinite(mapped[place]).all()]
    if not kept:
        return None
    return Convergence(
        targets=tuple(str(evidence.targets[scored[place]]) for place in kept),
        t=tuple(_short(value) for value in t),
        mapped=tuple(tuple(_short(value) for value in mapped[place]) for place in kept),
        fixed_points=tuple(_short(ratios[p]) if np.isfinite(ratios[p]) else None for p in kept),
    )


def _short(value: float) -> float:
    """Five figures are more than a picture shows."""
    return float(f"{value:.5g}")
