"""The engine `ray`: a cluster of machines, or this one as if it were."""

from __future__ import annotations

import logging
import math
import os
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from hubscout.engines.engine import ENGINES, Follow, Observer
from hubscout.engines.job import Job, JobResult
from hubscout.engines.shared import Shared
from hubscout.errors import EngineError, InputError
from hubscout.optional import require

if TYPE_CHECKING:
    from hubscout.engines.crew import Member

T = TypeVar("T")

_SECONDS_TO_KNOCK = 5.0


@dataclass(frozen=True)
class InObjectStore:
    """A value in Ray's object store; a machine fetches it once, its processes share the memory."""

    reference: Any

    def get(self) -> Any:
        """The value."""
        import ray

        return ray.get(self.reference)


@ENGINES.register("ray")
class RayEngine:
    """Runs jobs on a Ray cluster.

    Ray places worker processes where the CPUs and GPUs are that jobs ask for, and notices when one dies. A job whose
    worker died is run again, on another worker, `attempts` times in all; the loss of a whole machine is not held
    against the job. Results are counted once: a job that is run again is one that gave no result.

    Args:
        address: "auto" for the cluster that this machine is part of, "local" for one of its own on this machine,
            HOST:PORT or ray://HOST:PORT for another. None is $RAY_ADDRESS, else a cluster that runs here, else "local".
        attempts: how often a job is started before its death counts as its fault.
        dashboard: whether a cluster that is started here has a dashboard.
        options: for `ray.init`, such as `num_cpus`.

    """

    def __init__(
        self, address: str | None = None, *, attempts: int = 3, dashboard: bool = True, **options: Any
    ) -> None:
        if attempts < 1:
            raise InputError(f"attempts must be at least 1, got {attempts}.")
        self._ray = require("ray", extra="ray", purpose="The engine 'ray'")
        self.attempts = attempts
        self.notes: tuple[str, ...] = ()
        self.idle: list[Member] = []
        """Workers that wait for the next `run`, with what they have loaded."""
        self._mailbox: Any = None
        self._ours = not self._ray.is_initialized()
        url = self._connect(address, dashboard, options) if self._ours else ""
        if url:
            self.notes = (f"Ray's dashboard: {url if '://' in url else f'http://{url}'}",)

    @property
    def elsewhere(self) -> bool:
        """Jobs run in other processes."""
        return True

    def run(
        self, jobs: Iterable[Job], *, observer: Observer | None = None, then: Follow | None = None
    ) -> Iterator[JobResult]:
        """Results in the order in which jobs finish; the costliest groups start first."""
        from hubscout.engines.crew import Crew

        self.mailbox.fetch.remote()  # what an earlier run left
        crew = Crew(self, jobs, observer, then)
        try:
            yield from crew.results()
        finally:
            crew.dismiss()

    @property
    def mailbox(self) -> Any:
        """Where workers send what jobs report: on this machine, so that it is there as long as somebody listens."""
        if self._mailbox is None:
            from hubscout.engines.ray_worker import Mailbox

            here = self._ray.get_runtime_context().get_node_id()
            strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=True)
            self._mailbox = self._ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=strategy).remote()
        return self._mailbox

    def share(self, value: T) -> Shared[T]:
        """Put a value into the object store."""
        return InObjectStore(self._ray.put(value))

    def nodes(self) -> list[dict[str, Any]]:
        """The machines that are alive."""
        return [node for node in self._ray.nodes() if node["Alive"]]

    def places(self, *, cpus: float = 1.0, gpus: float = 0.0) -> int:
        """How many such jobs the machines there are hold at once, were they all free; at least 1."""
        return max(1, self.room(cpus, gpus))

    def room(self, cpus: float, gpus: float) -> int:
        """The same, 0 where none fits."""
        needs = {name: amount for name, amount in (("CPU", cpus), ("GPU", gpus)) if amount > 0}
        if not needs:
            return 10_000
        return sum(
            min(math.floor(node["Resources"].get(name, 0.0) / amount + 1e-9) for name, amount in needs.items())
            for node in self.nodes()
        )

    def total(self, resource: str) -> float:
        """CPUs or GPUs of all machines."""
        return float(sum(node["Resources"].get(resource, 0.0) for node in self.nodes()))

    def shares_files(self) -> bool:
        """Whether the cluster is this machine alone."""
        here = self._ray.util.get_node_ip_address()
        return {node["NodeManagerAddress"] for node in self.nodes()} <= {here, "127.0.0.1"}

    def release(self) -> None:
        """End the workers that wait for the next run, so that others on the cluster get their places."""
        if self._ray.is_initialized():
            for member in self.idle:
                self._ray.kill(member.actor)
        self.idle = []

    def close(self) -> None:
        """End the workers and leave the cluster; one that was started for this engine is stopped."""
        self.release()
        if self._mailbox is not None and self._ray.is_initialized():
            self._ray.kill(self._mailbox)
        self._mailbox = None
        if self._ours:
            self._ours = False
            self._ray.shutdown()

    def _connect(self, address: str | None, dashboard: bool, options: dict[str, Any]) -> str:
        """Join or start a cluster; gives the address of its dashboard back."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if address not in (None, "auto", "local"):
            check_reachable(address)
        settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING, **options}
        if address == "local":
            settings["include_dashboard"] = dashboard
        try:
            return self._ray.init(address=address, **settings).dashboard_url or ""
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            where = "a Ray cluster on this machine" if address in (None, "local") else f"the Ray cluster {address!r}"
            hint = " Start one with `ray start --head`, or give the address 'local'." if address == "auto" else ""
            reason = " ".join(str(error).split())
            raise EngineError(f"Cannot {'start' if address == 'local' else 'reach'} {where}: {reason}{hint}") from error


def check_reachable(address: str) -> None:
    """Knock at HOST:PORT first: Ray itself tries for many minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        raise InputError(f"address must be 'auto', 'local', HOST:PORT or ray://HOST:PORT, not {address!r}.")
    try:
        socket.create_connection((host, int(port)), timeout=_SECONDS_TO_KNOCK).close()
    except OSError as error:
        raise EngineError(f"Cannot reach the Ray cluster {address!r}: {error}.") from error
