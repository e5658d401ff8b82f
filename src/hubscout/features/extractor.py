"""`Run`: one pass of a model over the rows of a job, with what is found on the way."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.errors import HubscoutError, NothingReadableError, TaskError, first_line
from hubscout.features import device_batches
from hubscout.features.accelerated import open_graph
from hubscout.features.extraction_plan import ExtractionPlan
from hubscout.features.feature_keys import Probe, places_to_try
from hubscout.features.forward import Runner
from hubscout.features.freed_memory import memory_kept
from hubscout.features.options import TORCH
from hubscout.features.pipeline import Background, Feed, PlannedBatch, PreparedBatch, collate, plan
from hubscout.features.precision import BatchSize, Precision, pick_precision
from hubscout.features.preparing import InProcesses, InThreads, Preparing, Reader, default_processes, default_threads
from hubscout.features.result import BlockAccumulator, Extraction, LayerStatistics, takes_rows
from hubscout.features.shards import FINAL, BatchResult, Collector, MemoryStore, ShardData, Store, WithFallback
from hubscout.hubs.device_resizing import DECODED, DeviceResizing, decoded
from hubscout.hubs.model_listing import TEXT_MODALITIES
from hubscout.runs.events import Advanced, Log, Started
from hubscout.runs.profiler import step

if TYPE_CHECKING:
    from hubscout.evidence.statistics import Statistics
    from hubscout.features.decoded import PreparedPool, PreparedSamples
    from hubscout.features.feature_cache import FeatureCache, OpenEntry
    from hubscout.features.options import ExtractionOptions
    from hubscout.hubs import Batch
    from hubscout.tasks import Task


@dataclass(kw_only=True)
class Extractor:
    """The state of one pass."""

    job: ExtractionPlan
    log: Log
    options: ExtractionOptions
    device: str
    backend: str
    cache: FeatureCache | None
    size: BatchSize
    statistics: bool
    keep_features: bool
    prepared: PreparedPool | None
    workers: int | None

    def __post_init__(self) -> None:
        self.precision = pick_precision(self.options.precision, self.device)
        self.preprocessing = device_batches.preprocessing_on(self.device if self.backend == TORCH else "cpu", self.job)
        self.spare: Store = MemoryStore(keep=self.keep_features)
        self.accumulators: dict[str, BlockAccumulator] = {}
        self.rows: dict[int, np.ndarray] = {}
        self.skipped: list[int] = []

    def probe(self) -> Probe | None:
        """What the model gives for a few samples; None where it cannot be said, and the run itself will say why."""
        job, reader = self.job, replace(self._reader(), skip_bad=True)
        found: dict[int, Any] = {}
        try:
            for places in places_to_try(len(job.rows)):
                for row in job.rows[places.start : places.stop].tolist():
                    if (sample := reader(row)) is not None:
                        found[row] = sample
                        break
            if not found:
                return None
            rows, samples = np.array(list(found)), list(found.values())
            exact = Precision("float32", self.precision.device_type)
            runner = self._runner(exact, BatchSize(self.size.size), lambda text: None)
            with runner:
                return Probe(rows, runner.run(collate(self.preprocessing, samples), samples, job.counts(rows)))
        except HubscoutError:
            return None

    def execute(self, entry: OpenEntry | None, started: float) -> Extraction:
        job = self.job
        store: Store = self.spare if entry is None else entry
        kept = self.keep_features or entry is not None
        if self.statistics:
            eager = (FINAL, *job.layers)
            if kept:
                n, dim = int(job.counts(job.rows).sum()), job.backbone.card.feature_dim
                eager = () if takes_rows(n, dim, self.options.blocks) else (FINAL,)
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
            store = WithFallback(entry, self.spare, self.log.tell) if entry is not None else self.spare
            runner, speed = self._forward(pending, store)
            if entry is not None:
                entry.note_speed(speed)
        return self._result(store, runner, speed, started, from_cache=entry is not None and not pending)

    def _forward(self, pending: dict[int, np.ndarray], store: Store) -> tuple[Runner, float]:
        """Run what is not there yet; reading, forward pass and statistics overlap."""
        job, log = self.job, self.log

        def finish(data: ShardData) -> None:
            with step("write"):
                store.put(data)
            self._take(data.index, data.rows, data.skipped, data.arrays.__getitem__)

        collector = Collector(pending, job.counts, finish)
        runner = self._runner(self.precision, self.size, log.tell)
        on_device = self._kept_on_device()
        held = None if on_device is None else partial(on_device.batch, self.device)
        reader = replace(self._reader(), keeps=on_device is None)
        lengths = job.length if job.task.modality in TEXT_MODALITIES else None
        planned = list(plan(pending.items(), self.size.size, lengths))
        if self.prepared is not None:
            runner.make_room = self.prepared.clear_devices
        with runner:
            if self.backend != TORCH:
                with step("export"):
                    runner.graph = open_graph(self.backend, job, runner, replace(reader, skip_bad=True), self.cache)
            began = time.perf_counter()
            with (
                memory_kept(),
                Background(collector.add) as background,
                Feed(
                    iter(planned),
                    self._preparing(reader, _missing(planned, reader, held)),
                    self.preprocessing,
                    pin_memory=self.device.startswith("cuda") and job.backbone.module is not None,
                    held=held,
                ) as feed,
            ):
                for result in self._results(runner, feed, on_device):
                    background.put(result)
                    log.observer(Advanced(log.model, len(result.rows) + len(result.skipped)))
            seconds = time.perf_counter() - began
        return runner, sum(len(rows) for rows in pending.values()) / max(seconds, 1e-9)

    def _runner(self, precision: Precision, size: BatchSize, tell: Callable[[str], None]) -> Runner:
        job = self.job
        return Runner(
            job.backbone,
            preprocessing=self.preprocessing,
            device=self.device,
            precision=precision,
            layers=job.layers,
            size=size,
            samples=len(job.rows),
            tell=tell,
        )

    def _reader(self) -> Reader:
        job = self.job
        # Processes that only decode start quickly: they need neither torch nor timm.
        prepare = decoded if isinstance(self.preprocessing, DeviceResizing) else self.preprocessing
        place = f"split {job.split_name!r} of task {job.task.name!r}"
        return Reader(job.split.inputs, prepare, place, self.options.skip_bad, self._known())

    def _known(self) -> PreparedSamples | None:
        if self.prepared is None:
            return None
        return self.prepared.samples(self.job.task, self.job.split_name, self._preprocessing_name())

    def _kept_on_device(self) -> PreparedSamples | None:
        """What keeps batches on the device; None where that is no GPU, or batches differ from model to model."""
        on_gpu = self.job.backbone.module is not None and device_batches.free_on(self.device) > 0
        return self._known() if on_gpu and self.job.task.modality not in TEXT_MODALITIES else None

    def _preprocessing_name(self) -> str:
        """A key of somebody's own class says nothing about another class that happens to choose the same."""
        kind = type(self.preprocessing)
        return f"{kind.__module__}.{kind.__qualname__} {self.preprocessing.key}"

    def _preparing(self, reader: Reader, missing: int) -> Preparing:
        """Threads, or processes where that is quicker and the `missing` samples can be sent to them."""
        alone = isinstance(self.preprocessing, DeviceResizing)
        if self.workers is not None:
            return InThreads(reader, max(1, self.workers))
        if processes := default_processes(self.device, self.job.task.modality, missing, decode_alone=alone):
            try:
                return InProcesses(reader, processes, default_threads(decode_alone=alone))
            except (ValueError, OSError) as error:
                self.log.tell(f"samples are prepared in threads, since they cannot be sent to processes ({error})")
        return InThreads(reader, default_threads(decode_alone=alone))

    def _results(self, runner: Runner, feed: Feed, on_device: PreparedSamples | None) -> Iterator[BatchResult]:
        """Of each batch; on a GPU the next one is under way before the arrays of one are fetched."""
        ahead = 1 if runner.device.startswith("cuda") else 0
        under_way: deque[Callable[[], BatchResult]] = deque()
        for batch in feed:
            # Where Pillow has resized a batch for this model, others have no use for it.
            shared = not isinstance(self.preprocessing, DeviceResizing) or DECODED in (batch.batch or ())
            runner.keep = None
            if on_device is not None and shared:
                runner.keep = partial(on_device.put_batch, self.device, batch.rows, batch.samples)
            under_way.append(self._launch(runner, batch))
            if len(under_way) > ahead:
                yield under_way.popleft()()
        for finish in under_way:
            yield finish()

    def _launch(self, runner: Runner, batch: PreparedBatch) -> Callable[[], BatchResult]:
        for row in batch.skipped:
            self.log.tell(f"sample {row} cannot be read and is left out{self._reason(row)}")
        if batch.batch is None:
            return lambda: BatchResult(batch.part, batch.rows, batch.skipped, {})
        arrays = runner.launch(batch.batch, batch.samples, self.job.counts(batch.rows))
        return lambda: BatchResult(batch.part, batch.rows, batch.skipped, arrays())

    def _reason(self, row: int) -> str:
        """Why a sample cannot be read, which names its file: it is read once more."""
        try:
            self.job.split.inputs[row]
        except Exception as error:  # whatever reading it raises
            return f": {first_line(error).partition('. ')[0].rstrip('.')}"
        return ""

    def _take(self, part: int, rows: np.ndarray, skipped: tuple[int, ...], read: Callable[[str], np.ndarray]) -> None:
        """Count a finished shard in."""
        self.rows[part] = rows
        self.skipped.extend(skipped)
        if len(rows) == 0:
            return
        with step("statistics"):
            for layer, accumulator in self.accumulators.items():
                accumulator.add(read(layer), self.job.targets(rows), self.job.blocks(rows), self.job.kept(rows))

    def _check_skipped(self, skipped: tuple[int, ...]) -> None:
        if skipped and not self.options.skip_bad:
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
        with step("statistics"):
            ready = {layer: accumulator.finish() for layer, accumulator in self.accumulators.items()}
        later: dict[str, Callable[[], Statistics]] = {}
        if self.statistics:
            # Without the plan, which has the network: nobody needs that any more.
            about = {
                part: (job.targets(self.rows[part]), job.blocks(self.rows[part]), job.kept(self.rows[part]))
                for part in parts
            }
            later = {
                layer: partial(_statistics_of, job.task, store, layer, about, self.device)
                for layer in (FINAL, *job.layers)
                if layer not in ready
            }
        return Extraction(
            card=replace(job.backbone.card, weights_fingerprint=job.identity),
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
            backend=self.backend,
            batch_size=self.size.size,
            skipped=tuple(sorted(self.skipped)),
            messages=tuple(self.log.messages),
            shards=parts,
            store=store,
        )


def _missing(planned: Sequence[PlannedBatch], reader: Reader, held: Callable[[np.ndarray], Batch | None] | None) -> int:
    """How many samples are neither on the device nor prepared."""
    left = sum(len(batch.rows) for batch in planned if held is None or held(batch.rows) is None)
    return max(0, left - len(reader.prepared or ()))


def _statistics_of(
    task: Task, store: Store, layer: str, about: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]], device: str
) -> Statistics:
    """The sums of a layer; `about` are targets, blocks and samples to keep of the rows of each shard."""
    accumulator = BlockAccumulator(task.kind, task.target_names, device=device)
    for part, (targets, blocks, kept) in about.items():
        accumulator.add(store.read(part, layer), targets, blocks, kept)
    return accumulator.finish()
