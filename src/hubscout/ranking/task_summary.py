"""What a ranking keeps of its task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hubscout.runs.ranking import TaskSummary

if TYPE_CHECKING:
    from hubscout.tasks import Task


def summarise(task: Task, notes: Sequence[str], skipped: Sequence[str]) -> TaskSummary:
    """The task in plain values, with further notes; `skipped` are models of patterns that read other inputs."""
    said = [*task.notes, *notes]
    if skipped:
        listed = ", ".join(skipped[:3]) + (" …" if len(skipped) > 3 else "")
        said.append(f"models of a pattern that read other inputs are left out ({len(skipped)}): {listed}")
    return TaskSummary(
        name=task.name,
        kind=task.kind,
        modality=task.modality,
        fingerprint=task.fingerprint,
        target_names=tuple(task.target_names),
        rows={split: len(part) for split, part in task.splits.items()},
        notes=tuple(said),
        source=task.source,
    )
