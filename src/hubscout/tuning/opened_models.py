"""Target and teachers: opened, copied, and checked against the task."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.errors import InputError
from hubscout.hubs import Backbone, load
from hubscout.hubs.backbone import check_modality
from hubscout.hubs.model_identifier import Identifier
from hubscout.hubs.model_objects import is_model, register
from hubscout.hubs.pooling import PAIR_PARTS
from hubscout.hubs.saving import read_description
from hubscout.runs.run_folder import TUNING
from hubscout.tasks import Task
from hubscout.tuning.network import head_in_target_units
from hubscout.tuning.tuned_folder import find_head, is_bare
from hubscout.tuning.tuned_folder import load as load_tuned

if TYPE_CHECKING:
    from torch import nn


def open_model(model: Any) -> Backbone:
    """A backbone of one's own: loaded by its identifier, or copied, since tuning changes it."""
    if isinstance(model, Backbone):
        return copy.deepcopy(model)
    if isinstance(model, str):
        return load(model)
    if is_model(model):
        return load(register(model))
    if isinstance(backbone := getattr(model, "backbone", None), Backbone):  # a Tuned: the network as it was tuned
        return copy.deepcopy(backbone)
    for name in ("identifier", "model"):
        found = getattr(model, name, None)
        if isinstance(found, str):
            return load(found)
    raise InputError(
        f"A model must be an identifier, a network in memory or a row of a ranking; {type(model).__name__} came."
    )


def open_teacher(model: Any, task: Task) -> tuple[Backbone, nn.Linear | None]:
    """A teacher, and its head where it was tuned for the targets of the task."""
    named = model
    if (folder := _bare_weights(model)) is not None:
        model = load_tuned(folder)
    backbone = open_model(model)
    if model is not named:
        backbone.card = replace(backbone.card, identifier=named)
    check_modality(backbone.card, task.modality, called=f"The teacher {backbone.card.identifier!r}")
    return backbone, _own_head(model, backbone, task)


def _bare_weights(model: Any) -> Path | None:
    """The folder of a tuned model that does not say how its network is built, so that its record has to."""
    identifier = Identifier.parse(model) if isinstance(model, str) else None
    if identifier is None or identifier.hub != "file" or identifier.options:
        return None
    folder = Path(identifier.name)
    return folder if (folder / TUNING).is_file() and is_bare(folder) else None


def _own_head(model: Any, backbone: Backbone, task: Task) -> nn.Linear | None:
    """The head of a teacher that was tuned for the targets of this task: a `Tuned`, or a folder that one was saved in.

    Its outputs are logits, or numbers in the targets' own units.
    """
    if isinstance(getattr(model, "backbone", None), Backbone):
        same = (tuple(model.target_names), model.kind) == (task.target_names, task.kind)
        return head_in_target_units(model.head, model.loss) if same else None
    identifier = Identifier.parse(backbone.card.identifier) if isinstance(model, str) else None
    if identifier is None or identifier.hub != "file":
        return None
    saved = read_description(Path(identifier.name))
    if (tuple(saved.get("target_names", ())), saved.get("kind")) != (task.target_names, task.kind):
        return None
    return copy.deepcopy(find_head(backbone, len(task.target_names)))


def open_model_to_tune(model: Any, task: Task) -> Backbone:
    """The model to tune, with the features that it is ranked by: what a ranking says of a model is where tuning starts.

    A text encoder is tuned by the mean of its tokens too, since its class token means little before tuning; with
    `?pooling=head` it is tuned as the sequence classifier of transformers.
    """
    backbone = open_model(model)
    check_modality(backbone.card, task.modality, called=f"The model {backbone.card.identifier!r}")
    if backbone.module is None:
        raise InputError(
            f"model={backbone.card.identifier!r} is no torch module and cannot be tuned; it can be a teacher."
        )
    return backbone


def feature_width(backbone: Backbone, task: Task) -> int:
    """How many features a model gives for a sample of the task: for pairs that are read apart more than for a text."""
    siamese = task.modality == "text-pair" and getattr(backbone.preprocessing, "pairs", "") == "siamese"
    return (PAIR_PARTS if siamese else 1) * backbone.card.feature_dim
