"""What a job of a ranking needs of a machine, and how long it will take compared with the others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hubscout.ranking.candidates import Candidate

if TYPE_CHECKING:
    from hubscout.engines import Engine

_SMALL_PARAMS, _MEDIUM_PARAMS = 30e6, 120e6
_BYTES_A_PARAMETER = 4


@dataclass(frozen=True)
class Needs:
    """CPUs and GPUs of one job, and a guess of its cost, in any unit."""

    cpus: float
    gpus: float
    cost: float


def guess_params(candidate: Candidate) -> int | None:
    """How many parameters a model has, where that is known without loading it."""
    if candidate.backbone is not None:
        return candidate.backbone.card.params
    scheme, _, path = candidate.identifier.partition(":")
    if scheme in ("file", "onnx"):
        try:
            return Path(path.partition("?")[0]).expanduser().stat().st_size // _BYTES_A_PARAMETER
        except OSError:
            return None
    if scheme in ("memory", "python"):
        return None
    try:
        from hubscout.hubs import list_models

        entries = list_models(candidate.identifier.partition("?")[0])
    except Exception:
        return None  # it is a guess: the load itself says what is wrong
    return entries[0].params if entries else None


def job_needs(params: int | None, rows: int, engine: Engine, device: str) -> Needs:
    """Several small models share a GPU; where there is none, a job has one core.

    The cost grows with the parameters and the rows; a model that is not known counts as large, so as to start early.
    """
    size = float(params) if params else _MEDIUM_PARAMS
    cost = size * rows
    gpus_there = 0.0 if device in ("cpu", "mps") else engine.total("GPU")
    if gpus_there == 0.0 and not device.startswith("cuda"):
        return Needs(1.0, 0.0, cost)
    share = 1.0 if params is None or size > _MEDIUM_PARAMS else (0.25 if size <= _SMALL_PARAMS else 0.5)
    # Its share of the cores decodes for it.
    cores = engine.total("CPU") / gpus_there * share if gpus_there else 1.0
    return Needs(float(max(1, math.floor(cores))), share, cost)
