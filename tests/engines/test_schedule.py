"""Which job a free worker gets."""

from __future__ import annotations

import pytest

from hubscout.engines import Job
from hubscout.engines.schedule import Schedule
from hubscout.errors import InputError

ONE = (1.0, 0.0)


def jobs(group: str, count: int, cost: float) -> list[Job]:
    return [Job(f"{group}{n}", str, group=group, cost=cost) for n in range(count)]


def test_the_costliest_group_goes_first_and_a_worker_stays_with_its_group() -> None:
    schedule = Schedule([*jobs("small", 2, 1.0), *jobs("large", 2, 5.0)])
    first = schedule.take(ONE, None, {})
    assert first is not None
    assert first.group == "large"
    second = schedule.take(ONE, None, {"large": 1})
    assert second is not None
    assert second.group == "small"
    own = schedule.take(ONE, "small", {"large": 1})
    assert own is not None
    assert own.group == "small"


def test_a_worker_without_work_helps_where_most_is_left() -> None:
    schedule = Schedule([*jobs("a", 3, 1.0), *jobs("b", 3, 1.0)])
    schedule.take(ONE, "a", {})
    helped = schedule.take(ONE, None, {"a": 1, "b": 1})
    assert helped is not None
    assert helped.group == "b"


def test_jobs_of_another_shape_are_for_others() -> None:
    schedule = Schedule([Job("gpu", str, gpus=0.5, cost=9.0), Job("cpu", str, cost=1.0)])
    assert list(schedule.shapes()) == [(1.0, 0.5), ONE]
    taken = schedule.take(ONE, None, {})
    assert taken is not None
    assert taken.key == "cpu"
    assert schedule.take(ONE, None, {}) is None
    assert len(schedule) == 1


def test_a_job_that_comes_back_is_the_next() -> None:
    schedule = Schedule(jobs("a", 3, 1.0))
    taken = schedule.take(ONE, None, {})
    assert taken is not None
    schedule.put_back(taken)
    assert schedule.take(ONE, "a", {}) == taken


def test_keys_are_taken_once() -> None:
    schedule = Schedule(jobs("a", 1, 1.0))
    schedule.take(ONE, None, {})
    with pytest.raises(InputError, match="'a0' is there more than once"):
        schedule.add(jobs("a", 1, 1.0))
