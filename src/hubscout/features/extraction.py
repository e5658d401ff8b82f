"""`extract`: one pass of a model over a task gives features, source logits and sufficient statistics."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.errors import AccelerationError, CacheError, check_keywords, keywords
from hubscout.features.extraction_plan import ExtractionPlan
from hubscout.features.extractor import Extractor
from hubscout.features.feature_keys import describe
from hubscout.features.options import TORCH, ExtractionOptions, pick_backend
from hubscout.features.precision import BatchSize, pick_device, pick_precision, wait_until_warm
from hubscout.features.result import Extraction
from hubscout.hubs.downloading import Downloaded, listening
from hubscout.runs.events import Downloading, Finished, Log, Message, Observer, silent

if TYPE_CHECKING:
    from hubscout.features.decoded import PreparedPool
    from hubscout.features.feature_cache import FeatureCache, OpenEntry
    from hubscout.hubs import Backbone
    from hubscout.tasks import Task


def extract(
    model: Backbone | str,
    task: Task,
    *,
    split: str = "train",
    cache: FeatureCache | None = None,
    statistics: bool = True,
    keep_features: bool = True,
    indices: Sequence[int] | np.ndarray | None = None,
    shards: Sequence[int] | None = None,
    shard_rows: int | None = None,
    prepared: PreparedPool | None = None,
    workers: int | None = None,
    observer: Observer | None = None,
    options: ExtractionOptions | None = None,
    **changes: Any,
) -> Extraction:
    """Run a model over a split once.

    Args:
        model: a backbone, or an identifier that `hubscout.hubs.load` opens.
        task: the labelled data.
        split: which part of it. Models are ranked on "train".
        cache: where features and logits are kept on disk. Shards that are there already are not run again, and a run
            that was killed goes on after its last finished shard. Without one, features stay in memory.
        statistics: whether to accumulate sufficient statistics on the way.
        keep_features: False keeps statistics alone: O(D²) memory however many rows there are.
        indices: run these rows alone, in this order. Blocks are still those of the whole split.
        shards: run these shards alone, by number: the unit of work that is spread over machines.
        shard_rows: rows per shard; None chooses by the number of rows.
        prepared: prepared inputs that are kept for the next model with the same preprocessing.
        workers: threads that read and prepare inputs. None chooses by the number of cores, and takes processes instead
            where there are many images for a GPU.
        observer: hears of progress; see `hubscout.runs.events`.
        options: how the model is run; or as keywords:
        changes: fields of `ExtractionOptions`, such as `layers`, `device` and `skip_bad`.

    Returns:
        Features, source logits and statistics of the rows that went through, and how they were made.

    Raises:
        TaskError: a sample cannot be read (its name is in the message).
        ModelError: the model cannot be loaded or run, or gives features that are not finite.
        UnknownNameError: no option of that name.

    Example:
        >>> import torch
        >>> from hubscout import Task
        >>> from hubscout.hubs.model_objects import register
        >>> network = torch.nn.Linear(6, 3)
        >>> task = Task.from_arrays(np.eye(8, 6, dtype="float32"), ["a", "b"] * 4)
        >>> extract(register(network), task).features().shape == (len(task.train), 3)
        True

    """
    started = time.perf_counter()
    check_keywords(changes, {*keywords(extract), *vars(ExtractionOptions())})
    chosen = ExtractionOptions.of(**changes) if options is None else options.replace(**changes)
    backbone = open_backbone(model, observer) if isinstance(model, str) else model
    device = pick_device(chosen.device)
    wait_until_warm(device)
    job = ExtractionPlan.prepare(
        backbone, task, split, chosen.layers or (), chosen.blocks, indices, shards, shard_rows, device
    )
    log = Log(backbone.card.identifier, observer or silent)
    backend = pick_backend(chosen.accelerate, job, device, pick_precision(chosen.precision, device))

    def run(backend: str) -> Extraction:
        extractor = Extractor(
            job=job,
            log=log,
            options=chosen,
            device=device,
            backend=backend,
            cache=cache,
            size=BatchSize.choose(chosen.batch_size, task.modality, device, log.tell),
            statistics=statistics,
            keep_features=keep_features,
            prepared=prepared,
            workers=workers,
        )
        with ExitStack() as stack:
            return extractor.execute(_open_entry(extractor, stack, exclusive=shards is None), started)

    try:
        result = run(backend)
    except AccelerationError as error:
        # From the start: one model's features come from one backend.
        if str(error):
            log.tell(f"going on with torch, since {backend} does not do for this model: {error}")
        result = run(TORCH)
    log.observer(Finished(backbone.card.identifier, result.seconds))
    return result


def is_cached(
    backbone: Backbone, task: Task, split: str, cache: FeatureCache, options: ExtractionOptions | None = None
) -> bool:
    """Whether `extract` with the same arguments would find the features of every sample in the cache.

    Args:
        backbone: the model.
        task: the labelled data.
        split: which part of it.
        cache: where to look.
        options: how the model would be run.

    Returns:
        False also where the cache cannot be read.

    """
    chosen = options or ExtractionOptions()
    device = pick_device(chosen.device)
    job = ExtractionPlan.prepare(backbone, task, split, chosen.layers or (), chosen.blocks, None, None, None, device)
    precision = pick_precision(chosen.precision, device)
    try:
        about = describe(job, precision.label, pick_backend(chosen.accelerate, job, device, precision))
        with cache.open(about, job.layers, lambda text: None, shard_rows=job.shard_rows, exclusive=False) as entry:
            return len(entry.finished(job.parts)) == len(job.parts)
    except CacheError:
        return False


def _open_entry(extractor: Extractor, stack: ExitStack, *, exclusive: bool) -> OpenEntry | None:
    """The place of the features in the cache; None where there is no cache, or it cannot be used."""
    job, log = extractor.job, extractor.log
    if extractor.cache is None:
        return None
    try:
        about = describe(job, extractor.precision.label, extractor.backend)
        opened = extractor.cache.open(about, job.layers, log.tell, shard_rows=job.shard_rows, exclusive=exclusive)
        entry = stack.enter_context(opened)
        if (probe := extractor.probe()) is not None:
            entry.check(probe)
    except CacheError as error:
        log.tell(f"going on without the cache: {error}")
        return None
    return entry


def open_backbone(identifier: str, observer: Observer | None = None) -> Backbone:
    """What `hubscout.hubs.load` opens; `observer` hears of bytes that are fetched, and of trouble on the way."""
    from hubscout.hubs import load

    with downloads_told(identifier, observer):
        return load(identifier)


def downloads_told(model: str, observer: Observer | None) -> AbstractContextManager[None]:
    """In a `with` block, `observer` hears of downloads as events of `model`."""
    if observer is None:
        return listening(None)

    def event(news: Downloaded | str) -> Message | Downloading:
        return Message(model, news) if isinstance(news, str) else Downloading(model, news.bytes_done, news.bytes_total)

    return listening(lambda news: observer(event(news)))
