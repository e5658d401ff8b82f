"""Whether the row of an earlier run still holds, or its model has changed since."""

from __future__ import annotations

from pathlib import Path

from hubscout.ranking.candidates import Candidate
from hubscout.runs.row import Row

_LOCAL_HUBS = ("file", "memory", "onnx", "python")


def still_holds(row: Row, candidate: Candidate) -> bool:
    """Whether the candidate is, in weights, layers and source, the model that the row was made from.

    A model that lies on this machine is opened to find out: the time of a file says when it was written, not what is
    in it. One of a hub does not change under its name, and is not.
    """
    from hubscout.features.feature_keys import identity

    if candidate.backbone is None and not _is_local(candidate.identifier):
        return True
    try:
        now = identity(candidate.open())
    except Exception:
        return False  # it is tried again, and its failure told there
    return bool(now) and now == row.card.get("weights_fingerprint")


def _is_local(identifier: str) -> bool:
    from hubscout.hubs import Identifier

    parsed = Identifier.parse(identifier)
    named = (parsed.name, *parsed.options.values())
    return parsed.hub in _LOCAL_HUBS or any(isinstance(name, str) and _exists(name) for name in named)


def _exists(name: str) -> bool:
    try:
        return Path(name).expanduser().exists()
    except OSError:  # too long for a name, and the like
        return False
