"""The workers of one `run` on a Ray cluster: hired as there is room, given jobs, replaced when they die."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hubscout.engines.engine import Follow, Observer
from hubscout.engines.job import GivenUp, Job, JobResult
from hubscout.engines.ray_worker import Greeting, Surroundings, Worker
from hubscout.engines.schedule import Schedule, Shape
from hubscout.errors import EngineError

if TYPE_CHECKING:
    from hubscout.engines.ray_engine import RayEngine

Outcome = tuple[Job, JobResult]

_SECONDS_BETWEEN_LOOKS = 0.25
_SECONDS_BETWEEN_HIRING = 1.0
_SECONDS_TO_WAIT_FOR_ROOM = 30.0
_SECONDS_TO_WAIT_FOR_MAIL = 10.0
_MOST_LOST_MACHINES = 20
"""A job that outlived so many machines is given up all the same."""


@dataclass
class Member:
    """One worker process. `reference` is what is waited for: its greeting, then the result of its job."""

    actor: Any
    shape: Shape
    reference: Any
    greeting: Greeting | None = None
    group: str | None = None
    job: Job | None = None
    since: float = field(default_factory=time.monotonic)


class Crew:
    """Everything that happens between the first job and the last result."""

    def __init__(self, engine: RayEngine, jobs: Iterable[Job], observer: Observer | None, then: Follow | None) -> None:
        import ray

        self._ray = ray
        self._engine = engine
        self._schedule = Schedule(jobs)
        self._observer = observer
        self._then = then
        self._given_up = GivenUp({})
        self._members, engine.idle = engine.idle, []
        self._attempts: Counter[str] = Counter()
        self._machines_lost: Counter[str] = Counter()
        self._no_room_since: dict[Shape, float] = {}
        self._room: dict[Shape, int] = {}
        self._last_hiring = 0.0
        self._class: Any = ray.remote(Worker)
        self._surroundings = ray.put(Surroundings.here())
        self._mailbox = engine.mailbox
        self._letter: Any = None
        self._heard: dict[str, float] = {}

    def results(self) -> Iterator[JobResult]:
        """One result for each job."""
        while len(self._schedule) or any(member.job is not None for member in self._members):
            for job, result in self._turn():
                for settled in self._settle(job, result):
                    if self._then is not None:
                        self._schedule.add(self._then(settled))
                    yield settled

    def dismiss(self) -> None:
        """End the workers that are busy, or not there yet; the others wait for the next run."""
        for member in self._members:
            if member.greeting is not None and member.job is None:
                self._engine.idle.append(member)
            else:
                self._ray.kill(member.actor)
        self._members = []

    def _turn(self) -> list[Outcome]:
        """Hire, hand out, wait a moment, collect."""
        lost = self._hire()
        self._hand_out()
        waited_for = {member.reference: member for member in self._members if member.reference is not None}
        if not waited_for:
            time.sleep(0.0 if lost else _SECONDS_BETWEEN_LOOKS)
            return lost
        ready, _ = self._ray.wait(list(waited_for), timeout=_SECONDS_BETWEEN_LOOKS, fetch_local=False)
        self._read_mail(wait=bool(ready))
        found = [self._collect(waited_for[reference]) for reference in ready]
        found += [self._end_overdue(member) for member in list(self._members)]
        return lost + [outcome for outcome in found if outcome is not None]

    def _settle(self, job: Job, result: JobResult) -> list[JobResult]:
        """The result, and with it those of the jobs that are of no use any more."""
        self._given_up.note(job, result)
        if job.group not in self._given_up.reasons:
            return [result]
        gone = [self._given_up.result(other) for other in self._schedule.withdraw(job.group)]
        return [result, *(other for other in gone if other is not None)]

    def _failed(self, job: Job, error: Exception, seconds: float, trace: str = "") -> Outcome:
        return job, JobResult(job.key, seconds, error=error, traceback=trace, attempts=self._attempts[job.key])

    def _hire(self) -> list[Outcome]:
        """Start workers while jobs wait and machines have room; fail jobs that no machine could ever hold."""
        waiting = self._schedule.shapes()
        if not waiting:
            return []
        now = time.monotonic()
        if now - self._last_hiring > _SECONDS_BETWEEN_HIRING or not self._room.keys() >= waiting.keys():
            self._room = {shape: self._engine.room(*shape) for shape in waiting}  # machines come and go
            self._last_hiring = now
        lost: list[Outcome] = []
        for shape, count in waiting.items():
            if self._room[shape] == 0:
                since = self._no_room_since.setdefault(shape, now)
                if now - since > _SECONDS_TO_WAIT_FOR_ROOM:
                    error = EngineError(
                        f"no machine of the cluster has room for a job of {shape[0]:g} CPUs and {shape[1]:g} GPUs"
                    )
                    lost += [self._failed(job, error, 0.0) for job in self._schedule.withdraw_shape(shape)]
                continue
            self._no_room_since.pop(shape, None)
            own = [member for member in self._members if member.shape == shape]
            idle = sum(member.job is None for member in own)
            for _ in range(min(self._room[shape] - len(own), count - idle)):
                self._start(shape)
        return lost

    def _start(self, shape: Shape) -> None:
        actor: Any = self._class.options(num_cpus=shape[0], num_gpus=shape[1]).remote(self._surroundings, self._mailbox)
        self._members.append(Member(actor, shape, actor.greet.remote()))

    def _hand_out(self) -> None:
        for member in list(self._members):
            if member.greeting is None or member.job is not None:
                continue
            if self._should_make_way(member):
                self._let_go(member)
                continue
            job = self._next_job(member)
            if job is None:
                if not any(shape == member.shape for shape in self._schedule.shapes()) and len(self._schedule):
                    self._let_go(member)  # its place is wanted by others
                continue
            self._attempts[job.key] += 1
            member.job, member.group, member.since = job, job.group or job.key, time.monotonic()
            member.reference = member.actor.perform.remote(self._packed(job))

    def _next_job(self, member: Member) -> Job | None:
        busy = Counter(other.group for other in self._members if other.job is not None and other.group is not None)
        return self._schedule.take(member.shape, member.group, busy)

    def _should_make_way(self, member: Member) -> bool:
        """Whether costlier jobs wait for a worker of another shape, which Ray cannot place while this one is here."""
        first = next(iter(self._schedule.shapes()), member.shape)
        if first == member.shape:
            return False
        return not any(other.shape == first and other.greeting is not None for other in self._members)

    def _packed(self, job: Job) -> bytes:
        from ray import cloudpickle

        return cloudpickle.dumps(job)

    def _collect(self, member: Member) -> Outcome | None:
        """What a worker that is ready has to say."""
        job = member.job
        try:
            value = self._ray.get(member.reference)
        except self._ray.exceptions.RayTaskError as error:  # the value of the job could not be sent back
            member.job, member.reference = None, None
            cause = getattr(error, "cause", None)
            if job is None:
                return self._after_death(member, error)
            reason = cause if isinstance(cause, Exception) else EngineError(str(error))
            return self._failed(job, reason, time.monotonic() - member.since)
        except self._ray.exceptions.RayError as error:
            return self._after_death(member, error)
        if isinstance(value, Greeting):
            member.greeting, member.reference = value, None
            return None
        member.job, member.reference = None, None
        assert job is not None
        if value.error is not None:
            return self._failed(job, value.error, value.seconds, value.traceback)
        return job, JobResult(job.key, value.seconds, value=value.value, attempts=self._attempts[job.key])

    def _after_death(self, member: Member, error: Exception) -> Outcome | None:
        """A worker is gone: its job is run again, unless it has killed too many."""
        self._let_go(member)
        job = member.job
        if job is None:
            return None
        seconds = time.monotonic() - member.since
        if self._machine_is_gone(member):
            self._machines_lost[job.key] += 1
            self._attempts[job.key] -= 1
        if (lost := self._given_up.result(job)) is not None:
            return job, lost
        if self._attempts[job.key] < self._engine.attempts and self._machines_lost[job.key] < _MOST_LOST_MACHINES:
            self._schedule.put_back(job)
            return None
        return self._failed(job, EngineError(_why_it_died(error, self._attempts[job.key])), seconds)

    def _end_overdue(self, member: Member) -> Outcome | None:
        job = member.job
        if job is None or job.seconds_limit is None:
            return None
        now = time.monotonic()
        if now - max(member.since, self._heard.get(job.key, 0.0)) < job.seconds_limit:
            return None
        self._let_go(member)
        hung = EngineError(f"it gave no sign of life for {job.seconds_limit:g} seconds, its limit, and was ended")
        return self._failed(job, hung, now - member.since)

    def _let_go(self, member: Member) -> None:
        self._members.remove(member)
        self._ray.kill(member.actor)

    def _machine_is_gone(self, member: Member) -> bool:
        if member.greeting is None:
            return False
        return member.greeting.node not in {node["NodeID"] for node in self._engine.nodes()}

    def _read_mail(self, *, wait: bool = False) -> None:
        """Pass on what workers reported. With `wait`, all that came before; otherwise what is here by now."""
        if self._mailbox is None:
            return
        for _ in range(2 if wait and self._letter is not None else 1):
            if self._letter is None:
                self._letter = self._mailbox.fetch.remote()
            ready, _ = self._ray.wait([self._letter], timeout=_SECONDS_TO_WAIT_FOR_MAIL if wait else 0.0)
            if not ready:
                return
            letter, self._letter = self._letter, None
            try:
                events = self._ray.get(letter)
            except self._ray.exceptions.RayError:
                self._mailbox = None  # progress is not worth failing for
                return
            now = time.monotonic()
            for key, event in events:
                self._heard[key] = now
                if self._observer is not None:
                    self._observer(event)


def _why_it_died(error: Exception, attempts: int) -> str:
    # Ray's monitor says so in its own words; the kernel's says nothing, and a crash looks the same.
    known = any(sign in str(error) for sign in ("running low on memory", "memory pressure", "OOM-killed"))
    reason = "out of memory" if known else "killed, out of memory, or crashed"
    times = "once" if attempts == 1 else f"{attempts} times"
    return f"the process that ran it died {times} ({reason})"
