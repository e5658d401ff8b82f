"""The engine `ray`: a cluster of machines, or this one as if it were."""

from __future__ import annotations

import logging
import math
import os
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from hubscout.engines.engine import ENGINES, Follow, Observer
from hubscout.engines.job import Job, JobResult, Shared
from hubscout.errors import EngineError, InputError, check_least
from hubscout.optional import require

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

    A job is a Ray task: Ray places it where the CPUs and GPUs are that it asks for, and runs it again where its
    process or machine was lost, `attempts` times in all. Results are counted once: a job that is run again is one that
    gave no result.

    Args:
        address: "auto" for the cluster that this machine is part of, "local" for one of its own on this machine,
            HOST:PORT or ray://HOST:PORT for another. None is $RAY_ADDRESS, else a cluster that runs here, else "local".
        attempts: how often a job is started before the death of its process counts as its fault.
        dashboard: whether a cluster that is started here has a dashboard.
        options: for `ray.init`, such as `num_cpus`.

    Raises:
        EngineError: the cluster cannot be reached or started.
        InputError: an address of another form, or `attempts` below 1.
        MissingDependencyError: Ray is not installed.

    Example:
        >>> hubscout.rank(task, models, engine=RayEngine("10.0.0.1:6379"))  # doctest: +SKIP

    """

    def __init__(
        self, address: str | None = None, *, attempts: int = 3, dashboard: bool = True, **options: Any
    ) -> None:
        check_least("attempts", attempts)
        self._ray = require("ray", extra="ray", purpose="The engine 'ray'")
        self.attempts = attempts
        self.notes: tuple[str, ...] = ()
        self._events: Any = None
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
        """Results in the order in which jobs finish; the costliest start first."""
        from hubscout.engines.ray_run import RayRun

        run = RayRun(self, jobs, observer, then)
        try:
            yield from run.results()
        finally:
            run.cancel()

    @property
    def events(self) -> Any:
        """Where jobs send what they report: on this machine, so that it is there as long as somebody listens."""
        if self._events is None:
            from ray.util.queue import Queue

            here = self._ray.get_runtime_context().get_node_id()
            strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=True)
            # One that has died starts anew: without it nobody would know which jobs have begun, and which hang.
            self._events = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": strategy, "max_restarts": -1})
        return self._events

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

    def close(self) -> None:
        """Leave the cluster; one that was started for this engine is stopped."""
        if self._events is not None and self._ray.is_initialized():
            self._events.shutdown(force=True)
        self._events = None
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
