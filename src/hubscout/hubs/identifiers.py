"""`Identifier`: the one string that names a model, of whatever hub, and opens it again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, unquote

from hubscout.errors import InputError
from hubscout.file_identifiers import IdentifierFromFile

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

        Raises:
            InputError: the text names no hub, or has an option that is not of the form key=value.

        """
        body, options = _split_options(text)
        found = _SHAPE.fullmatch(body)
        if found is None:
            raise InputError(
                f"Model {text!r} names no hub. Write hub/NAME, such as timm/resnet50.a1_in1k or "
                "hf/facebook/dinov2-small, or file:PATH, onnx:PATH, python:module:function."
            )
        return cls(found["hub"], found["name"], options, getattr(text, "origin", None))

    def with_options(self, **options: Any) -> Identifier:
        """The same model with more options, the new ones winning."""
        return replace(self, options={**self.options, **options})

    def check_options(self, allowed: Iterable[str]) -> None:
        """Refuse an option that is not one of these."""
        unknown = sorted(self.options.keys() - set(allowed))
        if unknown:
            raise InputError(f"'{self}' has the unknown option {unknown[0]!r}; allowed: {', '.join(allowed)}.")

    def __str__(self) -> str:
        separator = ":" if self.hub in _COLON_HUBS else "/"
        text = f"{self.hub}{separator}{self.name}"
        if self.options:
            text += "?" + "&".join(f"{key}={_write(self.options[key])}" for key in sorted(self.options))
        return text if self.origin is None else IdentifierFromFile(text, self.origin)


def _split_options(text: str) -> tuple[str, dict[str, Any]]:
    # A question mark may stand in a file name: only one that key=value follows opens the options.
    body, mark, tail = text.rpartition("?")
    if not mark or "=" not in tail:
        return text, {}
    options: dict[str, Any] = {}
    for part in tail.split("&"):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise InputError(f"Option {part!r} of model {text!r} is not of the form key=value.")
        # A revision is a name, also where it looks like a number: the tag 1.10 is not 1.1.
        options[key.strip()] = unquote(value) if key.strip() == "revision" else read_value(unquote(value))
    return body, options


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
