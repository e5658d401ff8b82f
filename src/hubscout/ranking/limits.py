"""What models may cost: one that may not be deployed costs no time, as far as its cost is known before it is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hubscout.errors import OverLimitError
from hubscout.features.precision import pick_device
from hubscout.ranking.candidates import Candidate, listed_params
from hubscout.ranking.latency import Latency, measure_latency
from hubscout.runs.texts import human_count, human_seconds

if TYPE_CHECKING:
    from hubscout.hubs import Backbone
    from hubscout.hubs.backbone import ModelCard

BY_ITS_HUB = 1.25
"""Times the limit, from which a model is not even opened: hubs count heads that a backbone may not have."""
AT_FIRST = 2.0
"""Times the limit, from which a model is not run: in the layout that it will run in it may be faster."""
_UNITS = {"params": "parameters", "flops": "operations per sample", "latency_seconds": "per sample"}


def over_by_its_hub(candidate: Candidate, limits: Mapping[str, float]) -> str:
    """Why a model is not opened, by the parameters that its hub lists; empty where it is."""
    most = limits.get("params")
    params = None if most is None else listed_params(candidate)
    if most is None or params is None or params <= BY_ITS_HUB * most:
        return ""
    return f"{human_count(params)} parameters by its hub, of at most {human_count(most)}"


def check_card(card: ModelCard, limits: Mapping[str, float]) -> None:
    """Refuse a model that is opened and has too many parameters or operations, or nobody knows how many."""
    for name in ("params", "flops"):
        if name in limits:
            _check(name, getattr(card, name), limits[name])


def check_latency(latency: Latency | None, limits: Mapping[str, float]) -> None:
    """Refuse a model that takes too long per sample."""
    if "latency_seconds" in limits and latency is not None:
        _check("latency_seconds", latency.seconds, limits["latency_seconds"])


def check_first_latency(backbone: Backbone, inputs: Sequence[Any], limits: Mapping[str, float], device: str) -> None:
    """Refuse a model that takes far too long per sample before it is run over all of them."""
    if (most := limits.get("latency_seconds")) is None:
        return
    try:
        first = measure_latency(backbone, inputs[0], device=pick_device(device))
    except Exception:  # a sample that cannot be read, or a model that cannot run, is told of when all are run
        return
    if first.seconds > AT_FIRST * most:
        check_latency(first, limits)


def _check(name: str, cost: float | None, most: float) -> None:
    text = human_seconds if name == "latency_seconds" else human_count
    if cost is None:
        raise OverLimitError(f"nobody knows how many {_UNITS[name]} it has, and at most {text(most)} are allowed")
    if cost > most:
        raise OverLimitError(f"{text(cost)} {_UNITS[name]}, of at most {text(most)}")
