"""LogME of the final features and of every tapped layer of one model."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hubscout.errors import EvidenceWarning
from hubscout.runs.row import LayerScore

if TYPE_CHECKING:
    from hubscout.evidence import Statistics
    from hubscout.features import Extraction
    from hubscout.metrics import Score
    from hubscout.tasks import Task

FEW_ROWS = 4096
"""Up to here there may be fewer rows than dimensions: features are looked at before D×D sums are made of them."""


def scan_layers(
    extractions: Sequence[Extraction], task: Task, *, center: bool, blocks: int
) -> tuple[tuple[LayerScore, ...], dict[str, Score]]:
    """LogME of every layer there is; the sums of one layer are in memory at a time."""
    found: dict[str, Score] = {}
    layers: list[LayerScore] = []
    for name in extractions[0].layers:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EvidenceWarning)  # it becomes a note of the row
            value = score_layer(extractions, name, task, center=center, blocks=blocks)
        found[name] = value
        evidence = value.evidence
        assert evidence is not None
        layers.append(
            LayerScore(
                name=name, score=value.value, standard_error=value.standard_error, gain=float(evidence.gain),
                feature_dim=int(evidence.feature_dim),
            )
        )  # fmt: skip
    return (tuple(layers) if len(layers) > 1 else ()), found


def score_layer(extractions: Sequence[Extraction], layer: str, task: Task, *, center: bool, blocks: int) -> Score:
    """LogME of one layer over all extractions together.

    Where there are fewer rows than dimensions and the features were kept, they are used themselves: an n×n problem
    in place of a D×D one, and no digits are lost to sums of squares when the labels are fitted without residue.
    """
    from hubscout.evidence import logme
    from hubscout.metrics import Score, score

    n = sum(extraction.n for extraction in extractions)
    if n <= FEW_ROWS and all(_kept(extraction, layer) for extraction in extractions):
        features = np.concatenate([extraction.features(layer) for extraction in extractions])
        if n < features.shape[1]:
            classes = task.kind in ("classification", "tagging")
            evidence = logme(
                features,
                np.concatenate([extraction.targets for extraction in extractions]),
                kind="classification" if classes else task.kind,
                classes=range(len(task.target_names)) if classes else None,
                target_names=task.target_names,
                center=center,
                blocks=np.concatenate([block_of_rows(extraction, task, blocks) for extraction in extractions]),
                keep_spectrum=False,
            )
            return Score(evidence.score, evidence.standard_error, "logme", details={"evidence": evidence})
    return score("logme", statistics=merged(extractions, layer), kind=task.kind, center=center)


def block_of_rows(extraction: Extraction, task: Task, blocks: int) -> np.ndarray:
    """The block of each row of features: that of its sample, as the statistics count it."""
    from hubscout.features.sharding import assign_blocks

    of_samples = assign_blocks(len(task.train), blocks, task.fingerprint)[extraction.rows]
    if task.kind != "tagging":
        return of_samples
    return np.repeat(of_samples, [len(task.train.targets[row]) for row in extraction.rows])


def merged(extractions: Sequence[Extraction], layer: str) -> Statistics:
    """The statistics of all extractions together."""
    first, *rest = (extraction.statistics[layer] for extraction in extractions)
    for statistics in rest:
        first = first + statistics
    return first


def _kept(extraction: Extraction, layer: str) -> bool:
    return all(extraction.store.has(shard, layer) for shard in extraction.shards)
