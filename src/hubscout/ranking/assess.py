"""One model on one task: run it, score it, and write down what it cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from hubscout.engines.job import remembered
from hubscout.errors import InputError
from hubscout.features.freed_memory import give_back_freed
from hubscout.features.options import ExtractionOptions
from hubscout.features.result import takes_rows
from hubscout.hubs.backbone import check_modality
from hubscout.hubs.pooling import MEAN_LAYER
from hubscout.ranking.expected import left_out
from hubscout.ranking.latency import Latency, measure_latency
from hubscout.ranking.layer_scores import LayerEvidence, convergence_of, merged, scan_layers
from hubscout.ranking.limits import check_card, check_first_latency, check_latency
from hubscout.runs.profiler import profiled, step
from hubscout.runs.row import LayerScore, Row, best_layer_of
from hubscout.tasks.kinds import kind_of

if TYPE_CHECKING:
    from hubscout.evidence import Evidence
    from hubscout.features import Extraction
    from hubscout.features.decoded import PreparedPool
    from hubscout.features.feature_cache import FeatureCache
    from hubscout.hubs import Backbone
    from hubscout.metrics import Score
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


Layer = Literal["final", "best", "mean"]
"""What a model is ranked by: its features before the head, its best layer, or the average of its layers."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How models are assessed; the same for every model of a ranking."""

    metrics: tuple[str, ...] = ("logme",)
    layer: Layer = "final"
    center: bool = False
    measure_latency: bool = True
    extraction: ExtractionOptions = field(default_factory=ExtractionOptions)
    cache: FeatureCache | None = field(default=None, compare=False)
    observer: Observer | None = field(default=None, compare=False)
    prepared: PreparedPool | None = field(default=None, compare=False)
    """Inputs that were prepared for one model, for the next of the same preprocessing."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Field of a row → the most that a model may have: one that has more is not run."""
    profile: bool = False
    """Whether rows say where the seconds went."""
    in_worker: bool = False
    """Whether this is a worker of an engine, with others beside it on the machine."""


class Model(Protocol):
    """What can be assessed: a name, and how to open what it names."""

    @property
    def identifier(self) -> str: ...

    def open(self, observer: Observer | None = None) -> Backbone: ...


def assess(model: Model, task: Task, settings: Settings, increments: Sequence[np.ndarray | None]) -> Row:
    """Score a model on the train rows of `increments`, one after the other; None is all rows.

    The row lacks what depends on the other models; its `parts` are what metrics of the whole zoo make that from.

    A progressive ranking extends its subset by increments: those that ran before come from the cache, and the
    additive statistics of all increments together are those of one pass over all the rows.
    """
    with profiled(settings.profile) as profiler:
        row = run_model(model, task, settings, increments).score()
        return row if profiler is None else replace(row, profile=profiler.profile())


def run_model(
    model: Model,
    task: Task,
    settings: Settings,
    increments: Sequence[np.ndarray | None],
    *,
    quiet: Callable[[], object] = lambda: None,
) -> Unscored:
    """The first half of `assess`: all that the network itself is needed for; `quiet` is called before it is timed."""
    started = time.perf_counter()
    with step("load"):
        backbone = model.open(settings.observer)
    check_modality(backbone.card, task.modality)
    check_card(backbone.card, settings.limits)
    if "latency_seconds" in settings.limits:
        quiet()
    check_first_latency(backbone, task.train.inputs, settings.limits, settings.extraction.device)
    if len(increments) > 1 and settings.observer is not None:
        settings = replace(settings, observer=_without_cached(settings.observer))
    extractions = [_extract(backbone, task, settings, rows) for rows in increments]
    if len({extraction.backend for extraction in extractions}) > 1:
        # One of them could not be accelerated to its end, and features of one model may not mix.
        settings = replace(settings, extraction=settings.extraction.replace(accelerate="off"))
        extractions = [_extract(backbone, task, settings, rows) for rows in increments]
    latency = None
    if settings.measure_latency:
        quiet()
        with step("latency"):
            sample = task.train.inputs[int(extractions[0].rows[0])]
            device = extractions[0].device
            shared = settings.in_worker and device.startswith("cuda")
            latency = measure_latency(backbone, sample, device=device, shared=shared)
        check_latency(latency, settings.limits)
    del backbone  # scores need none of it
    give_back_freed()
    return Unscored(model.identifier, task, settings, extractions, latency, time.perf_counter() - started)


@dataclass(frozen=True)
class Unscored:
    """A model that ran: its features on all increments, and what that took."""

    identifier: str
    task: Task
    settings: Settings
    extractions: Sequence[Extraction]
    latency: Latency | None
    seconds: float

    def score(self) -> Row:
        """The row of the model."""
        started = time.perf_counter()
        row = _row(self)
        return replace(row, seconds=self.seconds + time.perf_counter() - started)


def _row(ran: Unscored) -> Row:
    extractions, task, settings, latency = ran.extractions, ran.task, ran.settings, ran.latency
    card = extractions[0].card
    with step("score"):
        layers, found = _scan_layers(extractions, task, settings)
        chosen = _chosen_layer(layers, settings)
        evidence = found.evidence if found is not None else None
        scores, parts, notes = _score(extractions, chosen, evidence, task, settings)
        predicted = left_out(found.evidence, found.kept, task) if found is not None and found.kept is not None else None
        if found is not None and predicted is None and task.train.groups is not None:
            notes.append("no expected result: the groups are too large or too few to predict one from the others")
    first = scores.get(settings.metrics[0])  # none for a metric that needs the whole zoo: it is filled in at the end
    blocks = first.evidence if first is not None else None
    timed = [extraction for extraction in extractions if extraction.samples_per_second > 0]
    slowness = [len(extraction.rows) / extraction.samples_per_second for extraction in timed]
    facts = {name: getattr(card, name) for name in _CARD_FACTS}
    return Row(
        identifier=ran.identifier,
        score=first.signed_value if first is not None else 0.0,
        scores={name: score.value for name, score in scores.items()},
        standard_error=first.standard_error if first is not None else None,
        standard_errors={n: s.standard_error for n, s in scores.items() if s.standard_error is not None},
        gain=evidence.gain if evidence is not None else None,
        per_target=_gains_by_target(evidence, task) if evidence else (),
        expected=predicted.expected if predicted is not None else (),
        odds=predicted.odds if predicted is not None else None,
        block_scores=tuple(map(float, blocks.block_scores)) if blocks is not None else (),
        block_sizes=tuple(map(int, blocks.block_sizes)) if blocks is not None else (),
        layer=chosen,
        layers=layers,
        convergence=convergence_of(evidence) if evidence is not None else None,
        n=sum(extraction.n for extraction in extractions),
        feature_dim=evidence.feature_dim if evidence else card.feature_dim,
        params=card.params,
        bytes=card.bytes,
        flops=card.flops,
        samples_per_second=sum(len(e.rows) for e in timed) / sum(slowness) if timed else None,
        latency_seconds=latency.seconds if latency is not None else None,
        latency_busy=latency is not None and latency.busy,
        card={name: ", ".join(fact) if isinstance(fact, tuple) else fact for name, fact in facts.items()},
        from_cache=all(extraction.from_cache for extraction in extractions),
        backend=extractions[0].backend,
        notes=tuple(dict.fromkeys([*card.notes, *(m for e in extractions for m in e.messages), *notes])),
        parts=parts,
    )


def needs(settings: Settings, kind: str) -> set[str]:
    """What the metrics want beside statistics: features, logits."""
    from hubscout.metrics import lookup

    return {need for name in settings.metrics for need in lookup(name, kind).needs}


def resources(settings: Settings) -> dict[str, Any]:
    """The inputs that were prepared for earlier models, and the threads that prepare others, for `extract`."""
    import torch

    from hubscout.features.decoded import PreparedPool, default_limit_bytes
    from hubscout.features.preparing import default_threads

    if not settings.in_worker:
        return {"prepared": settings.prepared}
    pool = remembered("prepared", "inputs", lambda: PreparedPool(default_limit_bytes() // 4))
    # Never processes: a machine has several of these workers, each with a share of its cores, as torch's threads say.
    return {"prepared": pool, "workers": min(default_threads(), max(2, torch.get_num_threads()))}


def _extract(backbone: Backbone, task: Task, settings: Settings, increment: np.ndarray | None) -> Extraction:
    from hubscout.features import extract

    wanted = needs(settings, task.kind)
    samples = range(len(task.train)) if increment is None else increment
    rows = int(kind_of(task.kind).row_counts(task.train.targets, samples).sum())
    # With layers, sums of all of them at once are more than the rows are.
    blocks = settings.extraction.blocks * (2 if settings.extraction.layers else 1)
    few = takes_rows(rows, backbone.card.feature_dim, blocks)
    return extract(
        backbone,
        task,
        split="train",
        indices=increment,
        cache=settings.cache,
        statistics="statistics" in wanted,
        keep_features=bool({"features", "logits"} & wanted) or few,
        observer=settings.observer,
        options=settings.extraction,
        **resources(settings),
    )


def _without_cached(observer: Observer) -> Observer:
    """Keep increments from display that ran in an earlier stage: to a person a model runs once per stage."""
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


def _scan_layers(
    extractions: Sequence[Extraction], task: Task, settings: Settings
) -> tuple[tuple[LayerScore, ...], LayerEvidence | None]:
    """LogME of each layer and the evidence of the chosen one, where a metric goes by it."""
    from hubscout.metrics import lookup

    if not any(lookup(name, task.kind).from_evidence for name in settings.metrics):
        return (), None
    choose = partial(_chosen_layer, settings=settings)
    return scan_layers(extractions, task, choose, center=settings.center, blocks=settings.extraction.blocks)


def _score(
    extractions: Sequence[Extraction], layer: str, evidence: Evidence | None, task: Task, settings: Settings
) -> tuple[dict[str, Score], dict[str, dict[str, float]], list[str]]:
    """The scores of a layer by metric, the parts of metrics that need the whole zoo, and notes."""
    from hubscout.evidence.evidence import caveats
    from hubscout.metrics import lookup, score, score_parts

    wanted = needs(settings, task.kind)
    inputs: dict[str, Any] = {
        "features": _joined([e.features(layer) for e in extractions]) if "features" in wanted else None,
        "logits": _joined([e.logits for e in extractions]) if "logits" in wanted else None,
        "card": extractions[0].card,
        "evidence": evidence,
        "targets": _joined([e.targets for e in extractions]),
        "groups": _groups(extractions, task),
        "kind": task.kind,
    }
    all_sums = cache(lambda: merged(extractions, layer))
    scores: dict[str, Score] = {}
    parts: dict[str, dict[str, float]] = {}
    notes: list[str] = []
    for name in settings.metrics:
        entry = lookup(name, task.kind)
        try:
            if entry.level == "zoo":
                parts[name] = score_parts(name, **inputs)
                continue
            sums = "statistics" in entry.needs and not entry.from_evidence
            scores[name] = score(name, **inputs, statistics=all_sums() if sums else None)
        except InputError as error:
            # A model without a source head has no LEEP: that is a gap in the table, unless it is what ranks.
            if name == settings.metrics[0]:
                raise
            headless = "logits" in entry.needs and inputs["logits"] is None
            notes.append(f"no {name}: it needs a source head" if headless else f"{name}: {error}")
    return scores, parts, notes if evidence is None else notes + caveats(evidence)


def _chosen_layer(layers: Sequence[LayerScore], settings: Settings) -> str:
    if settings.layer == "mean":
        return MEAN_LAYER
    best = best_layer_of(layers) if settings.layer == "best" else None
    return best.name if best is not None else ""


def _joined(arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    there = [array for array in arrays if array is not None]
    if len(there) < len(arrays):
        return None
    return there[0] if len(there) == 1 else np.concatenate(there)


def _groups(extractions: Sequence[Extraction], task: Task) -> np.ndarray | None:
    """The group of each row of features, the sentence of a word without any; None where a row is a sample by itself."""
    kind, groups = kind_of(task.kind), task.train.groups
    if groups is None:
        if not kind.rows_are_words:
            return None
        groups = np.arange(len(task.train))
    rows = np.concatenate([extraction.rows for extraction in extractions])
    return np.repeat(groups[rows], kind.row_counts(task.train.targets, rows))


def _gains_by_target(evidence: Evidence, task: Task) -> tuple[float, ...]:
    """Gains in the order of the task's target names; a class that no row of the subset has gains nothing."""
    gains = dict(zip(evidence.targets, evidence.per_target_gain, strict=True))
    return tuple(0.0 if name in evidence.unscored else float(gains.get(name, 0.0)) for name in task.target_names)
