"""A few fixed views of each sample: what teachers say of them, before tuning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hubscout.errors import InputError
from hubscout.hubs import Backbone, Batch
from hubscout.tasks.kinds import kind_of
from hubscout.tuning.batches import MODEL, distinct_views
from hubscout.tuning.plan import BatchPlan

if TYPE_CHECKING:
    from hubscout.tuning.single_run import SingleRun


def answers_of_views(
    run: SingleRun, teachers: Mapping[str, Backbone], answer: Callable[[Mapping[str, Batch]], Tensor]
) -> Tensor:
    """(views · rows, C): what teachers say of each fixed view of each sample of train; view v is that of epoch v.

    The model is shown the same views in turn, by the same seeds: `tuning.batches.view_of`.
    """
    arguments, device, count = run.arguments, run.accelerator.device, len(run.task.train)
    preprocessings = {name: teacher.preprocessing for name, teacher in teachers.items()}
    varies = any(p.augmented().key != p.key for p in preprocessings.values()) and arguments.augment != "none"
    if not varies or kind_of(run.task.kind).rows_are_words:
        raise InputError(
            "teacher_targets='views' needs inputs that are augmented: images, with augment='standard'. Of these all "
            "views would be the same: choose 'cached'."
        )
    views, served = distinct_views({MODEL: next(iter(preprocessings.values())), **preprocessings})
    run.note(f"The teachers' answers are cached for {arguments.teacher_views} views of each sample.")

    def answered() -> np.ndarray:
        plan = BatchPlan(count, arguments.batch_size, arguments.seed)
        steps = range(arguments.teacher_views * plan.batches_per_epoch)
        batches = run.batches_of(run.task.train, views, augment=True)
        table: np.ndarray | None = None
        for step, share in zip(steps, batches.train(plan, steps, 0, 1), strict=True):
            placed = share.to(device).views
            with torch.no_grad():
                found = answer({name: placed[served[name]] for name in teachers}).float().cpu().numpy()
            if table is None:
                table = np.empty((arguments.teacher_views * count, found.shape[1]), dtype=np.float32)
            table[plan.epoch(step) * count + share.samples.numpy()] = found
        assert table is not None
        return table

    return torch.as_tensor(run.shared(answered)).to(device)
