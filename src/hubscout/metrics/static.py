"""Baselines that never look at the data: what is known of a model before it is run.

An honest evaluation prints them beside the metrics, since on many zoos they are hard to beat.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hubscout.errors import InputError
from hubscout.metrics.metric_registry import KINDS, metric


@metric("params", needs=("card",), kinds=KINDS)
def params(card: Any) -> float:
    """Number of parameters: the larger model is taken to be the better one.

    Args:
        card: what is known of the model: a `ModelCard` or a mapping with `params`.

    Returns:
        The number.

    Raises:
        InputError: the card does not tell it.

    Example:
        >>> params({"params": 25_557_032})
        25557032.0

    """
    return _read(card, "params", "the number of parameters")


@metric("flops", needs=("card",), kinds=KINDS)
def flops(card: Any) -> float:
    """Multiply-adds for one sample, counted twice: the network that computes more is taken to be the better one.

    Args:
        card: what is known of the model: a `ModelCard` or a mapping with `flops`.

    Returns:
        The number.

    Raises:
        InputError: the card does not tell it.

    Example:
        >>> flops({"flops": 8_200_000_000})
        8200000000.0

    """
    return _read(card, "flops", "the number of multiply-adds")


@metric("source-accuracy", needs=("card",), kinds=KINDS)
def source_accuracy(card: Any) -> float:
    """Accuracy on the data that the model was pre-trained with, as its card states it.

    Args:
        card: what is known of the model: a `ModelCard` or a mapping with `source_accuracy`.

    Returns:
        The accuracy, as the card states it.

    Raises:
        InputError: the card does not tell it.

    Example:
        >>> source_accuracy({"source_accuracy": 0.804})
        0.804

    """
    return _read(card, "source_accuracy", "the accuracy on its source data")


@metric("popularity", needs=("card",), kinds=KINDS)
def popularity(card: Any) -> float:
    """Downloads, as the hub counted them when the card was read.

    Args:
        card: what is known of the model: a `ModelCard` or a mapping with `downloads`.

    Returns:
        The number.

    Raises:
        InputError: the card does not tell it.

    Example:
        >>> popularity({"downloads": 1200})
        1200.0

    """
    return _read(card, "downloads", "the number of downloads")


def _read(card: Any, name: str, meaning: str) -> float:
    value = card.get(name) if isinstance(card, Mapping) else getattr(card, name, None)
    if value is None:
        identifier = card.get("identifier") if isinstance(card, Mapping) else getattr(card, "identifier", None)
        whose = f" of {identifier!r}" if identifier else ""
        raise InputError(f"card{whose} does not state {meaning} ({name} is None).")
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not np.isfinite(value):
        raise InputError(f"card.{name} must be a finite number; got {value!r}.")
    return float(value)
