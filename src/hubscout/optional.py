"""Imports of packages that only some parts of hubscout need, and of large ones."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from hubscout.errors import MissingDependencyError


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import `module`, or say which extra installs it.

    >>> require("json", extra="none", purpose="This example").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise MissingDependencyError(package, extra, purpose) from error


def require_onnx() -> tuple[ModuleType, ModuleType]:
    """The packages `onnx` and `onnxruntime`: one writes a file, the other runs it for the check against torch."""
    return (
        require("onnx", extra="onnx", purpose="ONNX export"),
        require("onnxruntime", extra="onnx", purpose="The check of the ONNX export"),
    )


@contextmanager
def uncollected(*, imports_alone: bool = False) -> Iterator[None]:
    """No garbage collection while large libraries are imported: they make objects by the hundred thousand, none of them
    garbage, and looking through them again and again takes a quarter of the time.

    Where the block imports and does nothing else, what it made counts as old afterwards, as what survives some
    collections does. A network that was opened there as well would stay in memory for long after its last use.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if imports_alone and not gc.get_freeze_count():  # what the user has frozen stays so
            gc.freeze()
            gc.unfreeze()  # all of it into the oldest generation
        if was_on:
            gc.enable()
