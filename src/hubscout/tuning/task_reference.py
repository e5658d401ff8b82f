"""A task that can be sent: by where it is opened from, or, within this process, as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hubscout.errors import InputError
from hubscout.tasks import Task


@dataclass(frozen=True)
class TaskReference:
    """Opens the task where it arrives. Data in memory stays in this process."""

    source: Mapping[str, Any] | None
    task: Task | None

    @classmethod
    def of(cls, task: Task, *, elsewhere: bool) -> TaskReference:
        """A reference for jobs; `elsewhere` where they run in other processes."""
        if not elsewhere:
            return cls(None, task)
        if task.source is None:
            raise InputError(
                f"The task {task.name!r} lies in this process's memory and cannot be sent to others: open it from "
                "files, or use engine='local'."
            )
        return cls(task.source, None)

    def open(self) -> Task:
        """The task."""
        if self.task is not None:
            return self.task
        assert self.source is not None
        return Task.reopen(self.source)
