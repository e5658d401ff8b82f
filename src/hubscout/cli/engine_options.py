"""The options of commands that can run on a cluster, or in several processes."""

from __future__ import annotations

from typing import Any


def engine_options(engine: str, address: str | None, workers: int | None = None) -> dict[str, Any]:
    """What `--address` and `--workers` mean to an engine.

    >>> engine_options("ray", "auto"), engine_options("local", None, 4)
    ({'address': 'auto'}, {'workers': 4})
    """
    from hubscout.errors import InputError

    options: dict[str, Any] = {}
    for name, value, owner in (("address", address, "ray"), ("workers", workers, "local")):
        if value is not None and engine != owner:
            raise InputError(f"--{name} is for --engine {owner}, not for {engine}.")
        if value is not None:
            options[name] = value
    return options
