"""From what the user wrote as models to the models that will be tried, each once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hubscout.errors import InputError
from hubscout.hubs.model_listing import SIZES, ModelListing, default_models

if TYPE_CHECKING:
    from hubscout.hubs import Backbone
    from hubscout.runs.events import Observer


@dataclass(frozen=True)
class Candidate:
    """A model to be tried: its name, and the backbone where it was given ready."""

    identifier: str
    backbone: Backbone | None = None
    model: Any = field(default=None, repr=False)
    """A network in memory, held here as long as it is needed: the hub `memory` copies it when it is opened."""
    by_pattern: bool = False
    """Whether a pattern matched it: nobody asked for this one, so that it may turn out to be of another modality."""

    def ready(self) -> Backbone | None:
        """What must be sent to another process, because it cannot be opened there by its name."""
        return self.backbone if self.model is None else self.open()

    def open(self, observer: Observer | None = None) -> Backbone:
        """The backbone, loaded if need be; `observer` hears of its download."""
        if self.backbone is not None:
            return self.backbone
        from hubscout.features.extraction import open_backbone

        return open_backbone(self.identifier, observer)


@dataclass(frozen=True)
class Candidates:
    """The models to be tried, and what hubs said while patterns were looked up."""

    models: tuple[Candidate, ...]
    notes: tuple[str, ...] = ()


def find_candidates(models: Any, modality: str | None = None, device: str = "auto") -> Candidates:
    """Models may be identifiers, patterns such as `timm/mobilenetv3*`, models in memory, or a size of our own lists.

    A mapping gives models in memory their names. Options behind a pattern, as in `pypi/a*?input_size=64`, are those of
    every model that it matches.

    A pattern that matches nothing, and an empty list, are errors: the user meant something by it. The same model
    twice is tried once. None is a list: `small` where `device` is a CPU, `base` where it is a GPU. Models of a pattern
    that are known to take something else than `modality`, the inputs of the task, are left out.
    """
    if models is None:
        from hubscout.features.precision import pick_device

        models = "small" if pick_device(device) == "cpu" else "base"
    found: dict[str, Candidate] = {}
    notes: list[str] = []
    for name, model in _given(models):
        if isinstance(model, Candidate):
            found.setdefault(model.identifier, model)
        elif not isinstance(model, str):
            candidate = _in_memory(model, name, found)
            found.setdefault(candidate.identifier, candidate)
        elif model in SIZES or _is_pattern(model):
            from hubscout.hubs import Identifier

            pattern, _, options = model.partition("?")
            listing = _look_up(pattern, modality)
            notes += listing.notes
            if not listing:
                said = f" ({' '.join(listing.notes)})" if listing.notes else ""
                raise InputError(f"models: the pattern {model!r} matches no model{said}. See `hubscout models`.")
            for entry in listing:
                identifier = entry.identifier
                if options:
                    given = Identifier.parse(f"{entry.identifier.partition('?')[0]}?{options}").options
                    identifier = str(Identifier.parse(identifier).with_options(**given))
                found.setdefault(identifier, Candidate(identifier, by_pattern=True))
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


def _given(models: Any) -> list[tuple[str | None, Any]]:
    """What was given, one by one, each with its name if it has one. A network is one model, also if it has parts."""
    if isinstance(models, Mapping):
        return [(str(name), model) for name, model in models.items()]
    if isinstance(models, str):
        return [(None, models)]
    from hubscout.hubs.model_objects import is_model

    one = is_model(models) or not isinstance(models, Iterable)
    return [(None, model) for model in ([models] if one else models)]


def _in_memory(model: Any, name: str | None, taken: Collection[str]) -> Candidate:
    from hubscout.hubs import Backbone
    from hubscout.hubs.model_objects import register

    if isinstance(model, Backbone) and name is None:
        return Candidate(model.card.identifier, model)
    return Candidate(register(model, name, taken), model=model)
