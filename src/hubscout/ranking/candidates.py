"""From what the user wrote as models to the models that will be tried, each once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.errors import InputError
from hubscout.hubs.default_models import SIZES, default_models
from hubscout.hubs.model_listing import ModelListing
from hubscout.runs.row import Row

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
    params: int | None = None
    """Parameters, where a pattern was looked up and the hub has told."""

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

    @property
    def identifiers(self) -> list[str]:
        """Of the models."""
        return [candidate.identifier for candidate in self.models]


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
        elif model in SIZES or "*" in model.partition("?")[0]:
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
                found.setdefault(identifier, Candidate(identifier, by_pattern=True, params=entry.params))
        else:
            _check_hub(model)
            found.setdefault(model, Candidate(model))
    if not found:
        raise InputError("models is empty: give at least one identifier, such as timm/resnet50.a1_in1k, or a pattern.")
    return Candidates(tuple(found.values()), tuple(dict.fromkeys(notes)))


def _check_hub(model: str) -> None:
    """Refuse a word that names no hub, such as a size mistyped: no model can come of it."""
    from hubscout.hubs import Identifier

    try:
        Identifier.parse(model)
    except InputError as error:
        raise InputError(f"{error} Or one of hubscout's own lists: {', '.join(SIZES)}.") from error


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


def _given(models: Any) -> list[tuple[str | None, Any]]:
    """What was given, one by one, each with its name if it has one. A network is one model, also if it has parts."""
    if isinstance(models, Mapping):
        return [(str(name), model) for name, model in models.items()]
    if isinstance(models, str):
        return [(None, models)]
    from hubscout.hubs.model_objects import is_model

    one = is_model(models) or not isinstance(models, Iterable)
    return [(None, model) for model in ([models] if one else models)]


def _in_memory(model: Any, name: str | None, taken: Mapping[str, Candidate]) -> Candidate:
    from hubscout.hubs import Backbone
    from hubscout.hubs.model_objects import register

    if isinstance(backbone := getattr(model, "backbone", None), Backbone):  # a tuned model
        model = backbone
    if isinstance(model, Backbone) and name is None:
        known = taken.get(model.card.identifier)
        if known is None or known.backbone is model:
            return Candidate(model.card.identifier, model)
    return Candidate(register(model, name, taken), model=model)


def listed_params(candidate: Candidate) -> int | None:
    """How many parameters a model has by the listing of its hub; None where it is listed nowhere."""
    if candidate.backbone is not None or candidate.identifier.partition(":")[0] in _LOCAL_HUBS:
        return None
    if candidate.params is not None:
        return candidate.params
    try:
        from hubscout.hubs import list_models

        entries = list_models(candidate.identifier.partition("?")[0])
    except Exception:
        return None  # it is a guess: the load itself says what is wrong
    return entries[0].params if entries else None


_LOCAL_HUBS = ("file", "memory", "onnx", "python")


def still_holds(row: Row, candidate: Candidate) -> bool:
    """Whether the candidate is, in weights, layers and source, the model that the row was made from.

    A model that lies on this machine is opened to find out: the time of a file says when it was written, not what is
    in it. One of a hub does not change under its name, and is not.
    """
    from hubscout.features.feature_keys import identity

    if candidate.backbone is None and not _is_local(candidate.identifier):
        return True
    try:
        now = identity(candidate.open())
    except Exception:
        return False  # it is tried again, and its failure told there
    return bool(now) and now == row.card.get("weights_fingerprint")


def _is_local(identifier: str) -> bool:
    from hubscout.hubs import Identifier

    parsed = Identifier.parse(identifier)
    named = (parsed.name, *parsed.options.values())
    return parsed.hub in _LOCAL_HUBS or any(isinstance(name, str) and _exists(name) for name in named)


def _exists(name: str) -> bool:
    try:
        return Path(os.path.expanduser(name)).exists()
    except OSError:  # too long for a name, and the like
        return False
