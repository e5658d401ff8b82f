"""`extract`: one pass of a model over a task gives features, source logits and sufficient statistics."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hubscout.errors import CacheError, InputError, NothingReadableError, TaskError
from hubscout.features.accumulate import BlockAccumulator
from hubscout.features.allocator import memory_kept
from hubscout.features.batching import BatchSize
from hubscout.features.collector import BatchResult, Collector
from hubscout.features.forward import Runner
from hubscout.features.pipeline import Background, Feed, PreparedBatch, Reader, plan
from hubscout.features.precision import pick_device, pick_precision
from hubscout.features.progress import Advanced, Finished, Message, Observer, Started, silent
from hubscout.features.result import Extraction, LayerStatistics
from hubscout.features.sharding import assign_blocks, check_indices, cut
from hubscout.features.shards import FINAL, MemoryStore, NothingKept, ShardData, Store

if TYPE_CHECKING:
    from hubscout.evidence.statistics import Statistics
    from hubscout.features.cache import FeatureCache, OpenEntry
    from hubscout.features.decoded import PreparedPool
    from hubscout.hubs import Backbone
    from hubscout.tasks import Split, Task

_SORTED_BY_LENGTH = ("text", "text-pair", "tokens")


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
        workers: threads that read and prepare inputs; None chooses by the number of cores.
        observer: hears of progress; see `hubscout.features.progress`.

    Raises:
        TaskError: a sample cannot be read (its name is in the message).
        ModelError: the model cannot be loaded or run, or gives features that are not finite.

    """
    started = time.perf_counter()
    backbone = _opened(model)
    job = _Job.prepare(backbone, task, split, layers, blocks, indices, shards, shard_rows)
    log = _Log(backbone.card.identifier, observer or silent)
    chosen = pick_device(device)
    run = _Run(
        job,
        log,
        device=chosen,
        precision=precision,
        size=BatchSize.choose(batch_size, task.modality, chosen, log.tell),
        statistics=statistics,
        keep_features=keep_features,
        skip_bad=skip_bad,
        prepared=prepared,
        workers=workers if workers is not None else min(8, os.cpu_count() or 1),
    )
    with ExitStack() as stack:
        entry = None
        if cache is not None:
            try:
                about = job.fingerprint(run.precision.name)
                entry = stack.enter_context(
                    cache.open(
                        about, job.layers, log.tell, shards_expected=job.shards_expected, exclusive=shards is None
                    )
                )
            except CacheError as error:
                log.tell(f"going on without the cache: {error}")
        result = run.execute(entry, started)
    log.observer(Finished(backbone.card.identifier, result.seconds))
    return result


def _opened(model: Backbone | str) -> Backbone:
    if not isinstance(model, str):
        return model
    from hubscout.hubs import load  # type: ignore[attr-defined, unused-ignore]

    return load(model)


@dataclass
class _Log:
    """Passes events on, and keeps the messages for the result."""

    model: str
    observer: Observer
    messages: list[str] = field(default_factory=list)

    def tell(self, text: str) -> None:
        self.messages.append(text)
        self.observer(Message(self.model, text))


@dataclass(frozen=True)
class _Job:
    """What is to be run: a backbone, the rows of each part, the layers, the block of each row."""

    backbone: Backbone
    task: Task
    split_name: str
    split: Split
    layers: tuple[str, ...]
    parts: dict[int, np.ndarray]
    block_of_row: np.ndarray
    selection: str
    shards_expected: int

    @classmethod
    def prepare(
        cls,
        backbone: Backbone,
        task: Task,
        split_name: str,
        layers: Sequence[str] | str,
        blocks: int,
        indices: Sequence[int] | np.ndarray | None,
        shards: Sequence[int] | None,
        shard_rows: int | None,
    ) -> _Job:
        if split_name not in task.splits:
            raise InputError(f"split must be one of {', '.join(task.splits)}; got {split_name!r}.")
        split = task.splits[split_name]
        if len(split) == 0:
            raise TaskError(f"The split {split_name!r} of task {task.name!r} is empty.")
        rows = np.arange(len(split)) if indices is None else check_indices(indices, len(split))
        cuts = cut(len(rows), shard_rows)
        if shards is not None and (wrong := [index for index in shards if not 0 <= index < len(cuts)]):
            raise InputError(f"shards must lie between 0 and {len(cuts) - 1}; got {wrong[0]}.")
        parts = {
            shard.index: rows[shard.start : shard.stop] for shard in cuts if shards is None or shard.index in shards
        }
        selection = f"{split_name}:{shard_rows or 'auto'}"
        if indices is not None:
            selection += ":" + _digest(rows)
        return cls(
            backbone,
            task,
            split_name,
            split,
            _resolve_layers(backbone, layers),
            parts,
            assign_blocks(len(split), blocks, task.fingerprint),
            selection,
            len(cuts),
        )

    def counts(self, rows: np.ndarray) -> np.ndarray:
        """How many rows of features each sample gives."""
        if self.task.kind != "tagging":
            return np.ones(len(rows), dtype=np.int64)
        return np.array([len(self.split.targets[row]) for row in rows], dtype=np.int64)

    def targets(self, rows: np.ndarray) -> np.ndarray:
        """Targets of the rows of features of these samples."""
        if self.task.kind != "tagging":
            return np.asarray(self.split.targets)[rows]
        tags = [np.asarray(self.split.targets[row], dtype=np.int64) for row in rows]
        return np.concatenate(tags) if tags else np.zeros(0, dtype=np.int64)

    def blocks(self, rows: np.ndarray) -> np.ndarray:
        """The block of each row of features; all words of a sentence are in one."""
        return np.repeat(self.block_of_row[rows], self.counts(rows))

    def length(self, row: int) -> int:
        """How long a text is, roughly, to batch like with like."""
        try:
            raw = self.split.inputs[row]
        except Exception:
            return 0  # the reader meets the same error and names the sample
        if isinstance(raw, str):
            return len(raw)
        return sum(len(part) + 1 for part in raw)

    def fingerprint(self, precision: str) -> dict[str, str]:
        from hubscout.features.fingerprint import describe

        return describe(self.backbone, self.task, self.selection, precision)


class _Run:
    """The state of one pass."""

    def __init__(
        self,
        job: _Job,
        log: _Log,
        *,
        device: str,
        precision: str,
        size: BatchSize,
        statistics: bool,
        keep_features: bool,
        skip_bad: bool,
        prepared: PreparedPool | None,
        workers: int,
    ) -> None:
        self.job = job
        self.log = log
        self.device = device
        self.precision = pick_precision(precision, device)
        self.size = size
        self.statistics = statistics
        self.keep_features = keep_features
        self.skip_bad = skip_bad
        self.prepared = prepared
        self.workers = max(1, workers)
        self.spare: Store = MemoryStore() if keep_features else NothingKept()
        self.accumulators: dict[str, BlockAccumulator] = {}
        self.rows: dict[int, np.ndarray] = {}
        self.skipped: list[int] = []

    def execute(self, entry: OpenEntry | None, started: float) -> Extraction:
        job = self.job
        store: Store = self.spare if entry is None else entry
        kept = self.keep_features or entry is not None
        if self.statistics:
            eager = (FINAL,) if kept else (FINAL, *job.layers)
            self.accumulators = {
                layer: BlockAccumulator(job.task.kind, job.task.target_names, device=self.device) for layer in eager
            }
        finished = {} if entry is None else entry.finished(job.parts)
        pending = {part: rows for part, rows in job.parts.items() if part not in finished}
        total = sum(len(rows) for rows in job.parts.values())
        self.log.observer(Started(self.log.model, total, total - sum(len(rows) for rows in pending.values())))
        for part, (rows, skipped) in finished.items():
            self._check_skipped(skipped)
            self._take(part, rows, skipped, partial(store.read, part))

        speed = 0.0 if entry is None else entry.samples_per_second
        runner: Runner | None = None
        if pending:
            store = _WithFallback(entry, self.spare, self.log.tell) if entry is not None else self.spare
            runner, speed = self._forward(pending, store)
            if entry is not None:
                entry.note_speed(speed)
        return self._result(store, runner, speed, started, from_cache=entry is not None and not pending)

    def _forward(self, pending: dict[int, np.ndarray], store: Store) -> tuple[Runner, float]:
        """Run what is not there yet; reading, forward pass and statistics overlap."""
        job, log = self.job, self.log

        def finish(data: ShardData) -> None:
            store.put(data)
            self._take(data.index, data.rows, data.skipped, data.arrays.__getitem__)

        collector = Collector(pending, finish)
        runner = Runner(
            job.backbone, device=self.device, precision=self.precision, layers=job.layers, size=self.size, tell=log.tell
        )
        place = f"split {job.split_name!r} of task {job.task.name!r}"
        preprocessing = job.backbone.preprocessing
        known = None
        if self.prepared is not None:
            known = self.prepared.samples(job.task, job.split_name, preprocessing.key)
        reader = Reader(job.split.inputs, preprocessing, place, self.skip_bad, known)
        lengths = job.length if job.task.modality in _SORTED_BY_LENGTH else None
        planned = plan(pending.items(), self.size, lengths)
        pin = self.device.startswith("cuda") and job.backbone.module is not None
        with memory_kept() if runner.device == "cpu" else nullcontext(), runner:
            began = time.perf_counter()
            with (
                Background(collector.add) as background,
                Feed(planned, reader, workers=self.workers, pin_memory=pin) as feed,
            ):
                for batch in feed:
                    background.put(self._run_batch(runner, batch))
                    log.observer(Advanced(log.model, len(batch.rows) + len(batch.skipped)))
            seconds = time.perf_counter() - began
        count = sum(len(rows) for rows in pending.values())
        return runner, count / max(seconds, 1e-9)

    def _run_batch(self, runner: Runner, batch: PreparedBatch) -> BatchResult:
        for row in batch.skipped:
            self.log.tell(f"sample {row} cannot be read and is left out")
        counts = self.job.counts(batch.rows)
        arrays = {} if batch.batch is None else runner.run(batch.batch, batch.samples, counts)
        return BatchResult(batch.part, batch.rows, batch.skipped, counts, arrays)

    def _take(self, part: int, rows: np.ndarray, skipped: tuple[int, ...], read: Callable[[str], np.ndarray]) -> None:
        """Count a finished shard in."""
        self.rows[part] = rows
        self.skipped.extend(skipped)
        if len(rows) == 0:
            return
        for layer, accumulator in self.accumulators.items():
            accumulator.add(read(layer), self.job.targets(rows), self.job.blocks(rows))

    def _check_skipped(self, skipped: tuple[int, ...]) -> None:
        if skipped and not self.skip_bad:
            raise TaskError(
                f"Sample {skipped[0]} of split {self.job.split_name!r} of task {self.job.task.name!r} could not be "
                "read when the features were cached (skip_bad=True leaves such samples out, for every model alike)"
            )

    def _result(
        self, store: Store, runner: Runner | None, speed: float, started: float, *, from_cache: bool
    ) -> Extraction:
        job = self.job
        parts = tuple(part for part in sorted(self.rows) if len(self.rows[part]))
        if not parts:
            raise NothingReadableError(
                f"No sample of split {job.split_name!r} of task {job.task.name!r} could be read."
            )
        rows = np.concatenate([self.rows[part] for part in parts])
        ready = {layer: accumulator.finish() for layer, accumulator in self.accumulators.items()}
        later: dict[str, Callable[[], Statistics]] = {}
        if self.statistics:
            later = {
                layer: partial(_statistics_of, job, store, layer, {part: self.rows[part] for part in parts})
                for layer in job.layers
                if layer not in ready
            }
        return Extraction(
            card=job.backbone.card,
            split=job.split_name,
            rows=rows,
            targets=job.targets(rows),
            layers=(FINAL, *job.layers),
            statistics=LayerStatistics(ready, later),
            seconds=time.perf_counter() - started,
            samples_per_second=speed,
            from_cache=from_cache,
            device=runner.device if runner is not None else self.device,
            precision=runner.precision.name if runner is not None else self.precision.name,
            batch_size=self.size.size,
            skipped=tuple(sorted(self.skipped)),
            messages=tuple(self.log.messages),
            shards=parts,
            store=store,
        )


def _statistics_of(job: _Job, store: Store, layer: str, rows_of_part: dict[int, np.ndarray]) -> Statistics:
    accumulator = BlockAccumulator(job.task.kind, job.task.target_names)
    for part, rows in rows_of_part.items():
        accumulator.add(store.read(part, layer), job.targets(rows), job.blocks(rows))
    return accumulator.finish()


class _WithFallback:
    """The cache, until it cannot be written; from then on new shards go to `spare`, and the run goes on."""

    def __init__(self, cache: Store, spare: Store, tell: Callable[[str], None]) -> None:
        self._cache = cache
        self._spare = spare
        self._tell = tell
        self._broken = False

    def put(self, data: ShardData) -> None:
        if not self._broken:
            try:
                self._cache.put(data)
            except CacheError as error:
                self._broken = True
                self._tell(f"going on without the cache: {error}")
            else:
                return
        self._spare.put(data)

    def read(self, index: int, name: str) -> np.ndarray:
        return self._spare.read(index, name) if self._spare.has(index, name) else self._cache.read(index, name)

    def has(self, index: int, name: str) -> bool:
        return self._cache.has(index, name) or self._spare.has(index, name)


def _resolve_layers(backbone: Backbone, layers: Sequence[str] | str) -> tuple[str, ...]:
    known = backbone.layer_names
    if isinstance(layers, str):
        if layers == "all":
            return tuple(known)
        layers = (layers,)
    if unknown := [layer for layer in layers if layer not in known]:
        raise InputError(
            f"layers: {backbone.card.identifier} has no layer {unknown[0]!r}. It has: {', '.join(known) or 'none'}."
        )
    return tuple(dict.fromkeys(layers))


def _digest(rows: np.ndarray) -> str:
    import hashlib

    return hashlib.sha256(np.ascontiguousarray(rows, dtype="<i8").tobytes()).hexdigest()[:16]
