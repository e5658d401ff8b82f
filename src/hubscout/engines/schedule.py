"""Which job a free worker gets next. Pure bookkeeping: no processes here."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hubscout.engines.job import Job, in_order
from hubscout.errors import InputError

Shape = tuple[float, float]
"""CPUs and GPUs of a worker."""


def shape_of(job: Job) -> Shape:
    """What a job needs."""
    return (job.cpus, job.gpus)


@dataclass
class Group:
    """The waiting jobs of one group."""

    name: str
    waiting: deque[Job] = field(default_factory=deque)

    @property
    def cost(self) -> float:
        """What is left to do."""
        return sum(job.cost for job in self.waiting)


class Schedule:
    """The jobs that wait, by group.

    A worker stays with its group, whose model it has loaded. A free one takes the costliest group that nobody works
    on; when there is none left, it helps where most is left to do for each worker.
    """

    def __init__(self, jobs: Iterable[Job]) -> None:
        self.groups: dict[str, Group] = {}
        self._keys: set[str] = set()
        self.add(jobs)

    def __len__(self) -> int:
        return sum(len(group.waiting) for group in self.groups.values())

    def add(self, jobs: Iterable[Job]) -> None:
        """Enter new jobs."""
        for job in in_order(list(jobs)):
            if job.key in self._keys:
                raise InputError(f"The keys of jobs must differ; {job.key!r} is there more than once.")
            self._keys.add(job.key)
            self._group(job).waiting.append(job)

    def put_back(self, job: Job) -> None:
        """A job that was taken and did not finish: it is the next of its group."""
        self._group(job).waiting.appendleft(job)

    def take(self, shape: Shape, own: str | None, workers: Mapping[str, int]) -> Job | None:
        """The next job for a worker of this shape that has `own` loaded; `workers` are those busy with each group."""
        if own is not None and own in self.groups and self._fits(self.groups[own], shape):
            return self.groups[own].waiting.popleft()
        open_groups = [group for group in self.groups.values() if self._fits(group, shape)]
        if not open_groups:
            return None
        fresh = [group for group in open_groups if not workers.get(group.name)]
        if fresh:
            return max(fresh, key=lambda group: group.cost).waiting.popleft()
        return max(open_groups, key=lambda group: (group.cost + 1e-9) / workers[group.name]).waiting.popleft()

    def withdraw(self, group: str) -> list[Job]:
        """Take out all waiting jobs of a group that cannot do without one that failed."""
        found = self.groups.get(group)
        if found is None:
            return []
        gone = [job for job in found.waiting if job.together]
        found.waiting = deque(job for job in found.waiting if not job.together)
        return gone

    def shapes(self) -> dict[Shape, int]:
        """How many jobs of each shape wait, those of the costliest group first."""
        counts: dict[Shape, int] = {}
        for group in sorted(self.groups.values(), key=lambda group: -group.cost):
            for job in group.waiting:
                counts[shape_of(job)] = counts.get(shape_of(job), 0) + 1
        return counts

    def withdraw_shape(self, shape: Shape) -> list[Job]:
        """Take out all waiting jobs of a shape that no machine has room for."""
        gone = []
        for group in self.groups.values():
            gone += [job for job in group.waiting if shape_of(job) == shape]
            group.waiting = deque(job for job in group.waiting if shape_of(job) != shape)
        return gone

    @staticmethod
    def _fits(group: Group, shape: Shape) -> bool:
        return bool(group.waiting) and shape_of(group.waiting[0]) == shape

    def _group(self, job: Job) -> Group:
        name = job.group or job.key
        return self.groups.setdefault(name, Group(name))
