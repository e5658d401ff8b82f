"""Imports of packages that only some parts of hubscout need."""

from __future__ import annotations

import importlib
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
