"""A task that can be sent to another process or machine: by where it is opened from, not with its data inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hubscout.engines.job_context import Held, remembered

if TYPE_CHECKING:
    from hubscout.engines import Engine, Shared
    from hubscout.tasks.task import Task

_TASKS_KEPT = 2


@dataclass(frozen=True)
class TaskReference:
    """Opens the task where it arrives, once in each process.

    A task with a `source` is opened from its files again, which all machines must see; its fingerprint is checked.
    Data in memory is put where the engine shares values.
    """

    fingerprint: str
    source: Mapping[str, Any] | None
    value: Shared[Task] | None

    @classmethod
    def of(cls, task: Task, engine: Engine) -> TaskReference:
        """A reference for the jobs of an engine."""
        if engine.elsewhere and task.source is not None:
            return cls(task.fingerprint, task.source, None)
        return cls(task.fingerprint, None, engine.share(task))

    def open(self) -> Task:
        """The task."""
        if isinstance(self.value, Held):  # it is in this process, whose memory ends with the work
            return self.value.value
        return remembered("task", self.fingerprint, self._open, most=_TASKS_KEPT)

    def _open(self) -> Task:
        from hubscout.tasks.task import Task

        if self.value is not None:
            return self.value.get()
        assert self.source is not None
        return Task.reopen(self.source)
