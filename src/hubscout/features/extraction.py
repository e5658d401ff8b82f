"""`extract`: one pass of a model over a task gives features, source logits and sufficient statistics."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from hubscout.errors import CacheError
from hubscout.features.batching import BatchSize
from hubscout.features.job import Job
from hubscout.features.one_pass import Run
from hubscout.features.opening import open_backbone
from hubscout.features.precision import pick_device
from hubscout.features.result import Extraction
from hubscout.runs.events import Finished, Log, Observer, silent

if TYPE_CHECKING:
    from hubscout.features.cache import FeatureCache
    from hubscout.features.decoded import PreparedPool
    from hubscout.hubs import Backbone
    from hubscout.tasks import Task


def extract(
    model: Backbone | str,
    task: Task,
    *,
    split: str = "train",
    layers: Sequence[str] | str = (),
    cache: FeatureCache | None = None,
    statistics: bool = True,
    keep_features: bool = True,
    device: str = "auto",
    batch_size: int | None = None,
    precision: str = "auto",
    blocks: int = 10,
    indices: Sequence[int] | np.ndarray | None = None,
    shards: Sequence[int] | None = None,
    shard_rows: int | None = None,
    skip_bad: bool = False,
    prepared: PreparedPool | None = None,
    workers: int | None = None,
    observer: Observer | None = None,
) -> Extraction:
    """Run a model over a split once.

    Args:
        model: a backbone, or an identifier that `hubscout.hubs.load` opens.
        task: the labelled data.
        split: which part of it. Models are ranked on "train".
        layers: names of layers to tap in the same pass; "all" for every one that the model names.
        cache: where features and logits are kept on disk. Shards that are there already are not run again, and a run
            that was killed goes on after its last finished shard. Without one, features stay in memory.
        statistics: whether to accumulate sufficient statistics on the way.
        keep_features: False keeps statistics alone: O(D²) memory however many rows there are.
        device: "auto", "cpu", "cuda", "cuda:N" or "mps".
        batch_size: samples at once; None guesses, and either is halved when memory runs out.
        precision: "auto", "float32", "bfloat16" or "float16". "auto" uses a reduced format only on CUDA, and only
            where the features of the first batch agree with float32.
        blocks: how many blocks of rows the statistics are kept in, for the jackknife.
        indices: run these rows alone, in this order. Blocks are still those of the whole split.
        shards: run these shards alone, by number: the unit of work that is spread over machines.
        shard_rows: rows a shard; None chooses by the number of rows.
        skip_bad: leave samples out that cannot be read, instead of raising. Which ones depends on the data alone.
        prepared: prepared inputs that are kept for the next model with the same preprocessing.
        workers: threads that read and prepare inputs. None chooses by the number of cores, and takes processes instead
            where there are many images for a GPU.
        observer: hears of progress; see `hubscout.runs.events`.

    Raises:
        TaskError: a sample cannot be read (its name is in the message).
        ModelError: the model cannot be loaded or run, or gives features that are not finite.

    """
    started = time.perf_counter()
    backbone = open_backbone(model, observer) if isinstance(model, str) else model
    job = Job.prepare(backbone, task, split, layers, blocks, indices, shards, shard_rows)
    log = Log(backbone.card.identifier, observer or silent)
    chosen = pick_device(device)
    run = Run(
        job,
        log,
        device=chosen,
        precision=precision,
        size=BatchSize.choose(batch_size, task.modality, chosen, log.tell),
        statistics=statistics,
        keep_features=keep_features,
        skip_bad=skip_bad,
        prepared=prepared,
        workers=workers,
    )
    with ExitStack() as stack:
        entry = None
        if cache is not None:
            try:
                about = job.fingerprint(run.precision.label)
                entry = stack.enter_context(
                    cache.open(about, job.layers, log.tell, shard_rows=job.shard_rows, exclusive=shards is None)
                )
                if (probe := run.probe()) is not None:
                    entry.check(probe)
            except CacheError as error:
                entry = None
                log.tell(f"going on without the cache: {error}")
        result = run.execute(entry, started)
    log.observer(Finished(backbone.card.identifier, result.seconds))
    return result
