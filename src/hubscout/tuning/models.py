"""Target and teachers: opened, copied, and checked against the task."""

from __future__ import annotations

import copy
from typing import Any

from hubscout.errors import InputError
from hubscout.hubs import Backbone, load
from hubscout.tasks import Task


def open_model(model: Any) -> Backbone:
    """A backbone of one's own: loaded by its identifier, or copied, since tuning changes it."""
    if isinstance(model, Backbone):
        return copy.deepcopy(model)
    if isinstance(model, str):
        return load(model)
    for name in ("identifier", "model"):
        found = getattr(model, name, None)
        if isinstance(found, str):
            return load(found)
    raise InputError(f"A model must be an identifier, a Backbone or a row of a ranking; {type(model).__name__} came.")


def check_modality(role: str, backbone: Backbone, task: Task) -> None:
    """Raise where a model cannot read the task's inputs."""
    if task.modality not in backbone.card.modalities:
        raise InputError(
            f"{role} {backbone.card.identifier!r} reads {' and '.join(backbone.card.modalities)}, but the inputs of "
            f"{task.name!r} are {task.modality}: target and teachers must share the task's inputs."
        )


def same_model(first: Backbone, second: Backbone) -> bool:
    """Whether two backbones are the same weights, as far as is known."""
    if first.card.weights_fingerprint:
        return first.card.weights_fingerprint == second.card.weights_fingerprint
    return first.card.identifier == second.card.identifier


def fingerprint(backbone: Backbone) -> str:
    """What a model is known by in a checkpoint."""
    return backbone.card.weights_fingerprint or backbone.card.identifier
