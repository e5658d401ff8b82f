"""What models to try by default: lists of our own by size, or what is on this machine."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from hubscout.errors import InputError, MissingDependencyError
from hubscout.hubs.connection import hub_silence
from hubscout.hubs.model_listing import TEXT_MODALITIES, ModelEntry, ModelListing

SIZES = ("small", "base", "large")


@cache
def default_lists() -> dict[str, dict[str, dict[str, str]]]:
    """Kind of input → size → models, and why each is there."""
    found = tomllib.loads(files(__package__).joinpath("default_models.toml").read_text(encoding="utf-8"))
    return {"image": found["image"], "audio": found["audio"], **dict.fromkeys(TEXT_MODALITIES, found["text"])}


def default_models(modality: str, size: str) -> ModelListing:
    """The models to try for a kind of input; with no hub to reach, those that are installed or in the local cache.

    Args:
        modality: the kind of input, such as "image".
        size: "small", "base" or "large".

    Returns:
        The models; `notes` say which list was taken, or why it was not.

    Raises:
        InputError: there is no list for this kind of input, or no hub and no model on this machine.

    Example:
        >>> default_models("image", "huge")
        Traceback (most recent call last):
        hubscout.errors.InputError: models must be a size (small, base, large), identifiers or patterns, not 'huge'.

    """
    if size not in SIZES:
        raise InputError(f"models must be a size ({', '.join(SIZES)}), identifiers or patterns, not {size!r}.")
    if modality not in (lists := default_lists()):
        raise InputError(
            f"models: there is no list of models for inputs of the kind {modality!r}, only for {', '.join(lists)}. "
            "Name them, such as python:module:function for a torch module of your own."
        )
    if (silence := hub_silence()) is None:
        entries = [ModelEntry(identifier=one, modalities=(modality,)) for one in lists[modality][size]]
        return ModelListing(entries, [f"Models: the {len(entries)} of the list '{size}' for {modality} inputs."])
    here = list(_on_this_machine(modality))
    if not here:
        raise InputError(
            f"models: {silence}, and no model for {modality} inputs is installed or in the local cache. Connect once, "
            "install some (pip install 'hubscout[demo]'), or name one on this machine as file:PATH."
        )
    there = f"the {len(here)} that are" if len(here) > 1 else "the one that is"
    return ModelListing(here, [f"Models: {there} on this machine, not the list '{size}': {silence}."])


def _on_this_machine(modality: str) -> Iterator[ModelEntry]:
    from hubscout.hubs.hub_registry import HUBS

    for hub in ("pypi", "timm", "torchvision", "sentence-transformers", "hf"):
        try:
            found = HUBS[hub].list_models("*")
        except MissingDependencyError:
            continue
        for entry in found:
            # What the hubs of timm and sentence-transformers have found is in the same cache.
            again = entry.identifier.startswith(("hf/timm/", "hf/sentence-transformers/"))
            if entry.on_this_machine and not again and entry.takes(modality):
                yield entry
