"""`tune`: a task, a target, teachers and a method become a tuned model."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hubscout.errors import InputError
from hubscout.hubs import Backbone
from hubscout.hubs.downloading import listening, sentences
from hubscout.tasks import Split, Task
from hubscout.tuning.arguments import TuningArguments
from hubscout.tuning.checkpoints import Checkpoints
from hubscout.tuning.companions.bss import BatchSpectralShrinkage
from hubscout.tuning.companions.freezing import freeze
from hubscout.tuning.companions.head import new_head, start_from_posterior
from hubscout.tuning.companions.l2_sp import L2SP
from hubscout.tuning.companions.lora import add_adapters, merge_adapters
from hubscout.tuning.companions.penalty import Penalty
from hubscout.tuning.data import TARGET, Batches, StreamedBatches, default_workers, distinct_views
from hubscout.tuning.evaluate import Judge
from hubscout.tuning.journal import Journal, Note, Observer, silent
from hubscout.tuning.knowledge import Library
from hubscout.tuning.loop import Loop
from hubscout.tuning.losses import TaskLoss, check_trainable
from hubscout.tuning.memory import HeldBatches
from hubscout.tuning.methods import METHODS, Method, Preparation
from hubscout.tuning.methods.zoo import is_mixture, merge
from hubscout.tuning.models import check_modality, fingerprint, open_model, open_target, same_model
from hubscout.tuning.network import Network, check_width, has_batch_norm, silence_unused
from hubscout.tuning.plan import BatchPlan
from hubscout.tuning.processes import make_accelerator, share_from_main
from hubscout.tuning.rows import Rows
from hubscout.tuning.tuned import Tuned

if TYPE_CHECKING:
    from accelerate import Accelerator

    from hubscout.features import FeatureCache


def tune(
    task: Task,
    target: str | Backbone,
    teachers: Sequence[Any] = (),
    method: str = "b-tuning",
    *,
    out: Path | str | None = None,
    resume: bool = False,
    cache: FeatureCache | None = None,
    observer: Observer | None = None,
    arguments: TuningArguments | None = None,
    **options: Any,
) -> Tuned:
    """Tune a model on a task.

    Args:
        task: the labelled data: trained on `train`, judged by `validation`, reported on `test`.
        target: the model to tune, as an identifier or a backbone (which is copied, not changed).
        teachers: models to learn from: identifiers, backbones, or rows of a ranking.
        method: `fine-tune`, `kd`, `zoo`, `b-tuning`, or one that a plug-in added to `METHODS`.
        out: a folder for checkpoints and `metrics.jsonl`; without one nothing is written.
        resume: go on from the last checkpoint in `out`, if there is one; the result is that of a run in one go.
        cache: where frozen features are looked up and kept.
        observer: hears of progress; see `hubscout.tuning.journal`.
        arguments: everything else; or as keywords:
        options: fields of `TuningArguments`.

    Raises:
        InputError: arguments that do not go together, a method without its teachers.
        TaskError: labels that the train split does not have.
        DivergedError: the loss became NaN; the last good checkpoint is kept.
        CheckpointError: `resume` with a checkpoint of another run.

    """
    chosen = arguments.replace(**options) if arguments is not None else TuningArguments.of(**options)
    run = _Run(task, target, teachers, method, chosen.settled(task.modality), out, cache, observer or silent)
    return run.execute(resume)


class _Run:
    """The parts of one run, put together."""

    def __init__(
        self,
        task: Task,
        target: str | Backbone,
        teachers: Sequence[Any],
        method: str,
        arguments: TuningArguments,
        out: Path | str | None,
        cache: FeatureCache | None,
        observer: Observer,
    ) -> None:
        self.method: Method = METHODS[method]()
        check_trainable(task)
        if isinstance(teachers, str | Backbone):
            teachers = (teachers,)
        if self.method.uses_teachers and not teachers:
            raise InputError(f"method={method!r} learns from teachers: give at least one, or method='fine-tune'.")
        self.task, self.arguments = task, arguments
        self.folder = Path(out) if out is not None else None
        self.accelerator: Accelerator = make_accelerator(arguments, self.folder)
        self.observer = observer if self.accelerator.is_main_process else silent
        self.judge = Judge(task, arguments, self.accelerator)
        self.notes: list[str] = []
        with listening(sentences(lambda text: self.observer(Note(text)))):
            self.target, note = open_target(target, task, arguments, method)
            self.teachers = [open_model(teacher) for teacher in teachers] if self.method.uses_teachers else []
        for role, backbone in (("target", self.target), *(("teacher", teacher) for teacher in self.teachers)):
            check_modality(role, backbone, task)
        if self.target.module is None:
            raise InputError(
                f"target={self.target.card.identifier!r} is no torch module and cannot be tuned; it can be a teacher."
            )
        if any(same_model(teacher, self.target) for teacher in self.teachers):
            self._note(f"The target {self.target.card.identifier} is among its own teachers.")
        if note is not None:
            self._note(note)
        shared = share_from_main(self.accelerator)
        device = str(self.accelerator.device)
        self.library = Library(task, device, cache, arguments.workers, shared, untouched=self.target)

    def execute(self, resume: bool) -> Tuned:
        """Prepare, train, evaluate."""
        accelerator, arguments = self.accelerator, self.arguments
        loss = TaskLoss.of(self.task, label_smoothing=arguments.label_smoothing)
        rows = Rows.of(self.task.train, loss, accelerator.device)
        network = self._build(loss, rows)
        plan = BatchPlan(len(self.task.train), arguments.batch_size, arguments.seed)
        self._check_batches(plan, network)
        live = {name: teacher.preprocessing for name, teacher in self.method.live_teachers().items()}
        views, served = distinct_views({TARGET: self.target.preprocessing, **live})
        train = self._batches(self.task.train, views, augment=arguments.augment == "standard")
        augments = arguments.augment == "standard" and views[TARGET].augmented().key != views[TARGET].key
        if augments and self.task.kind == "regression":
            self._note(
                "Images are cropped and mirrored at random while their numbers stay: where those say where something "
                "is or how large, set augment='none'."
            )
        example = next(train.evaluate(np.arange(1), 1)).to(accelerator.device).views[TARGET]
        check_width(network, example)
        unused = silence_unused(network, example)
        self._restrict(network, unused)
        checkpoints = self._checkpoints()
        validation = self._batches(self.task.validation, {TARGET: self.target.preprocessing}, augment=False)
        loop = Loop(
            network,
            train,
            rows,
            plan,
            arguments.steps or arguments.epochs * plan.batches_per_epoch,
            arguments,
            accelerator,
            partial(self.judge.values, network, validation, self.task.validation)
            if len(self.task.validation)
            else None,
            served,
            checkpoints,
            Journal(self.folder / "metrics.jsonl" if self.folder and accelerator.is_main_process else None),
            self.observer,
        )
        self._start(loop, checkpoints, resume)
        loop.run()
        loop.end()
        return self._finish(network, loop, validation)

    def _build(self, loss: TaskLoss, rows: Rows) -> Network:
        """Head, method and network, with whatever they want to know of frozen features."""
        arguments, device = self.arguments, self.accelerator.device
        head = new_head(self.target.card.feature_dim, loss.outputs, arguments.seed)
        if arguments.head_init == "posterior":
            library = self.library

            def fitted() -> Mapping[str, torch.Tensor]:
                features, posterior = library.features(self.target), library.posterior(self.target)
                start_from_posterior(head, posterior, features, rows.targets, loss)
                return head.state_dict()

            head.load_state_dict(library.shared(fitted))
        self.method.prepare(Preparation(self.task, self.target, self.teachers, arguments, device, self.library))
        for note in self.method.notes:
            self._note(note)
        self.library.forget()
        network = Network(
            self.target, head, loss, self.method, frozen_norm_statistics=arguments.frozen_norm_statistics
        ).to(device)
        if device.type == "cuda" and not is_mixture(network.body):  # a mixture stacks its teachers' kernels: five axes
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network

    def _restrict(self, network: Network, unused: Sequence[str]) -> None:
        """What is trained and what holds it back."""
        arguments = self.arguments
        if arguments.lora_rank is not None:
            heads = {name.rpartition(".")[0] for name in unused}
            count = add_adapters(network.body, arguments.lora_rank, without=heads)
            network.to(self.accelerator.device)
            self._note(f"LoRA of rank {arguments.lora_rank} beside {count} layers.")
        if arguments.freeze is not None:
            frozen = freeze(network.body, arguments.freeze)
            self._note(f"{frozen:,} parameters of the backbone are frozen.")
        penalties: dict[str, Penalty] = {}
        if arguments.l2_sp:
            penalties["l2-sp"] = L2SP(network.body, arguments.l2_sp)
        if arguments.bss:
            penalties["bss"] = BatchSpectralShrinkage(arguments.bss)
        network.penalties = penalties

    def _batches(self, split: Split, views: Mapping[str, Any], *, augment: bool) -> Batches:
        arguments, device = self.arguments, self.accelerator.device
        workers = default_workers(arguments.workers, len(split), self.accelerator.num_processes)
        if arguments.data_in_memory:
            return HeldBatches(
                split.inputs, views, seed=arguments.seed, augment=augment, workers=workers, device=device
            )
        return StreamedBatches(
            split.inputs,
            views,
            seed=arguments.seed,
            augment=augment,
            workers=workers,
            pin_memory=device.type == "cuda",
        )

    def _check_batches(self, plan: BatchPlan, network: Network) -> None:
        processes = self.accelerator.num_processes
        least = 2 if has_batch_norm(network.body) else 1
        smallest = plan.samples // plan.batches_per_epoch // processes
        if smallest < least:
            reason = " (batch norm needs two)" if least == 2 else ""
            raise InputError(
                f"batch_size={plan.batch_size} leaves {smallest} samples for each of {processes} processes; at least "
                f"{least} are needed{reason}. The train split has {plan.samples}."
            )

    def _checkpoints(self) -> Checkpoints | None:
        if self.folder is None:
            return None
        identity = {
            "task": self.task.fingerprint,
            "target": fingerprint(self.target),
            "teachers": [fingerprint(teacher) for teacher in self.teachers],
            "method": self.method.name,
            **self.arguments.decisive(),
        }
        return Checkpoints(self.folder / "checkpoints", identity, self.arguments.keep_checkpoints)

    def _start(self, loop: Loop, checkpoints: Checkpoints | None, resume: bool) -> None:
        latest = checkpoints.latest() if checkpoints is not None else None
        if latest is not None and checkpoints is not None:
            if not resume:
                raise InputError(
                    f"{self.folder} holds a run already (checkpoint {latest.name}): resume it (resume=True, --resume) "
                    "or give another folder."
                )
            loop.resume(checkpoints.read(latest))
            self._note(f"Resumed after step {loop.standing.step} from {latest}.")
        elif resume and checkpoints is None:
            raise InputError("resume=True needs the folder of the run: out=...")
        elif self.folder is not None and self.accelerator.is_main_process:
            self.folder.mkdir(parents=True, exist_ok=True)
            loop.journal.resume([])
        if self.arguments.trackers:
            self.accelerator.init_trackers(f"hubscout-{self.task.name}", config=_flat(self.arguments.decisive()))

    def _finish(self, network: Network, loop: Loop, validation: Batches) -> Tuned:
        network.eval()
        if self.arguments.lora_rank is not None:
            merge_adapters(network.body)
        self.method.finish(self.target)
        test = self._batches(self.task.test, {TARGET: self.target.preprocessing}, augment=False)
        parts = {"validation": (self.task.validation, validation), "test": (self.task.test, test)}
        metrics = self.judge.measure(network, parts)
        merged = None
        if is_mixture(network.body):
            plain = copy.deepcopy(self.target)
            assert plain.module is not None
            merge(plain.module)
            merged = self.judge.measure(Network(plain, network.head, network.loss, self.method), parts)
        self.accelerator.end_training()
        tuned = Tuned(
            backbone=self.target,
            head=network.head,
            loss=network.loss,
            task_name=self.task.name,
            task_fingerprint=self.task.fingerprint,
            target_names=self.task.target_names,
            method=self.method.name,
            target=self.target.card.identifier,
            teachers=tuple(teacher.card.identifier for teacher in self.teachers),
            arguments=self.arguments,
            metrics=metrics,
            merged_metrics=merged,
            curves=tuple(loop.journal.lines),
            best_step=loop.standing.best_step if loop.standing.best_state is not None else loop.standing.step,
            steps=loop.standing.step,
            notes=tuple(self.notes),
            sizes={name: len(split) for name, split in self.task.splits.items()},
        )
        if self.accelerator.is_main_process:
            loop.journal.add("result", step=tuned.steps, metrics=tuned.metrics_record())
        return tuned

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self.observer(Note(text))


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as trackers take them."""
    return {
        name: value if isinstance(value, int | float | str | bool) else str(value) for name, value in values.items()
    }
