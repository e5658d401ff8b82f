"""What the shell offers for values: metrics, hubs, run folders."""

from __future__ import annotations

from pathlib import Path

from hubscout.runs.file_names import RANKING


def complete_metrics(incomplete: str) -> list[str]:
    """Names of metrics; after a comma the next one."""
    from hubscout.metrics import available

    done, comma, last = incomplete.rpartition(",")
    return [f"{done}{comma}{name}" for name in available() if name.startswith(last)]


def complete_models(incomplete: str) -> list[str]:
    """The hubs, each with the sign that follows its name."""
    from hubscout.hubs.hub_registry import HUBS

    done, comma, last = incomplete.rpartition(",")
    starts = [f"{name}:" if name in {"file", "onnx", "python"} else f"{name}/" for name in HUBS]
    return [f"{done}{comma}{start}" for start in starts if start.startswith(last)]


def complete_runs(incomplete: str) -> list[str]:
    """Folders in sight that hold a saved ranking."""
    return sorted(str(path.parent) for path in Path().glob(f"*/{RANKING}") if str(path.parent).startswith(incomplete))
