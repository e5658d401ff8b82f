"""LogME of the final features and of every tapped layer of one model, and how its fixed-point iteration looks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.errors import EvidenceWarning
from hubscout.runs.row import Convergence, LayerScore
from hubscout.tasks.kinds import kind_of

if TYPE_CHECKING:
    from hubscout.evidence import Evidence, Statistics
    from hubscout.evidence.statistics import KeptRows
    from hubscout.features import Extraction
    from hubscout.tasks import Task


FEW_ROWS = 4096
"""Up to here there may be fewer rows than dimensions: features are looked at before D×D sums are made of them."""


@dataclass(frozen=True)
class LayerEvidence:
    """The evidence of one layer, and rows of it to predict from all others; None where none were kept."""

    evidence: Evidence
    kept: KeptRows | None


def scan_layers(
    extractions: Sequence[Extraction],
    task: Task,
    choose: Callable[[Sequence[LayerScore]], str],
    *,
    center: bool,
    blocks: int,
) -> tuple[tuple[LayerScore, ...], LayerEvidence | None]:
    """LogME of every layer there is, and the evidence of the one that `choose` names among those seen so far.

    The sums of one layer are in memory at a time, and the spectrum of the chosen one beside it.
    """
    chosen: LayerEvidence | None = None
    layers: list[LayerScore] = []

    def scan(name: str) -> LayerEvidence | None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EvidenceWarning)  # it becomes a note of the row
            found = layer_evidence(extractions, name, task, center=center, blocks=blocks)
        layers.append(_layer_score(name, found.evidence, task.kind))
        return found if choose(layers) == name else chosen

    for name in extractions[0].layers:
        chosen = scan(name)
    return (tuple(layers) if len(layers) > 1 else ()), chosen


def _layer_score(name: str, evidence: Evidence, kind: str) -> LayerScore:
    from hubscout.metrics import score

    value = score("logme", evidence=evidence, kind=kind)
    return LayerScore(
        name=name,
        score=value.value,
        standard_error=value.standard_error,
        gain=float(evidence.gain),
        feature_dim=int(evidence.feature_dim),
        unbounded=bool(evidence.unbounded),
    )


def layer_evidence(
    extractions: Sequence[Extraction], layer: str, task: Task, *, center: bool, blocks: int
) -> LayerEvidence:
    """The evidence of one layer over all extractions together.

    Where there are fewer rows than dimensions and the features were kept, they are used themselves: an n×n problem
    in place of a D×D one, and no digits are lost to sums of squares when the labels are fitted without residue.
    """
    from hubscout.evidence import logme, maximize_evidence
    from hubscout.evidence.statistics import KeptRows
    from hubscout.features.extraction_plan import kept_of_row

    n = sum(extraction.n for extraction in extractions)
    if n <= FEW_ROWS and all(_kept(extraction, layer) for extraction in extractions):
        features = np.concatenate([extraction.features(layer) for extraction in extractions])
        if n < features.shape[1]:
            kind = kind_of(task.kind)
            targets = np.concatenate([extraction.targets for extraction in extractions])
            evidence = logme(
                _on_device(features, extractions[0].device),
                targets,
                kind=kind.row_kind,
                classes=range(len(task.target_names)) if kind.has_classes else None,
                target_names=task.target_names,
                center=center,
                blocks=np.concatenate([block_of_rows(extraction, task, blocks) for extraction in extractions]),
            )
            samples = [
                np.repeat(extraction.rows, kind.row_counts(task.train.targets, extraction.rows))
                for extraction in extractions
            ]
            kept = KeptRows(features, targets, np.concatenate(samples))
            if task.train.groups is not None:  # but for those that are too large to be left out
                kept = kept.take(kept_of_row(task, "train", np.unique(kept.samples))[kept.samples] >= 0)
            return LayerEvidence(evidence, kept if len(kept.samples) else None)
    statistics = merged(extractions, layer)
    return LayerEvidence(maximize_evidence(statistics, center=center), KeptRows.joined(statistics.kept))


def _on_device(features: np.ndarray, device: str) -> Any:
    """On a GPU if the network ran there: as sums are, the n×n problem is solved where the features come from."""
    if not device.startswith("cuda"):
        return features
    import torch

    return torch.from_numpy(features).to(device)


def block_of_rows(extraction: Extraction, task: Task, blocks: int) -> np.ndarray:
    """The block of each row of features: that of its sample, as the statistics count it."""
    from hubscout.features.extraction_plan import assign_blocks

    of_samples = assign_blocks(len(task.train), blocks, task.fingerprint, task.train.groups)[extraction.rows]
    return np.repeat(of_samples, kind_of(task.kind).row_counts(task.train.targets, extraction.rows))


def merged(extractions: Sequence[Extraction], layer: str) -> Statistics:
    """The statistics of all extractions together."""
    return reduce(add, (extraction.statistics[layer] for extraction in extractions))


def _kept(extraction: Extraction, layer: str) -> bool:
    return all(extraction.store.has(shard, layer) for shard in extraction.shards)


TARGETS = 6
POINTS = 41
MARGIN = 30.0
"""The grid reaches this factor beyond the smallest and the largest fixed point."""


def convergence_of(evidence: Evidence) -> Convergence | None:
    """Look at the best and the worst explained target and some between; None where no target has a finite t."""
    from hubscout.evidence import fixed_point_map

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
