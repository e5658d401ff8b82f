"""The hubs by name: those of hubscout, each imported when it is asked for, and those that other packages bring.

A package adds a hub with an entry point in the group `hubscout.hubs`; it names a module or an object with the two
functions of `Hub`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Protocol

from hubscout.errors import UnknownHubError
from hubscout.hubs.backbone import Backbone
from hubscout.hubs.identifiers import Identifier
from hubscout.hubs.model_listing import ModelListing
from hubscout.registry import Registry


class Hub(Protocol):
    """A place that models come from. A module with these two functions is one.

    A hub with more models than anybody lists sets `takes_limit`: its `list_models` has a second argument, how many to
    look at at most, or None for its own bound.
    """

    def load(self, identifier: Identifier) -> Backbone:
        """Open a model in eval mode on the CPU; `identifier` goes into its card."""
        ...

    def list_models(self, pattern: str) -> ModelListing:
        """The models whose name, without the hub, matches a shell pattern."""
        ...


@dataclass(frozen=True)
class _BuiltInHub:
    """A hub of hubscout itself. Its module, and the libraries behind it, are imported on first use."""

    module: str
    takes_limit: bool = False

    def load(self, identifier: Identifier) -> Backbone:
        return self._import().load(identifier)

    def list_models(self, pattern: str, *limit: int | None) -> ModelListing:
        return self._import().list_models(pattern, *limit)

    def _import(self) -> Any:
        return importlib.import_module(f"hubscout.hubs.{self.module}")


HUBS: Registry[Hub] = Registry("hub", UnknownHubError, group="hubscout.hubs")
for _name, _module in {
    "file": "local_file",
    "hf": "huggingface",
    "memory": "model_objects",
    "onnx": "onnx_hub",
    "pypi": "pypi",
    "python": "python_callable",
    "sentence-transformers": "sentence_transformers_hub",
    "timm": "timm_hub",
    "torchvision": "torchvision_hub",
}.items():
    HUBS.add(_name, _BuiltInHub(_module, takes_limit=_name in ("hf", "sentence-transformers")))
