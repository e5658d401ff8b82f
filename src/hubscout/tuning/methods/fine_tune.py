"""Plain fine-tuning."""

from __future__ import annotations

from hubscout.tuning.methods.method import METHODS, Method


@METHODS.register("fine-tune")
class FineTune(Method):
    """A new head on the model, everything trained on the task's loss alone.

    For: the baseline, and the method of choice when the model is itself the best-ranked one.

        loss = L_task

    Requirements: none; teachers are ignored. Its neighbours add a term to this loss (`kd`, `b-tuning`) or change
    where the weights come from (`zoo`).

    Example: `tune(task, "timm/resnet18.a1_in1k", method="fine-tune", epochs=10)`.
    """

    name = "fine-tune"
