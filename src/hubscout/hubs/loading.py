"""`load` and `list_models`: from the string that names a model to the model, whatever the hub."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hubscout.amounts import parse_count, parse_limit
from hubscout.hubs.backbone import Backbone
from hubscout.hubs.hub_registry import HUBS
from hubscout.hubs.identifiers import Identifier
from hubscout.hubs.model_listing import ModelEntry, ModelListing
from hubscout.hubs.permission import refuse_code
from hubscout.optional import uncollected


def load(identifier: str | Identifier, *, allow_code: bool = False, **options: Any) -> Backbone:
    """Open a model of any hub, in eval mode, on the CPU, in float32.

    `identifier` is `timm/NAME`, `torchvision/NAME`, `hf/ID`, `sentence-transformers/ID`, `pypi/NAME`, `onnx:PATH`,
    `file:PATH` or `python:module:function`, each with options behind a question mark if need be; `options` given
    here are the same ones and win.

    An identifier out of a file (a row of a saved ranking, the base of a saved model) opens data only:
    `CodeNotAllowedError` where it asks for a `python:` function or for `trust_remote_code`, unless `allow_code`.
    """
    parsed = Identifier.parse(identifier) if isinstance(identifier, str) else identifier
    if allow_code:
        parsed = replace(parsed, origin=None)
    refuse_code(parsed)
    hub = HUBS[parsed.hub]
    with uncollected():  # the libraries behind a hub are imported with its first model
        return hub.load(parsed.with_options(**options))


def list_models(
    pattern: str = "*",
    *,
    max_params: float | str | None = None,
    min_params: float | str | None = None,
    limit: int | str | None = None,
) -> ModelListing:
    """The models that match `hub/PATTERN` (shell wildcards), with what the hub tells of each.

    A bound on parameters (a number, or a text such as "10M") leaves out the models whose size the hub does not tell.
    Where a hub cannot be reached, the list holds what is on this machine, and its `notes` say so. Of the Hugging Face
    Hub the `limit` most downloaded models are looked at, 200 if it is None; where there are more, the `notes` say so.
    """
    most = None if limit is None else parse_limit(limit, least=1)
    smallest = None if min_params is None else parse_count(min_params, "min_params")
    largest = None if max_params is None else parse_count(max_params, "max_params")
    hub_name, separator, name_pattern = pattern.partition("/")
    if ":" in hub_name or not separator:
        hub_name, _, name_pattern = pattern.partition(":")
    if hub_name == "*":
        found = ModelListing()
        for name in HUBS:
            part = _ask(HUBS[name], name_pattern or "*", most)
            found.extend(part)
            found.notes += part.notes
    else:
        found = _ask(HUBS[hub_name], name_pattern or "*", most)
    return ModelListing((entry for entry in found if _fits(entry, smallest, largest)), found.notes)


def _ask(hub: Any, pattern: str, limit: int | None) -> ModelListing:
    return hub.list_models(pattern, limit) if getattr(hub, "takes_limit", False) else hub.list_models(pattern)


def _fits(entry: ModelEntry, min_params: float | None, max_params: float | None) -> bool:
    if min_params is None and max_params is None:
        return True
    if entry.params is None:
        return False
    return (min_params or 0) <= entry.params and (max_params is None or entry.params <= max_params)
