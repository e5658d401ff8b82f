"""From what the user wrote as models to the models that will be tried, each once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubscout.errors import InputError

if TYPE_CHECKING:
    from hubscout.hubs import Backbone
    from hubscout.runs.events import Observer


@dataclass(frozen=True)
class Candidate:
    """A model to be tried: its name, and the backbone where it was given ready."""

    identifier: str
    backbone: Backbone | None = None

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


def find_candidates(models: Iterable[str | Backbone] | str | Backbone) -> Candidates:
    """Models may be identifiers, backbones, or patterns with `*` such as `timm/mobilenetv3*`.

    A pattern that matches nothing, and an empty list, are errors: the user meant something by it. The same model
    twice is tried once.
    """
    given = [models] if isinstance(models, str) or not isinstance(models, Iterable) else list(models)
    found: dict[str, Candidate] = {}
    notes: list[str] = []
    for model in given:
        if not isinstance(model, str):
            found.setdefault(_name_of(model), Candidate(_name_of(model), model))
        elif _is_pattern(model):
            from hubscout.hubs import list_models

            listing = list_models(model)
            notes += listing.notes
            if not listing:
                said = f" ({' '.join(listing.notes)})" if listing.notes else ""
                raise InputError(f"models: the pattern {model!r} matches no model{said}. See `hubscout models`.")
            for entry in listing:
                found.setdefault(entry.identifier, Candidate(entry.identifier))
        else:
            found.setdefault(model, Candidate(model))
    if not found:
        raise InputError("models is empty: give at least one identifier, such as timm/resnet50.a1_in1k, or a pattern.")
    return Candidates(tuple(found.values()), tuple(dict.fromkeys(notes)))


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
