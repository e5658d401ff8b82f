"""The options of commands that can run on a cluster."""

from __future__ import annotations

from typing import Any


def engine_options(engine: str, address: str | None) -> dict[str, Any]:
    """What `--address` means to an engine.

    >>> engine_options("ray", "auto")
    {'address': 'auto'}
    """
    from hubscout.errors import InputError

    if address is None:
        return {}
    if engine != "ray":
        raise InputError(f"--address is for --engine ray, not for {engine}.")
    return {"address": address}
