"""`Identifier`: the string that names a model, read and written, and what opening such a model would run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from hubscout.errors import CodeNotAllowedError, InputError
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
            meant = f"Did you mean 'file:{text}'? " if Path(body).expanduser().exists() else ""
            raise InputError(
                f"Model {text!r} names no hub. {meant}Write hub/NAME, such as timm/resnet50.a1_in1k or "
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
