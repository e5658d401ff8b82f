"""One model on one task: run it, score it, and write down what it cost."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hubscout.errors import InputError
from hubscout.features.options import ExtractionOptions
from hubscout.hubs.backbone import check_modality
from hubscout.ranking.candidates import Candidate
from hubscout.ranking.convergence import convergence_of
from hubscout.ranking.expected import left_out
from hubscout.ranking.layer_scores import FEW_ROWS, LayerEvidence, merged, scan_layers
from hubscout.runs.row import LayerScore, Row

if TYPE_CHECKING:
    from hubscout.evidence import Evidence
    from hubscout.features import Extraction
    from hubscout.features.cache import FeatureCache
    from hubscout.features.decoded import PreparedPool
    from hubscout.hubs import Backbone, ModelCard
    from hubscout.metrics import Score
    from hubscout.ranking.latency import Latency
    from hubscout.runs.events import Observer
    from hubscout.tasks import Task

_CARD_FACTS = (
    "architecture",
    "modalities",
    "source_data",
    "source_accuracy",
    "source_classes",
    "licence",
    "downloads",
    "commit",
    "weights_fingerprint",
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How models are assessed; the same for every model of a ranking."""

    metrics: tuple[str, ...] = ("logme",)
    layer: Literal["final", "best"] = "final"
    center: bool = False
    measure_latency: bool = True
    extraction: ExtractionOptions = ExtractionOptions()
    cache: FeatureCache | None = field(default=None, compare=False)
    observer: Observer | None = field(default=None, compare=False)
    prepared: PreparedPool | None = field(default=None, compare=False)
    """Inputs that were prepared for one model, for the next of the same preprocessing."""


@dataclass(frozen=True)
class Assessment:
    """A row in the making: all but what depends on the other models. `parts` are those of zoo-level metrics."""

    row: Row
    parts: Mapping[str, Mapping[str, float]]


def assess(candidate: Candidate, task: Task, settings: Settings, pieces: Sequence[np.ndarray | None]) -> Assessment:
    """Score a model on the train rows of `pieces`, one after the other; None is all rows.

    A progressive ranking extends its subset piece by piece: those that ran before come from the cache, and the
    additive statistics of all pieces together are those of one pass over all the rows.
    """
    started = time.perf_counter()
    backbone = candidate.open(settings.observer)
    check_modality(backbone.card, task.modality)
    if len(pieces) > 1 and settings.observer is not None:
        settings = replace(settings, observer=_without_cached(settings.observer))
    extractions = [_extract(backbone, task, settings, piece) for piece in pieces]
    latency = _latency(backbone, task, extractions[0], settings) if settings.measure_latency else None
    return assess_extractions(candidate, extractions, task, settings, latency=latency, started=started)


def assess_extractions(
    candidate: Candidate,
    extractions: Sequence[Extraction],
    task: Task,
    settings: Settings,
    *,
    latency: Latency | None,
    started: float | None = None,
) -> Assessment:
    """Score what running a model gave, here or elsewhere. Without `started`, the seconds of running it count too."""
    began = time.perf_counter() - sum(e.seconds for e in extractions) if started is None else started
    card = extractions[0].card
    scores, parts, remarks, layers, chosen_evidence = _score(extractions, card, task, settings)
    evidence = chosen_evidence.evidence if chosen_evidence is not None else None
    predicted = None
    if chosen_evidence is not None and chosen_evidence.kept is not None:
        predicted = left_out(chosen_evidence.evidence, chosen_evidence.kept, task)
    first = scores.get(settings.metrics[0])  # none for a metric that needs the whole zoo: it is filled in at the end
    blocks = first.evidence if first is not None else None
    ran = [extraction for extraction in extractions if extraction.samples_per_second > 0]
    slowness = [len(extraction.rows) / extraction.samples_per_second for extraction in ran]
    chosen = _chosen_layer(layers, settings)
    row = Row(
        identifier=candidate.identifier,
        score=first.signed_value if first is not None else 0.0,
        scores={name: score.value for name, score in scores.items()},
        standard_error=first.standard_error if first is not None else None,
        standard_errors={n: s.standard_error for n, s in scores.items() if s.standard_error is not None},
        gain=evidence.gain if evidence is not None else None,
        per_target=_gains_by_target(evidence, task) if evidence else (),
        expected=predicted.expected if predicted is not None else (),
        odds=predicted.odds if predicted is not None else None,
        block_scores=_numbers(blocks.block_scores) if blocks is not None else (),
        block_sizes=tuple(int(size) for size in blocks.block_sizes) if blocks is not None else (),
        layer=chosen,
        layers=layers,
        convergence=convergence_of(evidence) if evidence is not None else None,
        n=sum(extraction.n for extraction in extractions),
        feature_dim=evidence.feature_dim if evidence else card.feature_dim,
        params=card.params,
        bytes=card.bytes,
        flops=card.flops,
        samples_per_second=sum(len(e.rows) for e in ran) / sum(slowness) if ran else None,
        latency_seconds=latency.seconds if latency is not None else None,
        latency_busy=latency is not None and latency.busy,
        seconds=time.perf_counter() - began,
        card={name: _plain(value) for name, value in asdict(card).items() if name in _CARD_FACTS},
        from_cache=all(extraction.from_cache for extraction in extractions),
        notes=tuple(dict.fromkeys([*card.notes, *(m for e in extractions for m in e.messages), *remarks])),
    )
    return Assessment(row, parts)


def needs(settings: Settings, kind: str) -> set[str]:
    """What the metrics want beside statistics: features, logits."""
    from hubscout.metrics import lookup

    return {need for name in settings.metrics for need in lookup(name, kind).needs}


def features_are_needed(settings: Settings, kind: str, rows: int, feature_dim: int) -> bool:
    """Whether features must be kept until the model is scored: a metric wants them, or they are smaller than sums."""
    return bool({"features", "logits"} & needs(settings, kind)) or rows <= min(FEW_ROWS, feature_dim)


def _extract(backbone: Backbone, task: Task, settings: Settings, piece: np.ndarray | None) -> Extraction:
    from hubscout.features import extract

    wanted = needs(settings, task.kind)
    rows = len(task.train) if piece is None else len(piece)
    return extract(
        backbone,
        task,
        split="train",
        indices=piece,
        cache=settings.cache,
        statistics="statistics" in wanted,
        keep_features=features_are_needed(settings, task.kind, rows, backbone.card.feature_dim),
        observer=settings.observer,
        prepared=settings.prepared,
        options=settings.extraction,
    )


def _without_cached(observer: Observer) -> Observer:
    """Keep pieces from display that a stage before has run already: to a person a model runs once a stage."""
    from hubscout.runs.events import Event, Finished, Started

    hidden: set[str] = set()

    def pass_on(event: Event) -> None:
        if isinstance(event, Started) and event.rows_done == event.rows:
            hidden.add(event.model)
        elif isinstance(event, Finished) and event.model in hidden:
            hidden.discard(event.model)
        else:
            observer(event)

    return pass_on


def _score(
    extractions: Sequence[Extraction], card: ModelCard, task: Task, settings: Settings
) -> tuple[dict[str, Score], dict[str, dict[str, float]], list[str], tuple[LayerScore, ...], LayerEvidence | None]:
    from hubscout.evidence.table import doubts
    from hubscout.metrics import lookup, score, score_parts

    layers: tuple[LayerScore, ...] = ()
    by_layer: dict[str, LayerEvidence] = {}
    if any(lookup(name, task.kind).from_evidence for name in settings.metrics):
        layers, by_layer = scan_layers(extractions, task, center=settings.center, blocks=settings.extraction.blocks)
    chosen = _chosen_layer(layers, settings)
    wanted = needs(settings, task.kind)
    inputs: dict[str, Any] = {
        "features": _joined([e.features(chosen) for e in extractions]) if "features" in wanted else None,
        "logits": _joined([e.logits for e in extractions]) if "logits" in wanted else None,
        "card": card,
        "evidence": by_layer[chosen].evidence if chosen in by_layer else None,
        "targets": _joined([e.targets for e in extractions]),
        "kind": task.kind,
    }
    scores: dict[str, Score] = {}
    parts: dict[str, dict[str, float]] = {}
    remarks: list[str] = []
    for name in settings.metrics:
        entry = lookup(name, task.kind)
        try:
            if entry.level == "zoo":
                parts[name] = score_parts(name, **inputs)
                continue
            sums = "statistics" in entry.needs and not entry.from_evidence
            scores[name] = score(name, **inputs, statistics=merged(extractions, chosen) if sums else None)
        except InputError as error:
            # A model without a source head has no LEEP: that is a gap in the table, unless it is what ranks.
            if name == settings.metrics[0]:
                raise
            headless = "logits" in entry.needs and inputs["logits"] is None
            remarks.append(f"no {name}: it needs a source head" if headless else f"{name}: {error}")
    found = by_layer.get(chosen)
    if found is not None:
        remarks += doubts(found.evidence)
    return scores, parts, remarks, layers, found


def _chosen_layer(layers: Sequence[LayerScore], settings: Settings) -> str:
    if settings.layer == "best" and layers:
        return max(layers, key=lambda layer: layer.score).name
    return ""


def _joined(arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    there = [array for array in arrays if array is not None]
    if len(there) < len(arrays):
        return None
    return there[0] if len(there) == 1 else np.concatenate(there)


def _gains_by_target(evidence: Evidence, task: Task) -> tuple[float, ...]:
    """Gains in the order of the task's target names; a class that no row of the subset has gains nothing."""
    gains = dict(zip(evidence.targets, evidence.per_target_gain, strict=True))
    return tuple(0.0 if name in evidence.unscored else float(gains.get(name, 0.0)) for name in task.target_names)


def _latency(backbone: Backbone, task: Task, extraction: Extraction, settings: Settings) -> Latency | None:
    from hubscout.ranking.latency import measure_latency

    sample = task.train.inputs[int(extraction.rows[0])]
    return measure_latency(backbone, sample, device=extraction.device)


def _numbers(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _plain(value: Any) -> Any:
    return ", ".join(value) if isinstance(value, tuple) else value
