"""From what the user wrote as models to the models that will be tried, each once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hubscout.errors import InputError
from hubscout.hubs.default_models import SIZES, default_models
from hubscout.hubs.listing import ModelListing

if TYPE_CHECKING:
    from hubscout.hubs import Backbone
    from hubscout.runs.events import Observer


@dataclass(frozen=True)
class Candidate:
    """A model to be tried: its name, and the backbone where it was given ready."""

    identifier: str
    backbone: Backbone | None = None
    by_pattern: bool = False
    """Whether a pattern matched it: nobody asked for this one, so that it may turn out to be of another modality."""

    def open(self, observer: Observer | None = None) -> Backbone:
        """The backbone, loaded if need be; `observer` hears of its download."""
        if self.backbone is not None:
            return self.backbone
        from hubscout.features.opening import open_backbone

        return open_backbone(self.identifier, observer)


@dataclass(frozen=True)
class Candidates:
    """The models to be tried, and what hubs said while patterns were looked up."""

    models: tuple[Candidate, ...]
    notes: tuple[str, ...] = ()


def find_candidates(models: Any, modality: str | None = None, device: str = "auto") -> Candidates:
    """Models may be identifiers, backbones, patterns with `*` such as `timm/mobilenetv3*`, or a size of our own lists.

    A pattern that matches nothing, and an empty list, are errors: the user meant something by it. The same model
    twice is tried once. None is a list: `small` where `device` is a CPU, `base` where it is a GPU. Models of a pattern
    that are known to take something else than `modality`, the inputs of the task, are left out.
    """
    if models is None:
        from hubscout.features.precision import pick_device

        models = "small" if pick_device(device) == "cpu" else "base"
    given = [models] if isinstance(models, str) or not isinstance(models, Iterable) else list(models)
    found: dict[str, Candidate] = {}
    notes: list[str] = []
    for model in given:
        if isinstance(model, Candidate):
            found.setdefault(model.identifier, model)
        elif not isinstance(model, str):
            found.setdefault(_name_of(model), Candidate(_name_of(model), model))
        elif model in SIZES or _is_pattern(model):
            listing = _look_up(model, modality)
            notes += listing.notes
            if not listing:
                said = f" ({' '.join(listing.notes)})" if listing.notes else ""
                raise InputError(f"models: the pattern {model!r} matches no model{said}. See `hubscout models`.")
            for entry in listing:
                found.setdefault(entry.identifier, Candidate(entry.identifier, by_pattern=True))
        else:
            found.setdefault(model, Candidate(model))
    if not found:
        raise InputError("models is empty: give at least one identifier, such as timm/resnet50.a1_in1k, or a pattern.")
    return Candidates(tuple(found.values()), tuple(dict.fromkeys(notes)))


def _look_up(name: str, modality: str | None) -> ModelListing:
    """The models of a size, or those that match a pattern; of these only such as may take the inputs of the task."""
    from hubscout.hubs import list_models

    if name in SIZES:
        return default_models(str(modality), name)
    found = list_models(name)
    if modality is None or not found:
        return found
    taken = ModelListing((entry for entry in found if entry.takes(modality)), found.notes)
    if not taken:
        raise InputError(
            f"models: none of the {len(found)} models that match {name!r} takes {modality} inputs, which the task has."
        )
    return taken


def _is_pattern(text: str) -> bool:
    return "*" in text.partition("?")[0]


def _name_of(model: object) -> str:
    card = getattr(model, "card", None)
    if card is None:
        raise InputError(
            f"models: an identifier or a Backbone was expected, not {type(model).__name__}. A torch module is named "
            "python:module:function, by a function that returns it."
        )
    return card.identifier
