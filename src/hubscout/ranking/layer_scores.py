"""LogME of the final features and of every tapped layer of one model, and how its fixed-point iteration looks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.features.extraction_plan import assign_blocks, kept_of_row
from hubscout.features.result import takes_rows
from hubscout.runs.row import Convergence, LayerScore
from hubscout.tasks.kinds import kind_of

if TYPE_CHECKING:
    from hubscout.evidence import Evidence, Statistics
    from hubscout.evidence.statistics import KeptRows
    from hubscout.features import Extraction
    from hubscout.tasks import Task


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
    from hubscout.evidence.maximize import unwarned

    chosen: LayerEvidence | None = None
    layers: list[LayerScore] = []

    def scan(name: str) -> LayerEvidence | None:
        with unwarned():  # it becomes a note of the row
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

    Where the features were kept and are no more than sums of them would be, they are used themselves. With fewer rows
    than dimensions that is an n×n problem in place of a D×D one, and no digits are lost to sums of squares when the
    labels are fitted without residue.
    """
    from hubscout.evidence import logme, maximize_evidence
    from hubscout.evidence.maximize import MOST_ROUNDING
    from hubscout.evidence.statistics import KeptRows

    if not _are_rows(extractions, layer, blocks):
        statistics = merged(extractions, layer)
        return LayerEvidence(maximize_evidence(statistics, center=center), KeptRows.joined(statistics.kept))
    kind = kind_of(task.kind)
    parts = [
        (
            extraction.features(layer),
            extraction.targets,
            np.repeat(extraction.rows, kind.row_counts(task.train.targets, extraction.rows)),
            block_of_rows(extraction, task, blocks),
        )
        for extraction in extractions
    ]
    features, targets, samples, block_of_row = map(np.concatenate, zip(*parts, strict=True))
    evidence = logme(
        _on_device(features, extractions[0].device),
        targets,
        kind=kind.row_kind,
        classes=range(len(task.target_names)) if kind.has_classes else None,
        target_names=task.target_names,
        center=center,
        blocks=block_of_row,
        most_rounding=MOST_ROUNDING if len(features) < features.shape[1] else math.inf,
    )
    return LayerEvidence(evidence, _kept_rows(task, KeptRows(features, targets, samples)))


def _are_rows(extractions: Sequence[Extraction], layer: str, blocks: int) -> bool:
    """Whether the rows of a layer are all there, and so few that no sums are needed."""
    if not all(_kept(extraction, layer) for extraction in extractions):
        return False
    first = extractions[0]
    dim = first.store.read(first.shards[0], layer).shape[1]
    return takes_rows(sum(extraction.n for extraction in extractions), dim, blocks)


def _kept_rows(task: Task, rows: KeptRows) -> KeptRows | None:
    """Those to be predicted from all others; None where there are none."""
    stays = kept_of_row(task, "train", np.unique(rows.samples))[rows.samples] >= 0
    if stays.all():
        return rows
    return rows.take(stays) if stays.any() else None


def _on_device(features: np.ndarray, device: str) -> Any:
    """On a GPU if the network ran there: as sums are, the n×n problem is solved where the features come from."""
    if not device.startswith("cuda"):
        return features
    import torch

    return torch.from_numpy(features).to(device)


def block_of_rows(extraction: Extraction, task: Task, blocks: int) -> np.ndarray:
    """The block of each row of features: that of its sample, as the statistics count it."""
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
